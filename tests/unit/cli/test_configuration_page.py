"""docs/configuration.md says what the tables of settings say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from barnabas.cli.configuration_page import REASONS_FOR_OTHER_DEFAULTS, SERVICES, page
from barnabas.cli.plan import SETTINGS_OF_UP
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.settings.other_defaults import OTHER_DEFAULTS
from barnabas.metadata.topic_settings import TOPIC_SETTINGS

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_committed_page_is_the_tables() -> None:
    assert PAGE.read_text() == page(), (
        "write it anew: python -m barnabas.cli.configuration_page > docs/configuration.md"
    )


def test_every_setting_is_on_the_page() -> None:
    text = page()
    for name in [*BROKER_SETTINGS, *TOPIC_SETTINGS]:
        assert f"\n| `{name}` | " in text, name


def test_every_service_has_its_metrics_somewhere() -> None:
    """As docs/observability.md says."""
    for config_type in SERVICES.values():
        (field,) = (field for field in dataclasses.fields(config_type) if field.name == "http_address")
        assert (field.default, field.metadata["help"][-18:]) == ("127.0.0.1:0", "empty for nowhere.")


def test_every_other_default_has_its_reason_and_shows_what_up_sets() -> None:
    assert REASONS_FOR_OTHER_DEFAULTS.keys() == OTHER_DEFAULTS.keys() | SETTINGS_OF_UP.keys()
    assert "| `max.connections` | int | `10000` |" in page()
    assert "| `max.connections` | `2147483647` | `10000` | `10000` |" in page()
    assert "| `group.initial.rebalance.delay.ms` | `3000` | `3000` | `0` |" in page()
    assert "`up` sets `default.replication.factor=3` and `min.insync.replicas=2` as well" in page()
