"""A storage node that does nothing for a moment, while very many clients commit offsets."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from raw_client import WAIT_SECONDS, RawConnection, Topic, connections

pytestmark = [pytest.mark.integration, pytest.mark.alone]

OFFSET_COMMIT, OFFSET_FETCH, VERSION = 8, 9, 7
FIND_COORDINATOR = 10
CLIENTS = 1_000
"""More commits than an append may have batches: the kernel takes 1,024 pieces at once, two a batch."""
STALL_SECONDS = 1.2
"""Shorter than the time after which a silent node is taken for dead."""


def commit_of(topic: Topic, offset: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
    return {
        "group_id": "crowd",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic.name, "partitions": [{**partition, "committed_metadata": ""}]}],
    }


def code_of(answer: Any) -> int:
    code: int = answer.topics[0].partitions[0].error_code
    return code


def loads(metrics: str) -> list[str]:
    """How often partitions of __consumer_offsets were loaded, and had to be given up."""
    names = "barnabas_coordinator_partition_load_seconds_count|barnabas_coordinator_partition_failures_total"
    return re.findall(rf"^(?:{names}).*$", metrics, re.MULTILINE)


def test_a_thousand_commits_wait_for_a_stalled_node(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster()
    port = int(cluster.bootstrap.rpartition(":")[2])
    topic = Topic(port)
    with RawConnection(port) as first, connections(port, CLIENTS) as crowd:
        # As clients do: it creates __consumer_offsets.
        first.ask(FIND_COORDINATOR, 3, {"key": "crowd", "key_type": 0})
        deadline = time.monotonic() + WAIT_SECONDS
        while code_of(first.ask(OFFSET_COMMIT, VERSION, commit_of(topic, 0))) != 0:
            assert time.monotonic() < deadline, "nothing can be committed"
        cluster.wait_ready()
        before = loads(cluster.metrics())
        assert before
        cluster.pause("storage-1")
        try:
            asked = [
                connection.post(OFFSET_COMMIT, VERSION, commit_of(topic, offset))
                for offset, connection in enumerate(crowd, start=1)
            ]
            time.sleep(STALL_SECONDS)
        finally:
            cluster.resume("storage-1")
        codes = Counter(
            code_of(connection.answer(OFFSET_COMMIT, VERSION, correlation_id))
            for connection, correlation_id in zip(crowd, asked, strict=True)
        )
        assert codes == {0: CLIENTS}
        assert loads(cluster.metrics()) == before
        asked_for = {"name": topic.name, "partition_indexes": [0]}
        body = {"group_id": "crowd", "topics": [asked_for], "require_stable": True}
        (fetched,) = first.ask(OFFSET_FETCH, VERSION, body).topics
        assert fetched.partitions[0].committed_offset in range(1, CLIENTS + 1)
