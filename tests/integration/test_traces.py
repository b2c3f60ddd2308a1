"""One request is one trace, from the gateway to wherever it goes; clients send no trace context of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from otlp_traces import OtlpTraces
from running_services import loose_cluster
from test_seen_from_outside import make_traffic

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtlpTraces]:
    """The spans of a topic made, a hundred records in, and out again through a group that commits."""
    with OtlpTraces() as collector, loose_cluster(tmp_path_factory.mktemp("traced")) as loose:
        loose.start(
            environment={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        )
        loose.wait_ready()
        make_traffic(loose.bootstrap, "traced")
        yield collector


@pytest.mark.parametrize(
    "chain",
    [
        ("gateway.produce", "storage.append"),
        ("gateway.fetch", "storage.fetch"),
        ("gateway.list_offsets", "storage.list_offsets"),
        ("gateway.create_topics", "controller.create_topics"),
        ("gateway.join_group", "coordinator.join_group"),
        ("gateway.sync_group", "coordinator.sync_group", "storage.append"),
        ("gateway.offset_commit", "coordinator.offset_commit", "storage.append"),
        ("gateway.leave_group", "coordinator.leave_group"),
    ],
    ids=lambda chain: chain[0],
)
def test_a_request_is_one_trace(traces: OtlpTraces, chain: tuple[str, ...]) -> None:
    for span in traces.wait_for_chain(*chain):
        assert span.service == f"barnabas-{span.name.partition('.')[0]}"
