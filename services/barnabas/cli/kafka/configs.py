"""Reading and changing configs: through librdkafka where it can, else through one request over a socket of our own.

librdkafka knows topics, groups and single brokers; the cluster-wide broker defaults (a broker without a name) and
client metrics subscriptions it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from barnabas.cli.kafka import answers
from barnabas.cli.kafka.admin_types import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from barnabas.cli.kafka.connection import Connection
from barnabas.kernel.kafka_values import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    DELETE_CONFIG,
    GROUP_RESOURCE,
    SET_CONFIG,
    TOPIC_RESOURCE,
)

RESOURCE_TYPES: Final = {
    "topic": TOPIC_RESOURCE,
    "broker": BROKER_RESOURCE,
    "broker-logger": BROKER_LOGGER_RESOURCE,
    "client-metrics": CLIENT_METRICS_RESOURCE,
    "group": GROUP_RESOURCE,
}

_KNOWN_TO_LIBRDKAFKA: Final = ("topic", "broker", "group")
_OWN_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    ConfigSource.DYNAMIC_BROKER_CONFIG.value,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value,
    ConfigSource.GROUP_CONFIG.value,
    6,  # DYNAMIC_BROKER_LOGGER_CONFIG
    7,  # CLIENT_METRICS_CONFIG
}
SOURCES: Final = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "CLIENT_METRICS_CONFIG",
    8: "GROUP_CONFIG",
}


@dataclass(frozen=True)
class Setting:
    """One config of one resource; `value` is None where it is a secret."""

    name: str
    value: str | None
    source: str
    is_own: bool
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[str, ...]


def read_topics(admin: AdminClient, names: Sequence[str]) -> dict[str, dict[str, Setting]]:
    """topic -> name -> setting."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    found = answers.all_of(admin.describe_configs(resources))
    return {resource.name: _settings(entries.values()) for resource, entries in found.items()}


def read(connection: Connection, admin: AdminClient, kind: str, name: str) -> dict[str, Setting]:
    """Every setting of one resource by name. Raises KafkaException and Refused."""
    if kind in _KNOWN_TO_LIBRDKAFKA and name:
        (entries,) = answers.all_of(admin.describe_configs([ConfigResource(kind, name)])).values()
        return _settings(entries.values())
    from barnabas.cli.kafka import requests

    return {
        entry.name: Setting(
            entry.name,
            entry.value,
            SOURCES.get(entry.config_source, "UNKNOWN"),
            entry.config_source in _OWN_SOURCES,
            entry.is_sensitive,
            entry.read_only,
            tuple(
                f"{SOURCES.get(other.source, 'UNKNOWN')}:{other.name}={other.value}"
                for other in entry.synonyms
            ),
        )
        for entry in requests.describe_configs(connection, RESOURCE_TYPES[kind], name)
    }


def change(
    connection: Connection,
    admin: AdminClient,
    kind: str,
    name: str,
    values: Mapping[str, str],
    deleted: Iterable[str],
    *,
    is_dry_run: bool = False,
) -> None:
    """Set `values` and give `deleted` their defaults again; everything else stays."""
    if kind in _KNOWN_TO_LIBRDKAFKA and name:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in values.items()
        ]
        entries += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in deleted]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        answers.all_of(admin.incremental_alter_configs([resource], validate_only=is_dry_run))
        return
    from barnabas.cli.kafka import requests

    operations: list[tuple[str, int, str | None]] = [
        (key, SET_CONFIG, value) for key, value in values.items()
    ]
    operations += [(key, DELETE_CONFIG, None) for key in deleted]
    requests.alter_configs(connection, RESOURCE_TYPES[kind], name, operations, is_dry_run=is_dry_run)


def _settings(entries: Iterable[Any]) -> dict[str, Setting]:
    return {
        entry.name: Setting(
            entry.name,
            entry.value,
            SOURCES.get(_number(entry.source), "UNKNOWN"),
            _number(entry.source) in _OWN_SOURCES,
            entry.is_sensitive,
            entry.is_read_only,
            tuple(
                f"{SOURCES.get(_number(other.source), 'UNKNOWN')}:{other.name}={other.value}"
                for other in entry.synonyms.values()
            ),
        )
        for entry in entries
    }


def _number(source: Any) -> int:
    return int(getattr(source, "value", source))
