"""docs/compatibility.md and ApiVersions say what the handler table says."""

from __future__ import annotations

from pathlib import Path

from gateway_harness import Gateway

from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.parity.compatibility import KAFKA_VERSIONS, page
from barnabas.wire.schema import version_range

PAGE = Path(__file__).parents[4] / "docs" / "compatibility.md"


def test_committed_page_is_the_handler_tables() -> None:
    assert PAGE.read_text() == page(HANDLERS), (
        "write it anew: python -m barnabas.gateway.parity.compatibility > docs/compatibility.md"
    )


def test_every_api_of_kafka_is_on_the_page_once() -> None:
    rows = [line.split("|")[1].strip() for line in page(HANDLERS).splitlines() if line.startswith("| ")]
    keys = [int(key) for key in rows if key.isdigit()]
    assert sorted(keys) == sorted(KAFKA_VERSIONS.keys() | HANDLERS.keys())


def test_served_versions_have_schemas() -> None:
    for key, handler in HANDLERS.items():
        low, high = version_range(key)
        assert low <= handler.versions[0] <= handler.versions[1] <= high


async def test_api_versions_shows_the_table() -> None:
    answer = await Gateway().ask(18, 4, {"client_software_name": "test", "client_software_version": "1"})
    shown = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    # Telemetry is shown where metrics are exported: see test_telemetry_requests.py.
    served = {key: handler.versions for key, handler in HANDLERS.items() if handler.advertised_when is None}
    # Produce is shown from 0: librdkafka decides on compression from it (KAFKA-18659).
    assert shown == {**served, 0: (0, 13)}
