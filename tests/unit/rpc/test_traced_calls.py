"""The names of calls' spans."""

from __future__ import annotations

import pytest

from barnabas.rpc.traced_calls import span_name


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("/barnabas.rpc.v1.Storage/ListOffsets", "storage.list_offsets"),
        ("/barnabas.rpc.v1.GroupCoordinator/JoinGroup", "coordinator.join_group"),
        ("/barnabas.rpc.v1.Controller/CreateTopics", "controller.create_topics"),
    ],
)
def test_spans_of_calls_have_readable_names(method: str, name: str) -> None:
    assert span_name(method) == name
