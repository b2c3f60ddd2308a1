"""The settings of a topic that its partitions obey, worked out once per topic and change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.kafka_values import BROKER_RESOURCE, LONG_MAX
from barnabas.kernel.logs import get_logger
from barnabas.log.config import LogConfig
from barnabas.metadata.effective import topic_setting_text
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topic_settings import topic_setting

LOG_FIELDS: Final = {name.replace("_", "."): name for name in LogConfig.__dataclass_fields__}
"""The fields of LogConfig by Kafka's names."""
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"

THROTTLED_FIELDS: Final = {
    "leader.replication.throttled.replicas": "leader_throttled",
    "follower.replication.throttled.replicas": "follower_throttled",
}
"""Those of TopicSettings that name replicas, by Kafka's names."""
ALL_PARTITIONS: Final = -1

log = get_logger("storage.topic_settings")


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a partition needs to know of its topic's settings."""

    log: LogConfig
    min_insync_replicas: int = 1
    leader_throttled: frozenset[int] = frozenset()
    """The partitions whose followers are throttled where this node leads (KIP-73); ALL_PARTITIONS among them: all."""
    follower_throttled: frozenset[int] = frozenset()
    """The partitions that are throttled where this node follows."""
    unusable: frozenset[str] = frozenset()
    """Names of those that could not be read, which have the value that they had before."""


def is_throttled(throttled: frozenset[int], partition: int) -> bool:
    """Whether a partition is among those that are throttled."""
    return bool(throttled) and (partition in throttled or ALL_PARTITIONS in throttled)


KEEPS_EVERYTHING: Final = TopicSettings(
    LogConfig(
        cleanup_policy=frozenset(),
        retention_ms=-1,
        retention_bytes=-1,
        delete_retention_ms=LONG_MAX,
        min_compaction_lag_ms=LONG_MAX,
        min_cleanable_dirty_ratio=1.0,
        flush_messages=1,
    )
)
"""Of a partition whose settings are not known: nothing of it is deleted or compacted, and what it takes is synced."""


class TopicSettingsReader:
    """Owner of the settings worked out so far; topics without settings of their own share one value."""

    def __init__(self, node_id: int, static: Mapping[str, str]) -> None:
        """`static` is the node's configuration file: what the metadata knows of it may be of its last start."""
        self._node_id = node_id
        self._static = static
        self._broker_values: tuple[Mapping[str, str] | None, ...] = ()
        self._known: dict[tuple[tuple[str, str], ...], TopicSettings] = {}

    def read(self, image: MetadataImage, topic: str, last: TopicSettings) -> TopicSettings:
        """The topic's settings in `image`, as this node sees them; `last` are those that the partition has."""
        broker_values = tuple(image.configs.get((BROKER_RESOURCE, name)) for name in ("", str(self._node_id)))
        if broker_values != self._broker_values:
            self._broker_values = broker_values
            self._known.clear()
        own = tuple(sorted(image.topic_config(topic).items()))
        settings = self._known.get(own)
        if settings is None:
            settings = self._known[own] = self._work_out(image, topic)
        return _with_last(settings, last) if settings.unusable else settings

    def _work_out(self, image: MetadataImage, topic: str) -> TopicSettings:
        """The settings without those that cannot be used: their values do not count."""
        values: dict[str, Any] = {}
        unusable = set()
        for name in (*LOG_FIELDS, MIN_INSYNC_REPLICAS, *THROTTLED_FIELDS):
            try:
                values[name] = self._value(image, topic, name)
            except (KafkaError, ValueError) as error:
                # The controller checks what it stores, so a newer one has stored this. To obey the other settings
                # and to let this one be is safe; a default might delete what the topic is to keep.
                unusable.add(name)
                reason = error.message if isinstance(error, KafkaError) else str(error)
                log.error(
                    "a topic's setting cannot be used and stays as it was",
                    topic=topic,
                    setting=name,
                    reason=reason,
                )
        of_log = {LOG_FIELDS[name]: value for name, value in values.items() if name in LOG_FIELDS}
        throttled = {
            THROTTLED_FIELDS[name]: self._partitions(value)
            for name, value in values.items()
            if name in THROTTLED_FIELDS
        }
        return TopicSettings(
            LogConfig(**of_log),
            values.get(MIN_INSYNC_REPLICAS, 1),
            unusable=frozenset(unusable),
            **throttled,
        )

    def _partitions(self, named: frozenset[str]) -> frozenset[int]:
        """The partitions that a list of partition:broker names for this node."""
        if "*" in named:
            return frozenset((ALL_PARTITIONS,))
        pairs = (each.split(":") for each in named)
        return frozenset(int(partition) for partition, node in pairs if int(node) == self._node_id)

    def _value(self, image: MetadataImage, topic: str, name: str) -> Any:
        """Raises KafkaError for a text that is no value of the setting, ValueError for one that the log cannot obey."""
        text = topic_setting_text(image, topic, name, node_id=self._node_id, static=self._static)
        assert text is not None, "what the log obeys has a default"
        value = topic_setting(name).parse(text)
        if isinstance(value, tuple):
            return frozenset(value)
        if name in LOG_FIELDS:
            LogConfig(**{LOG_FIELDS[name]: value})  # type: ignore[arg-type]
        return value


def _with_last(settings: TopicSettings, last: TopicSettings) -> TopicSettings:
    """`settings` with the values of `last` for what cannot be used."""
    of_log = {
        LOG_FIELDS[name]: getattr(last.log, LOG_FIELDS[name])
        for name in settings.unusable
        if name in LOG_FIELDS
    }
    others = [
        field
        for name, field in {MIN_INSYNC_REPLICAS: "min_insync_replicas", **THROTTLED_FIELDS}.items()
        if name in settings.unusable
    ]
    log_config = replace(settings.log, **of_log)
    return replace(settings, log=log_config, **{field: getattr(last, field) for field in others})
