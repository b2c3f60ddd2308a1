"""What can be said of the script without playing it."""

from __future__ import annotations

import golden_scenarios  # noqa: F401
from golden_session import SCENARIOS

from barnabas.gateway.handlers.table import HANDLERS
from barnabas.wire.schema import api_name


def test_every_api_has_a_scenario_for_all_its_versions() -> None:
    scripted = {row.api_key for row in SCENARIOS if not row.newest_only}
    assert [api_name(key) for key in sorted(HANDLERS.keys() - scripted)] == []
