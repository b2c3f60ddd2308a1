"""The settings of subscriptions to clients' metrics, and what they may say (KIP-714)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.config_def import ConfigDef, split_list
from barnabas.metadata.patterns import Pattern, PatternRefused, compile_pattern
from barnabas.metadata.settings_table import SettingsTable

CLIENT_METRICS_SETTINGS: Final[Mapping[str, ConfigDef]] = SettingsTable(
    ["client_metrics"], with_effect=("interval.ms", "match", "metrics")
)
"""Every setting of a subscription by name."""

INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000

MATCH_NAMES: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What of a client a pattern can be held against."""


def client_metrics_setting(name: str) -> ConfigDef:
    """The definition of a subscription's setting. Raises KafkaError INVALID_REQUEST for a name that nobody knows."""
    definition = CLIENT_METRICS_SETTINGS.get(name)
    if definition is None:
        raise KafkaError(ErrorCode.invalid_request, f"Unknown client metrics configuration: {name}")
    return definition


def validate_client_metrics_settings(values: Mapping[str, str]) -> None:
    """Check all settings of one subscription.

    Raises KafkaError: INVALID_REQUEST for an unknown name or an interval out of bounds, INVALID_CONFIG for a text
    that is not of the setting's type and for a pattern that is none.
    """
    for name in values:
        client_metrics_setting(name)
    if "interval.ms" in values:
        interval_ms = CLIENT_METRICS_SETTINGS["interval.ms"].parse(values["interval.ms"])
        assert isinstance(interval_ms, int)
        if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Invalid value {interval_ms} for interval.ms, interval must be between {INTERVAL_MS_MIN} and "
                f"{INTERVAL_MS_MAX} (1 hour)",
            )
    parse_match(split_list(values.get("match", "")))


def parse_match(entries: Sequence[str]) -> dict[str, Pattern]:
    """The patterns of the setting `match` by what they are held against; of two for one name the last counts.

    A pattern must fit the whole of a client's text. Raises KafkaError INVALID_CONFIG.
    """
    patterns = {}
    for entry in entries:
        name, *texts = (part.strip() for part in entry.split("="))
        if name not in MATCH_NAMES or len(texts) != 1 or not texts[0]:
            raise _illegal(entry)
        try:
            patterns[name] = compile_pattern(texts[0])
        except PatternRefused as refused:
            raise _illegal(entry, f" ({refused})") from None
    return patterns


def _illegal(entry: str, reason: str = "") -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_config,
        f"Illegal client matching pattern: {entry}{reason}. "
        f"Expected name=pattern with one of {', '.join(MATCH_NAMES)}.",
    )
