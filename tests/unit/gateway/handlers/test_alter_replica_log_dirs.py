"""AlterReplicaLogDirs: to the node that the client means, and what the nodes say, put together."""

from __future__ import annotations

from typing import Any

import pytest
from gateway_harness import ONE_BROKER_LISTENER, Gateway

from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import Unreachable
from barnabas.messages import storage_pb2 as pb

ALTER_REPLICA_LOG_DIRS = 34


def wanted(path: str, topic: str, *partitions: int) -> dict[str, Any]:
    return {"path": path, "topics": [{"name": topic, "partitions": list(partitions)}]}


def answering(gateway: Gateway, node_id: int, *codes: ErrorCode | int) -> Any:
    """The node has these codes for the replicas of each request, in order."""
    link = gateway.node(node_id)
    link.answers["AlterReplicaLogDirs"] = lambda message: pb.AlterReplicaLogDirsResponse(
        error_codes=[int(code) for code in codes][: len(message.replicas)]
    )
    return link


async def ask(gateway: Gateway, *dirs: dict[str, Any], version: int = 2) -> dict[tuple[str, int], int]:
    answer = await gateway.ask(ALTER_REPLICA_LOG_DIRS, version, {"dirs": list(dirs)})
    return {
        (topic.topic_name, row.partition_index): row.error_code
        for topic in answer.results
        for row in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
async def test_the_node_that_the_client_means_is_asked(version: int) -> None:
    gateway = Gateway()
    first = answering(gateway, 1, 0, ErrorCode.log_dir_not_found, 0)
    second = answering(gateway, 2)
    codes = await ask(gateway, wanted("/a", "orders", 0, 1), wanted("/b", "payments", 0), version=version)
    assert codes == {("orders", 0): 0, ("orders", 1): 57, ("payments", 0): 0}
    ((_, message, _),) = first.calls
    assert [(item.topic, item.partition, item.path) for item in message.replicas] == [
        ("orders", 0, "/a"),
        ("orders", 1, "/a"),
        ("payments", 0, "/b"),
    ]
    assert second.calls == []


async def test_of_a_partition_that_is_named_twice_the_last_directory_counts() -> None:
    gateway = Gateway()
    link = answering(gateway, 1, 0)
    assert await ask(gateway, wanted("/a", "orders", 0), wanted("/b", "orders", 0)) == {("orders", 0): 0}
    ((_, message, _),) = link.calls
    assert [item.path for item in message.replicas] == ["/b"]


async def test_nothing_is_asked_for() -> None:
    gateway = Gateway()
    answering(gateway, 1)
    assert await ask(gateway) == {}


async def test_what_the_node_has_not_heard_of_yet_is_to_come() -> None:
    gateway = Gateway()
    unknown = ErrorCode.unknown_topic_or_partition
    answering(gateway, 1, unknown, unknown, unknown)
    codes = await ask(gateway, wanted("/a", "orders", 0, 99), wanted("/a", "nobody", 0))
    assert codes == {
        ("orders", 0): ErrorCode.replica_not_available,
        ("orders", 99): unknown,
        ("nobody", 0): unknown,
    }


async def test_a_node_that_is_away() -> None:
    gateway = Gateway()

    def fail(_: Any) -> Any:
        raise Unreachable("gone")

    gateway.node(1).answers["AlterReplicaLogDirs"] = fail
    assert await ask(gateway, wanted("/a", "orders", 0)) == {("orders", 0): ErrorCode.request_timed_out}


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (0, 0, 0),
        (0, 57, 0),  # only one has the directory
        (9, 0, 0),  # only one has the replica
        (0, 56, 56),
        (39, 9, 39),
        (9, 57, 9),
        (57, 57, 57),
        (3, 3, 9),  # the gateway knows the partition
    ],
)
async def test_where_one_broker_stands_for_all_nodes_each_moves_its_own(
    one: int, other: int, told: int
) -> None:
    gateway = Gateway(listener=ONE_BROKER_LISTENER)
    links = [answering(gateway, 1, one), answering(gateway, 2, other)]
    assert await ask(gateway, wanted("/a", "orders", 0)) == {("orders", 0): told}
    assert [len(link.calls) for link in links] == [1, 1]
