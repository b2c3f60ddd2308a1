"""A controller that ends between any two transactions leaves all of a decision or nothing, whatever its kind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from barnabas.controller import whole_decisions
from barnabas.controller.active import load_image
from barnabas.controller.core.client_quotas import alter_client_quotas
from barnabas.controller.core.configs import alter_configs
from barnabas.controller.core.coordinators import register_coordinator, remove_coordinator
from barnabas.controller.core.decision import ClusterDefaults, Decision, partition_entry
from barnabas.controller.core.deletion import delete_topics
from barnabas.controller.core.features import finalize_release_levels
from barnabas.controller.core.leader_epochs import raise_leader_epochs
from barnabas.controller.core.nodes import fence_node, register_node
from barnabas.controller.core.partitions import create_partitions
from barnabas.controller.core.producer_ids import allocate_producer_ids
from barnabas.controller.core.terms import begin_term
from barnabas.controller.core.topics import create_topics
from barnabas.controller.election import Election, LeadershipLost
from barnabas.controller.store.protocol import Compare, Operation, Put, Store, StoreError
from barnabas.controller.store.sqlite import SqliteStore
from barnabas.controller.whole_decisions import DECISION_PREFIX
from barnabas.controller.writer import Decide, MetadataWriter
from barnabas.kernel.threads import SystemThreads
from barnabas.messages import controller_pb2 as pb
from barnabas.messages.controller_pb2 import MetadataDelta
from barnabas.messages.metadata_pb2 import (
    CoordinatorRecord,
    MetadataRecord,
    NodeRecord,
    PartitionRecord,
    QuotaEntityPart,
    TopicRecord,
)
from barnabas.metadata.image import GROUP_METADATA_TOPIC, NO_LEADER, MetadataImage, topic_key

StoreFactory = Callable[[], Awaitable[Store]]

PARTITIONS = 7


class MortalStore:
    """`store` for a process that ends at its transaction number `last`, before it or, if `heard`, after it."""

    def __init__(self, store: Store, last: int, *, heard: bool) -> None:
        self._store = store
        self._last = last
        self._heard = heard
        self.transactions = 0

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int:
        self.transactions += 1
        if self.transactions > self._last or (self.transactions == self._last and not self._heard):
            raise StoreError("the process has ended")
        revision = await self._store.transact(compares, operations)
        if self.transactions == self._last:
            raise StoreError("the process has ended")
        return revision

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def topic(
    name: str, topic_id: bytes, *, internal: bool = False, count: int = PARTITIONS
) -> list[MetadataRecord]:
    partitions = [
        PartitionRecord(
            topic_id=topic_id,
            partition=index,
            leader=1 + index % 2,
            leader_epoch=5,
            replicas=(1, 2),
            isr=(1, 2),
            coordinator_id="ab"[index % 2] if internal else "",
        )
        for index in range(count)
    ]
    record = TopicRecord(name=name, topic_id=topic_id, partition_count=count, internal=internal)
    entries = [partition_entry(partition) for partition in partitions]
    return [*entries, MetadataRecord(key=topic_key(name), topic=record)]


def node(node_id: int, incarnation: str = "first") -> NodeRecord:
    return NodeRecord(node_id=node_id, incarnation_id=incarnation, address=f"n{node_id}")


def coordinator(name: str, incarnation: str = "first") -> CoordinatorRecord:
    return CoordinatorRecord(coordinator_id=name, incarnation_id=incarnation, address=name)


def cluster(partitions: int = PARTITIONS) -> MetadataImage:
    image = MetadataImage()
    for node_id in (1, 2):
        image = image.apply(register_node(image, node(node_id)).records, image.revision + 1)
    for name in "ab":
        image = image.apply(register_coordinator(image, coordinator(name)).records, image.revision + 1)
    records = topic("events", b"e" * 16, count=partitions)
    records += topic("other", b"o" * 16) + topic(GROUP_METADATA_TOPIC, b"g" * 16, internal=True)
    return image.apply(records, image.revision + 1)


def fenced() -> MetadataImage:
    image = cluster()
    for node_id in (2, 1):
        image = image.apply(fence_node(image, node_id).records, image.revision + 1)
    return image


def _create(image: MetadataImage) -> Decision[Any]:
    wanted = [pb.NewTopic(name=name, partition_count=5, replication_factor=1) for name in ("new", "newer")]
    ids = iter((b"1" * 16, b"2" * 16))
    return create_topics(image, pb.CreateTopicsRequest(topics=wanted), ClusterDefaults(), lambda: next(ids))


def _grow(image: MetadataImage) -> Decision[Any]:
    added = [pb.ReplicaAssignment(partition=index, node_ids=[1, 2]) for index in range(6)]
    wanted = pb.NewPartitions(name="events", partition_count=PARTITIONS + 6, assignments=added)
    return create_partitions(image, pb.CreatePartitionsRequest(topics=[wanted]))


def _delete(image: MetadataImage) -> Decision[Any]:
    refs = [pb.TopicRef(name=name) for name in ("events", "other", GROUP_METADATA_TOPIC)]
    return delete_topics(image, pb.DeleteTopicsRequest(topics=refs), now_ms=5)


def _configure(image: MetadataImage) -> Decision[Any]:
    changes = [
        pb.ConfigResourceChange(
            resource_type=2,
            resource_name=name,
            operations=[pb.ConfigOperation(name="retention.ms", operation=0, value="7")],
        )
        for name in ("events", "other", GROUP_METADATA_TOPIC)
    ]
    brokers = [
        pb.ConfigResourceChange(
            resource_type=4,
            resource_name=name,
            operations=[pb.ConfigOperation(name="log.retention.ms", operation=0, value="7")],
        )
        for name in ("", "1", "2")
    ]
    return alter_configs(image, pb.IncrementalAlterConfigsRequest(resources=[*changes, *brokers]))


def _limit(image: MetadataImage) -> Decision[Any]:
    changes = [
        pb.ClientQuotaChange(
            entity=[QuotaEntityPart(type="user", name=f"u{number}")],
            operations=[pb.ClientQuotaOperation(key="producer_byte_rate", value=5.0)],
        )
        for number in range(8)
    ]
    return alter_client_quotas(image, pb.AlterClientQuotasRequest(entries=changes))


def _raise_epochs(image: MetadataImage) -> Decision[Any]:
    seen = [
        pb.SeenLeaderEpoch(topic_id=topic_id, partition=index, leader_epoch=7 + index)
        for topic_id in (b"e" * 16, b"g" * 16)
        for index in range(PARTITIONS)
    ]
    return raise_leader_epochs(
        image, pb.RaiseLeaderEpochsRequest(node_id=1, incarnation_id="first", partitions=seen)
    )


KINDS: dict[str, tuple[Callable[[], MetadataImage], Decide[Any]]] = {
    "create topics": (cluster, _create),
    "delete topics": (cluster, _delete),
    "create partitions": (cluster, _grow),
    "fence a node": (cluster, lambda image: fence_node(image, 1)),
    "a node comes back": (fenced, lambda image: register_node(image, node(1, "second"))),
    "a node restarts": (cluster, lambda image: register_node(image, node(1, "second"))),
    "a coordinator comes": (cluster, lambda image: register_coordinator(image, coordinator("c"))),
    "a coordinator restarts": (cluster, lambda image: register_coordinator(image, coordinator("a", "2nd"))),
    "a coordinator goes": (cluster, lambda image: remove_coordinator(image, "a")),
    "raise leader epochs": (cluster, _raise_epochs),
    "begin a term": (cluster, lambda image: begin_term(image, "a term", 1_700_000_000_000)),
    "alter configs": (cluster, _configure),
    "alter client quotas": (cluster, _limit),
    "finalize features": (cluster, finalize_release_levels),
    "allocate producer ids": (cluster, allocate_producer_ids),
}


async def stored(store: Store, image: MetadataImage) -> None:
    records = list(image.records.values())
    for start in range(0, len(records), 100):
        puts = [Put(record.key, record.SerializeToString()) for record in records[start : start + 100]]
        await store.transact([], puts)


async def run_term(
    store: Store, decide: Decide[Any] | None
) -> tuple[MetadataImage, list[MetadataDelta], bool]:
    """One term that decides, and what it leaves: (image it loaded, deltas it published, whether it answered)."""
    leadership = await Election(store, "here", 60_000, time.monotonic, "one").campaign()
    image = await load_image(store, leadership)
    published: list[MetadataDelta] = []
    writer = MetadataWriter(store, leadership, image, published.append)
    running = asyncio.create_task(writer.run())
    answered = False
    try:
        if decide is not None:
            with suppress(LeadershipLost):
                await writer.submit(decide)
                answered = True
            # What follows the answer ends before the next request is served.
            with suppress(LeadershipLost):
                await writer.submit(lambda _: Decision((), None))
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, LeadershipLost):
            await running
        await store.revoke_lease(leadership.lease.lease_id)  # as it ends with the process
    return image, published, answered


def check_invariants(image: MetadataImage) -> None:
    live = {each.node_id for each in image.live_nodes()}
    for known in image.topics.values():
        for index, partition in enumerate(known.partitions):
            assert partition.partition == index
            assert partition.leader in live or (
                partition.leader == NO_LEADER and not live.intersection(partition.isr)
            )
            assert not known.internal or partition.coordinator_id in image.coordinators


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("kind", KINDS)
async def test_killed_between_any_two_transactions(
    kind: str, heard: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_decisions, "TRANSACTION_OPERATIONS_MAX", 3)
    monkeypatch.setattr(whole_decisions, "PART_BYTES_MAX", 300)
    make_base, decide = KINDS[kind]
    last = 0
    ended = False
    while not ended:
        last += 1
        store = SqliteStore(tmp_path / f"{last}.db", SystemThreads())
        await store.open()
        try:
            await stored(store, make_base())
            mortal = MortalStore(store, last + 1, heard=heard)  # the first transaction is the election's
            before, published, answered = await run_term(mortal, decide)  # type: ignore[arg-type]
            ended = mortal.transactions <= last
            expected = before.apply(decide(before).records, before.revision + 1)
            assert expected.records != before.records, "the decision changes something"
            found, _, _ = await run_term(store, None)
            assert found.records in (before.records, expected.records)
            check_invariants(found)
            if answered or published:
                assert found.records == expected.records
            for delta in published:
                assert delta.revision <= found.revision
                assert before.apply(delta.records, delta.revision).records == expected.records
            assert not (await store.snapshot(DECISION_PREFIX)).entries
            again, _, _ = await run_term(store, None)
            assert again.records == found.records
        finally:
            await store.close()
    assert answered
    assert last >= 2, "a kill was tried"


async def test_a_fenced_node_leads_nothing_whenever_the_controller_ends(open_store: StoreFactory) -> None:
    """With the store's own limits: 2,500 partitions, more than one transaction takes."""
    store = await open_store()
    await stored(store, cluster(partitions=2500))
    mortal = MortalStore(store, 5, heard=True)
    await run_term(mortal, lambda image: fence_node(image, 1))  # type: ignore[arg-type]
    assert mortal.transactions > 4, "it ended in the midst of the decision"
    found, _, _ = await run_term(store, None)
    assert found.nodes[1].fenced
    assert {partition.leader for partition in found.topics["events"].partitions} == {2}


async def test_a_decision_that_was_not_decided_is_dropped(store: Store) -> None:
    await stored(store, cluster())
    await store.transact([], [Put(f"{DECISION_PREFIX}parts/00000001", b"\xff not even a message")])
    found, _, _ = await run_term(store, None)
    assert found.records == cluster().records
    assert not (await store.snapshot(DECISION_PREFIX)).entries
