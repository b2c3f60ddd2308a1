"""The settings of groups, and the bounds that the brokers' settings put on them (KIP-848, KIP-932, KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.config_def import ConfigDef, Synonym
from barnabas.metadata.settings import effects
from barnabas.metadata.settings_table import SettingsTable
from barnabas.metadata.validators import ConfigValue

WITHOUT_BROKER_SETTING: Final = frozenset(
    ("share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable")
)
"""Settings that only a group has; the others fall back to the broker setting of the same name after `group.`."""


def _synonyms(name: str) -> tuple[Synonym, ...]:
    return () if name in WITHOUT_BROKER_SETTING else (Synonym(f"group.{name}"),)


GROUP_SETTINGS: Final[Mapping[str, ConfigDef]] = SettingsTable(
    ["group_level"], with_effect=effects.GROUP, synonyms=_synonyms
)
"""Every group setting by name; the synonym of each is the broker setting that it falls back to."""


def group_setting(name: str) -> ConfigDef:
    """The definition of a group setting. Raises KafkaError INVALID_CONFIG for a name that nobody knows."""
    definition = GROUP_SETTINGS.get(name)
    if definition is None:
        raise KafkaError(ErrorCode.invalid_config, f"Unknown group config name: {name}")
    return definition


def bounds_of(name: str) -> tuple[str, str]:
    """The broker settings that say how small and how great a group's setting may be; empty where none does."""
    kind, _, rest = name.partition(".")
    low, high = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest.removeprefix('num.')}"
    return low if low in BROKER_SETTINGS else "", high if high in BROKER_SETTINGS else ""


def validate_group_settings(values: Mapping[str, str], broker_value: Callable[[str], ConfigValue]) -> None:
    """Check all settings of one group; `broker_value` gives the brokers' values by name.

    Raises KafkaError INVALID_CONFIG for the first that is wrong.
    """
    parsed = {name: group_setting(name).parse(text) for name, text in values.items()}
    for name, value in parsed.items():
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        low, high = bounds_of(name)
        if low and value < _number(broker_value(low)):
            raise _invalid(f"{name} must be greater than or equal to {low}, which is {broker_value(low)}")
        if high and value > _number(broker_value(high)):
            raise _invalid(f"{name} must be less than or equal to {high}, which is {broker_value(high)}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if session not in parsed and heartbeat not in parsed:
            continue
        session_ms = _number(parsed.get(session, broker_value(f"group.{session}")))
        heartbeat_ms = _number(parsed.get(heartbeat, broker_value(f"group.{heartbeat}")))
        if session_ms <= heartbeat_ms:
            raise _invalid(f"{session} ({session_ms}) must be greater than {heartbeat} ({heartbeat_ms})")


def _number(value: ConfigValue) -> int:
    assert isinstance(value, int)
    return value


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, message)
