"""Which metrics a client is asked for: the client-metrics resources that match it, as one assignment (KIP-714)."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.kafka_values import CLIENT_METRICS_RESOURCE
from barnabas.metadata.client_metrics_settings import parse_match
from barnabas.metadata.config_def import split_list
from barnabas.metadata.patterns import Pattern

ALL_METRICS: Final = "*"
PUSH_INTERVAL_MS_DEFAULT: Final = 300_000

METRICS_SETTING: Final = "metrics"
INTERVAL_SETTING: Final = "interval.ms"
MATCH_SETTING: Final = "match"

CLIENT_INSTANCE_ID: Final = "client_instance_id"
CLIENT_ID: Final = "client_id"
CLIENT_SOFTWARE_NAME: Final = "client_software_name"
CLIENT_SOFTWARE_VERSION: Final = "client_software_version"
CLIENT_SOURCE_ADDRESS: Final = "client_source_address"
CLIENT_SOURCE_PORT: Final = "client_source_port"

Configs = Mapping[tuple[int, str], Mapping[str, str]]
"""What was set on each resource, as the metadata image has it."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One client-metrics resource. A client matches when each pattern matches the whole of its attribute."""

    metrics: frozenset[str]
    push_interval_ms: int
    patterns: Mapping[str, Pattern]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        return all(
            name in attributes and pattern.fullmatch(attributes[name])
            for name, pattern in self.patterns.items()
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one client is to push, and how often. The same resources give the same id, at every gateway."""

    subscription_id: int
    metrics: tuple[str, ...]
    push_interval_ms: int


def parse_subscriptions(configs: Configs) -> tuple[Subscription, ...]:
    """The client-metrics resources. Settings were checked when they were made; one that cannot be read is left out."""
    return tuple(_parse(configs))


def assign(
    subscriptions: Sequence[Subscription], client_instance_id: bytes, attributes: Mapping[str, str]
) -> Assignment:
    """All that the client matches as one: the union of the metrics, at the shortest interval."""
    matching = [subscription for subscription in subscriptions if subscription.matches(attributes)]
    metrics = sorted(frozenset[str]().union(*(subscription.metrics for subscription in matching)))
    if ALL_METRICS in metrics:
        metrics = [ALL_METRICS]
    # As in Kafka the default bounds the interval from above, also where longer ones are set.
    interval_ms = min([PUSH_INTERVAL_MS_DEFAULT, *(each.push_interval_ms for each in matching)])
    checksum = zlib.crc32(f"{','.join(metrics)};{interval_ms}".encode()) ^ zlib.crc32(client_instance_id)
    return Assignment(_signed(checksum), tuple(metrics), interval_ms)


def instance_text(client_instance_id: bytes) -> str:
    """A client instance id as Kafka writes ids: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(client_instance_id).decode().rstrip("=")


def _parse(configs: Configs) -> Iterator[Subscription]:
    for (resource_type, _), settings in configs.items():
        if resource_type != CLIENT_METRICS_RESOURCE:
            continue
        try:
            yield Subscription(
                frozenset(split_list(settings.get(METRICS_SETTING, ""))),
                int(settings.get(INTERVAL_SETTING, PUSH_INTERVAL_MS_DEFAULT)),
                parse_match(split_list(settings.get(MATCH_SETTING, ""))),
            )
        except (ValueError, KafkaError):
            continue


def _signed(number: int) -> int:
    """The same 32 bits as a signed number."""
    return number - (1 << 32) if number >= 1 << 31 else number
