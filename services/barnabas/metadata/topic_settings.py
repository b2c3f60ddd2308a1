"""Every setting that a topic can have in Kafka 4, with Kafka's defaults.

Source: the topic configuration reference of Apache Kafka 4 and KIP-1030 (defaults changed in 4.0). The broker
settings that stand in for each are its synonyms, in the order in which Kafka asks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.config_def import (
    LONG_MAX,
    Between,
    ConfigDef,
    ConfigType,
    ConfigValue,
    EachOf,
    GzipLevel,
    OneOf,
    Synonym,
    ThrottledReplicas,
    Unit,
    table_of,
)

SEGMENT_BYTES_MIN: Final = 1024 * 1024
"""Kafka 4.0 raised the least segment size to 1 MiB (KIP-1030)."""

MAX_MESSAGE_BYTES_DEFAULT: Final = 1024 * 1024 + 12
"""1 MiB and the 12 bytes of the oldest log entry header."""

_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
_NOT_NEGATIVE: Final = Between(0)
_POSITIVE: Final = Between(1)


def _like(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


_RETENTION: Final = (
    ConfigDef(
        "cleanup.policy",
        _LIST,
        "delete",
        "What becomes of old segments: delete removes them, compact keeps the last record of each key.",
        EachOf(("compact", "delete")),
        synonyms=_like("log.cleanup.policy"),
    ),
    ConfigDef(
        "retention.ms",
        _L,
        "604800000",
        "Milliseconds that a segment is kept after its newest record; -1 keeps it whatever its age.",
        Between(-1),
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", Unit.MINUTES_TO_MS),
            Synonym("log.retention.hours", Unit.HOURS_TO_MS),
        ),
    ),
    ConfigDef(
        "retention.bytes",
        _L,
        "-1",
        "Bytes that a partition may hold before its oldest segments go; -1 sets no limit.",
        synonyms=_like("log.retention.bytes"),
    ),
    ConfigDef(
        "delete.retention.ms",
        _L,
        "86400000",
        "Milliseconds that a deletion marker stays in a compacted topic.",
        _NOT_NEGATIVE,
        synonyms=_like("log.cleaner.delete.retention.ms"),
    ),
    ConfigDef(
        "min.compaction.lag.ms",
        _L,
        "0",
        "Milliseconds for which a record is safe from compaction.",
        _NOT_NEGATIVE,
        synonyms=_like("log.cleaner.min.compaction.lag.ms"),
    ),
    ConfigDef(
        "max.compaction.lag.ms",
        _L,
        str(LONG_MAX),
        "Milliseconds after which a record must have been through compaction.",
        _POSITIVE,
        synonyms=_like("log.cleaner.max.compaction.lag.ms"),
    ),
    ConfigDef(
        "min.cleanable.dirty.ratio",
        _D,
        "0.5",
        "Share of a log that must be uncompacted before compaction is worth its while.",
        Between(0, 1),
        synonyms=_like("log.cleaner.min.cleanable.ratio"),
    ),
    ConfigDef(
        "file.delete.delay.ms",
        _L,
        "60000",
        "Milliseconds between a segment leaving the log and its files leaving the disk.",
        _NOT_NEGATIVE,
        synonyms=_like("log.segment.delete.delay.ms"),
    ),
)

_SEGMENTS: Final = (
    ConfigDef(
        "segment.bytes",
        _I,
        str(1024**3),
        "Size in bytes at which a new segment is begun.",
        Between(SEGMENT_BYTES_MIN),
        synonyms=_like("log.segment.bytes"),
    ),
    ConfigDef(
        "segment.ms",
        _L,
        "604800000",
        "Age in milliseconds at which a new segment is begun even when the old one is small.",
        _POSITIVE,
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", Unit.HOURS_TO_MS)),
    ),
    ConfigDef(
        "segment.jitter.ms",
        _L,
        "0",
        "Up to this many milliseconds are taken off segment.ms at random, so that partitions do not roll at once.",
        _NOT_NEGATIVE,
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", Unit.HOURS_TO_MS)),
    ),
    ConfigDef(
        "segment.index.bytes",
        _I,
        str(10 * 1024 * 1024),
        "Largest size in bytes of a segment's offset index.",
        Between(4),
        synonyms=_like("log.index.size.max.bytes"),
    ),
    ConfigDef(
        "index.interval.bytes",
        _I,
        "4096",
        "Bytes of log between two entries of the offset index.",
        _NOT_NEGATIVE,
        synonyms=_like("log.index.interval.bytes"),
    ),
    ConfigDef(
        "preallocate",
        _B,
        "false",
        "Whether a segment's full size is reserved on disk when it is begun.",
        synonyms=_like("log.preallocate"),
    ),
    ConfigDef(
        "flush.messages",
        _L,
        str(LONG_MAX),
        "Records after which a partition is forced to disk.",
        _POSITIVE,
        synonyms=_like("log.flush.interval.messages"),
    ),
    ConfigDef(
        "flush.ms",
        _L,
        str(LONG_MAX),
        "Milliseconds after which a partition is forced to disk.",
        _NOT_NEGATIVE,
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    ),
)

_RECORDS: Final = (
    ConfigDef(
        "max.message.bytes",
        _I,
        str(MAX_MESSAGE_BYTES_DEFAULT),
        "Largest record batch in bytes, after compression.",
        _NOT_NEGATIVE,
        synonyms=_like("message.max.bytes"),
    ),
    ConfigDef(
        "message.timestamp.type",
        _S,
        "CreateTime",
        "Whether records carry the producer's time or the time at which they were appended.",
        OneOf(("CreateTime", "LogAppendTime")),
        synonyms=_like("log.message.timestamp.type"),
    ),
    ConfigDef(
        "message.timestamp.before.max.ms",
        _L,
        str(LONG_MAX),
        "How far in the past a producer's timestamp may lie, in milliseconds.",
        _NOT_NEGATIVE,
        synonyms=_like("log.message.timestamp.before.max.ms"),
    ),
    ConfigDef(
        "message.timestamp.after.max.ms",
        _L,
        "3600000",
        "How far in the future a producer's timestamp may lie, in milliseconds.",
        _NOT_NEGATIVE,
        synonyms=_like("log.message.timestamp.after.max.ms"),
    ),
    ConfigDef(
        "compression.type",
        _S,
        "producer",
        "The codec in which batches are stored; producer keeps the one they came in.",
        OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        synonyms=_like("compression.type"),
    ),
    ConfigDef(
        "compression.gzip.level",
        _I,
        "-1",
        "Effort of gzip from 1 to 9; -1 leaves it to the library.",
        GzipLevel(),
        synonyms=_like("compression.gzip.level"),
    ),
    ConfigDef(
        "compression.lz4.level",
        _I,
        "9",
        "Effort of LZ4 from 1 to 17.",
        Between(1, 17),
        synonyms=_like("compression.lz4.level"),
    ),
    ConfigDef(
        "compression.zstd.level",
        _I,
        "3",
        "Effort of Zstandard from -131072 to 22.",
        Between(-131072, 22),
        synonyms=_like("compression.zstd.level"),
    ),
)

_REPLICATION: Final = (
    ConfigDef(
        "min.insync.replicas",
        _I,
        "1",
        "In-sync replicas that must be there before a write with acks=all is taken.",
        _POSITIVE,
        synonyms=_like("min.insync.replicas"),
    ),
    ConfigDef(
        "unclean.leader.election.enable",
        _B,
        "false",
        "Whether a replica that is not in sync may lead when no other is left, at the price of lost records.",
        synonyms=_like("unclean.leader.election.enable"),
    ),
    ConfigDef(
        "leader.replication.throttled.replicas",
        _LIST,
        "",
        "Replicas whose outgoing replication traffic is throttled: partition:broker pairs, or *.",
        ThrottledReplicas(),
    ),
    ConfigDef(
        "follower.replication.throttled.replicas",
        _LIST,
        "",
        "Replicas whose incoming replication traffic is throttled: partition:broker pairs, or *.",
        ThrottledReplicas(),
    ),
)

_TIERED: Final = (
    ConfigDef("remote.storage.enable", _B, "false", "Whether cold segments move to remote storage."),
    ConfigDef(
        "remote.log.copy.disable", _B, "false", "Whether segments stop being copied to remote storage."
    ),
    ConfigDef(
        "remote.log.delete.on.disable",
        _B,
        "false",
        "Whether remote segments are deleted when remote storage is turned off for the topic.",
    ),
    ConfigDef(
        "local.retention.ms",
        _L,
        "-2",
        "Milliseconds that segments in remote storage also stay on the local disk; -2 means retention.ms.",
        Between(-2),
        synonyms=_like("log.local.retention.ms"),
    ),
    ConfigDef(
        "local.retention.bytes",
        _L,
        "-2",
        "Bytes of a partition that also stay on the local disk; -2 means retention.bytes.",
        Between(-2),
        synonyms=_like("log.local.retention.bytes"),
    ),
)

_WITH_EFFECT: Final = frozenset(
    (
        "cleanup.policy",
        "delete.retention.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    )
)
"""What storage nodes act on. The others are stored and shown, and change nothing yet."""

TOPIC_SETTINGS: Final[Mapping[str, ConfigDef]] = table_of(
    [
        replace(definition, has_effect=definition.name in _WITH_EFFECT)
        for definition in _RETENTION + _SEGMENTS + _RECORDS + _REPLICATION + _TIERED
    ]
)
"""Every topic setting by its name."""


def topic_setting(name: str) -> ConfigDef:
    """The definition of a topic setting. Raises KafkaError INVALID_CONFIG for a name that nobody knows."""
    definition = TOPIC_SETTINGS.get(name)
    if definition is None:
        raise KafkaError(ErrorCode.invalid_config, f"Unknown topic config name: {name}")
    return definition


def validate_topic_settings(values: Mapping[str, str]) -> dict[str, ConfigValue]:
    """The values of all settings of one topic, read and checked also against one another.

    Raises KafkaError INVALID_CONFIG for the first that is wrong.
    """
    parsed = {name: topic_setting(name).parse(text) for name, text in values.items()}

    def value(name: str) -> ConfigValue:
        return parsed[name] if name in parsed else TOPIC_SETTINGS[name].default_value()

    low, high = value("min.compaction.lag.ms"), value("max.compaction.lag.ms")
    assert isinstance(low, int)
    assert isinstance(high, int)
    if low > high:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"min.compaction.lag.ms {low} is above max.compaction.lag.ms {high}: lower it or raise the other.",
        )
    if parsed.get("remote.storage.enable"):
        raise KafkaError(
            ErrorCode.invalid_config,
            "Tiered storage functionality is disabled in the broker: set remote.storage.enable to false.",
        )
    return parsed
