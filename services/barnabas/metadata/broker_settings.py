"""Every broker setting of Kafka 4.3, and what of them may be written in a file or changed while brokers run.

Source: what a broker of Apache Kafka 4.3 says of itself. The rows are in `metadata.settings`, one file an area.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from barnabas.metadata.config_def import ConfigDef, ConfigType, UpdateMode
from barnabas.metadata.settings import effects, topic_level
from barnabas.metadata.settings_table import SettingsTable

AREAS: Final = {
    "cluster": "Brokers and topics",
    "network": "Listeners, connections and requests",
    "logs": "Logs",
    "compaction": "Compaction",
    "replication": "Replication",
    "groups": "Groups and offsets",
    "streams_groups": "Streams groups",
    "share_groups": "Share groups",
    "transactions": "Transactions",
    "quotas": "Quotas",
    "metrics": "Metrics",
    "ssl": "TLS and principals",
    "sasl": "SASL, Kerberos and delegation tokens",
    "oauth": "OAuth",
    "remote_logs": "Remote storage",
    "metadata_quorum": "Quorum of controllers",
}
"""The modules of `metadata.settings` that have broker settings, and what each is called in docs/configuration.md."""

INTERNAL: Final = frozenset(
    (
        "controller.performance.always.log.threshold.ms",
        "controller.performance.sample.period.ms",
        "follower.replication.throttled.rate",
        "group.consumer.regex.refresh.interval.ms",
        "group.share.initialize.retry.interval.ms",
        "group.share.persister.class.name",
        "internal.metadata.delete.delay.millis",
        "internal.metadata.log.segment.bytes",
        "internal.metadata.max.batch.size.in.bytes",
        "leader.replication.throttled.rate",
        "log.initial.task.delay.ms",
        "producer.id.expiration.check.interval.ms",
        "remote.log.index.file.cache.ttl.ms",
        "remote.log.manager.task.retry.backoff.max.ms",
        "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.jitter",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "server.max.startup.time.ms",
        "share.coordinator.cold.partition.snapshot.interval.ms",
        "share.coordinator.state.topic.prune.interval.ms",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    )
)
"""Shown only where they are set."""

_FALLBACKS_WITH_EFFECT: Final = frozenset(
    synonym.name
    for name, synonyms in topic_level.SYNONYMS.items()
    if name in effects.TOPIC
    for synonym in synonyms
)

BROKER_SETTINGS: Final[Mapping[str, ConfigDef]] = SettingsTable(
    list(AREAS), with_effect=effects.BROKER | _FALLBACKS_WITH_EFFECT, internal=INTERNAL
)
"""Every broker setting by name."""

_OTHER_UNITS: Final = {
    name: names
    for topic_name in ("retention.ms", "segment.ms", "segment.jitter.ms")
    for names in [tuple(synonym.name for synonym in topic_level.SYNONYMS[topic_name])]
    for name in names
}
"""Broker settings that say the same in other units, by each of their names."""

_LISTENER_SETTING: Final = re.compile(r"listener\.name\.[^.]*\.(.+)", re.DOTALL)
_MECHANISM_SETTINGS: Final = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)
"""With a listener's prefix, these may have a SASL mechanism's as well: listener.name.x.plain.sasl.jaas.config."""


def broker_setting(name: str) -> ConfigDef:
    """The definition of any name: listeners' settings get that of what they override, unknown ones the type UNKNOWN."""
    known = BROKER_SETTINGS.get(name)
    if known is not None:
        return known
    base = BROKER_SETTINGS.get(base_name(name))
    if base is not None:
        return replace(
            base,
            name=name,
            default=None,
            documentation="",
            update_mode=UpdateMode.READ_ONLY,
            has_effect=False,
        )
    return ConfigDef(name, ConfigType.UNKNOWN, None, "")


def base_name(name: str) -> str:
    """The setting that a listener's own stands before: ssl.protocol for listener.name.x.ssl.protocol."""
    matched = _LISTENER_SETTING.fullmatch(name)
    if matched is None:
        return name
    rest = matched[1]
    return next((base for base in _MECHANISM_SETTINGS if rest.endswith(base)), rest)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """The broker settings that Kafka shows as standing behind `name`, which is among them."""
    if name in _OTHER_UNITS:
        return _OTHER_UNITS[name]
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    base = base_name(name)
    return (name,) if base == name else (name, base)
