"""The broker's settings of logs: what topics fall back to, and how logs are kept.

Source: the broker configuration reference of Apache Kafka 4. Which of them can change while a broker runs follows
the update modes given there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from barnabas.metadata.config_def import (
    LONG_MAX,
    Between,
    ConfigDef,
    ConfigType,
    Importance,
    UpdateMode,
    Validator,
)
from barnabas.metadata.topic_settings import TOPIC_SETTINGS

_READ_ONLY, _CLUSTER = UpdateMode.READ_ONLY, UpdateMode.CLUSTER_WIDE
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_NO_OWN_DEFAULT: Final = {
    "log.retention.ms",
    "log.roll.ms",
    "log.roll.jitter.ms",
    "log.flush.interval.ms",
}
"""Settings in milliseconds that give way, while unset, to a synonym in another unit."""


def _setting(
    name: str,
    type_: ConfigType,
    default: str | None,
    documentation: str,
    validator: Validator | None = None,
    mode: UpdateMode = _READ_ONLY,
    importance: Importance = _MEDIUM,
) -> ConfigDef:
    return ConfigDef(name, type_, default, documentation, validator, importance, update_mode=mode)


def _stands_in_for(topic_name: str) -> ConfigDef:
    """The first broker synonym of a topic setting: same type and values, the same meaning for all topics."""
    topic = TOPIC_SETTINGS[topic_name]
    name = topic.synonyms[0].name
    default = None if name in _NO_OWN_DEFAULT else topic.default
    documentation = f"The value of {topic_name} for topics that do not set it."
    definition = _setting(name, topic.type, default, documentation, topic.validator, _CLUSTER)
    return replace(definition, has_effect=topic.has_effect)


TOPIC_FALLBACKS: Final = tuple(
    _stands_in_for(name) for name, definition in TOPIC_SETTINGS.items() if definition.synonyms
)

OTHER_UNITS: Final = (
    _setting(
        "log.retention.minutes",
        ConfigType.INT,
        None,
        "Minutes that segments are kept, when log.retention.ms is not set.",
    ),
    _setting(
        "log.retention.hours",
        ConfigType.INT,
        "168",
        "Hours that segments are kept, when neither milliseconds nor minutes are set.",
        importance=_HIGH,
    ),
    _setting(
        "log.roll.hours",
        ConfigType.INT,
        "168",
        "Age in hours at which a new segment is begun, when log.roll.ms is not set.",
        Between(1),
        importance=_HIGH,
    ),
    _setting(
        "log.roll.jitter.hours",
        ConfigType.INT,
        "0",
        "Hours taken off the age at random, when log.roll.jitter.ms is not set.",
        Between(0),
    ),
    _setting(
        "log.flush.scheduler.interval.ms",
        ConfigType.LONG,
        str(LONG_MAX),
        "Milliseconds between two looks for logs that must be forced to disk.",
    ),
)

UPKEEP: Final = (
    _setting("log.dir", ConfigType.STRING, None, "The directory of the logs, when log.dirs is not set."),
    _setting("log.dirs", ConfigType.STRING, None, "The directories of the logs.", importance=_HIGH),
    _setting(
        "log.retention.check.interval.ms",
        ConfigType.LONG,
        "300000",
        "Milliseconds between two looks for segments that retention removes.",
        Between(1),
    ),
    _setting(
        "log.flush.offset.checkpoint.interval.ms",
        ConfigType.INT,
        "60000",
        "Milliseconds between two checkpoints of the recovery points.",
        Between(0),
    ),
    _setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        ConfigType.INT,
        "60000",
        "Milliseconds between two checkpoints of the log start offsets.",
        Between(0),
    ),
    _setting(
        "log.initial.task.delay.ms",
        ConfigType.LONG,
        "30000",
        "Milliseconds after start before the upkeep of logs begins.",
        Between(0),
        importance=_LOW,
    ),
    _setting(
        "log.dir.failure.timeout.ms",
        ConfigType.LONG,
        "30000",
        "Milliseconds that a broker waits for the controller to hear of a failed directory before it stops.",
        Between(1),
        importance=_LOW,
    ),
    _setting(
        "num.recovery.threads.per.data.dir",
        ConfigType.INT,
        "2",
        "Threads a directory for recovery at start and flushing at stop.",
        Between(1),
        _CLUSTER,
        _HIGH,
    ),
    _setting(
        "log.cleaner.enable", ConfigType.BOOLEAN, "true", "Whether compacted topics are compacted at all."
    ),
    _setting("log.cleaner.threads", ConfigType.INT, "1", "Threads that compact logs.", Between(0), _CLUSTER),
    _setting(
        "log.cleaner.backoff.ms",
        ConfigType.LONG,
        "15000",
        "Milliseconds of rest when no log needs compaction.",
        Between(0),
        _CLUSTER,
    ),
    _setting(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        "1.7976931348623157E308",
        "Bytes a second that compaction may read and write together.",
        None,
        _CLUSTER,
    ),
    _setting(
        "log.cleaner.io.buffer.size",
        ConfigType.INT,
        str(512 * 1024),
        "Bytes of buffers for the reads and writes of compaction.",
        Between(0),
        _CLUSTER,
    ),
    _setting(
        "log.cleaner.io.buffer.load.factor",
        ConfigType.DOUBLE,
        "0.9",
        "How full compaction's key map may get, from 0 to 1.",
        None,
        _CLUSTER,
    ),
    _setting(
        "log.cleaner.dedupe.buffer.size",
        ConfigType.LONG,
        str(128 * 1024 * 1024),
        "Bytes of memory for compaction's key maps.",
        None,
        _CLUSTER,
    ),
)

_UPKEEP_WITH_EFFECT: Final = {
    "log.cleaner.enable",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
}

BROKER_LOG_SETTINGS: Final = (
    TOPIC_FALLBACKS
    + OTHER_UNITS
    + tuple(replace(definition, has_effect=definition.name in _UPKEEP_WITH_EFFECT) for definition in UPKEEP)
)
