"""Every setting that a topic can have in Kafka 4.3, and the rules that bind them.

Source: the topic configuration reference of Apache Kafka 4 and KIP-1030 (defaults changed in 4.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.config_def import ConfigDef
from barnabas.metadata.settings.effects import TOPIC
from barnabas.metadata.settings.topic_level import SYNONYMS
from barnabas.metadata.settings_table import SettingsTable
from barnabas.metadata.validators import ConfigValue

INTERNAL: Final = "internal.segment.bytes"

TOPIC_SETTINGS: Final[Mapping[str, ConfigDef]] = SettingsTable(
    ["topic_level"], with_effect=TOPIC, internal={INTERNAL}, synonyms=lambda name: SYNONYMS.get(name, ())
)
"""Every topic setting by its name; the synonyms of each are the broker settings that stand in for it."""


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
