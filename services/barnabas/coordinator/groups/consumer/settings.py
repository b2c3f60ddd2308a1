"""What is set for consumer groups while the coordinator runs: for one of them, or for all brokers (KIP-848,
KIP-1263)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.consumer.core.groups import GroupTimes
from barnabas.kernel.kafka_values import GROUP_RESOURCE
from barnabas.metadata.effective import dynamic_broker_value
from barnabas.metadata.image import MetadataImage

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"


class GroupSettings:
    """Owns the times of groups that have settings of their own, and of all others.

    What was set for a group when brokers had other bounds counts as the nearest within those of today.
    """

    def __init__(self, config: CoordinatorConfig) -> None:
        self._config = config
        self._of_all = self._times({}, MetadataImage())
        self._own: dict[str, GroupTimes] = {}

    def times_of(self, group_id: str) -> GroupTimes:
        """The group's times now."""
        return self._own.get(group_id, self._of_all)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Take in what has been set."""
        if new.configs is old.configs:
            return
        self._of_all = self._times({}, new)
        self._own = {
            name: self._times(settings, new)
            for (kind, name), settings in new.configs.items()
            if kind == GROUP_RESOURCE
        }

    def _times(self, settings: Mapping[str, str], image: MetadataImage) -> GroupTimes:
        config = self._config
        interval_ms = dynamic_broker_value(
            image, f"group.{ASSIGNMENT_INTERVAL}", config.group_consumer_assignment_interval_ms
        )
        return GroupTimes(
            session_timeout_ms=_within(
                int(settings.get(SESSION_TIMEOUT, config.group_consumer_session_timeout_ms)),
                config.group_consumer_min_session_timeout_ms,
                config.group_consumer_max_session_timeout_ms,
            ),
            heartbeat_interval_ms=_within(
                int(settings.get(HEARTBEAT_INTERVAL, config.group_consumer_heartbeat_interval_ms)),
                config.group_consumer_min_heartbeat_interval_ms,
                config.group_consumer_max_heartbeat_interval_ms,
            ),
            assignment_interval_ms=_within(
                int(settings.get(ASSIGNMENT_INTERVAL, interval_ms)),
                config.group_consumer_min_assignment_interval_ms,
                config.group_consumer_max_assignment_interval_ms,
            ),
        )


def _within(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))
