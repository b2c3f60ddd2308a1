"""Markers that an administrator writes into transactions that are open, by the rules of partitions' logs: what he is
told, and that the transaction's own coordinator goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from log_in_memory import LogInMemory
from transaction_node import (
    FIRST_PRODUCER,
    NEVER_MS,
    FakePost,
    TransactionNode,
    a_world,
    running,
    settle,
    until_loaded,
)

from barnabas.coordinator.transactions.core.transaction import TopicPartition
from barnabas.coordinator.transactions.markers.marker import Marker
from barnabas.coordinator.transactions.markers.places import Place
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.producers.producer_state import ProducerState
from barnabas.messages import transactions_pb2 as pb
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC
from barnabas.records.batch import parse_header
from barnabas.records.control import decode_marker
from barnabas.records.record import encode_batch

EPOCH = 3
"""The producer's."""
OWNED_SINCE = 4
"""The coordinator's epoch."""


class Logs(FakePost):
    """What partitions know of producers, which decides what a marker is answered with."""

    def __init__(self) -> None:
        super().__init__()
        self.states: defaultdict[str, ProducerState] = defaultdict(ProducerState)
        self.answers: list[tuple[str, str]] = []
        """Partition, code: of all markers, in their order."""

    async def send(
        self, place: Place, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> list[ErrorCode]:
        await super().send(place, marker, partitions)
        names = [f"{topic}-{index}" for topic, index in partitions]
        codes = [self._append(self.states[name], marker) for name in names]
        self.answers += [(name, code.name) for name, code in zip(names, codes, strict=True)]
        return codes

    def send_at_once(
        self, place: Place, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartition]:
        told = []
        for each in super().send_at_once(place, marker, partitions):
            name = f"{each.topic}-{each.partition}"
            code = self._append(self.states[name], marker)
            if code is ErrorCode.none:
                self.answers.append((name, code.name))
                told.append(each)
        return told

    @staticmethod
    def _append(state: ProducerState, marker: Marker) -> ErrorCode:
        batch = marker.as_batch(0)
        header, decoded = parse_header(batch), decode_marker(batch)
        assert decoded is not None
        try:
            state.check_marker(header, decoded, marker.transaction_version)
        except KafkaError as refused:
            return refused.code
        state.replay_marker(header, decoded, state.end_offset)
        return ErrorCode.none

    def produce(self, name: str, epoch: int = EPOCH) -> ErrorCode:
        """The client writes a batch of its transaction to a partition."""
        batch = encode_batch(
            [(0, b"k", b"v", ())], producer_id=FIRST_PRODUCER, producer_epoch=epoch, transactional=True
        )
        header, state = parse_header(batch), self.states[name]
        try:
            state.check(header, check_sequence=False)
        except KafkaError as refused:
            return refused.code
        state.replay(header, state.end_offset, 0)
        return ErrorCode.none

    def is_open(self, name: str) -> bool:
        entry = self.states[name].producers.get(FIRST_PRODUCER)
        return entry is not None and entry.current_transaction_first_offset >= 0


class Outside(NamedTuple):
    """The administrator's marker."""

    producer_epoch: int
    version: int = 0
    coordinator_epoch: int = OWNED_SINCE
    committed: bool = False


class Cluster:
    """A coordinator, its producer, and the logs that both write to; `version` is whose rules its producer keeps."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.log = LogInMemory()
        self.world = a_world(version=version)
        self.logs = Logs()
        self.own_since(OWNED_SINCE)
        self.node = TransactionNode("a", self.world, self.log, post=self.logs)

    def own_since(self, coordinator_epoch: int) -> None:
        self.log.epochs[0] = coordinator_epoch
        self.world.own(TRANSACTION_STATE_TOPIC, "a", coordinator_epoch)

    async def begin(self) -> None:
        """The producer has come to EPOCH, and has a transaction open in t-0 and t-1."""
        for _ in range(EPOCH + 1):
            await self.node.init()
        assert await self.node.add("t-0", "t-1", epoch=EPOCH, version=self.version) == "none,none"
        assert [self.logs.produce(name) for name in ("t-0", "t-1")] == [ErrorCode.none] * 2

    async def write(self, outside: Outside) -> str:
        """What the administrator is told who writes it to t-0."""
        marker = pb.TransactionMarker(
            producer_id=FIRST_PRODUCER,
            producer_epoch=outside.producer_epoch,
            committed=outside.committed,
            coordinator_epoch=outside.coordinator_epoch,
            transaction_version=outside.version,
            topics=[pb.TransactionTopic(name="t", partitions=[0])],
        )
        answer = await self.node.calls.WriteTxnMarkers(pb.WriteTxnMarkersRequest(markers=[marker]))
        ((code,),) = [each.error_codes for each in answer.markers]
        return ErrorCode(code).name

    async def end(self, *, committed: bool = True) -> str:
        """What the producer is told who ends its transaction; with all that follows of it."""
        told = await self.node.end(epoch=EPOCH, committed=committed, version=self.version)
        await settle()
        return told


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    ("version", "outside", "told", "coordinators"),
    [
        # Who does what kafka-transactions does: epochs as DescribeProducers tells them, version 0.
        (1, Outside(EPOCH), "none", "none"),
        (2, Outside(EPOCH), "none", "none"),
        (1, Outside(EPOCH, committed=True), "none", "none"),
        # What a partition knows better is refused, and nothing has happened.
        (1, Outside(EPOCH - 1), "invalid_producer_epoch", "none"),
        (2, Outside(EPOCH - 1), "invalid_producer_epoch", "none"),
        (2, Outside(EPOCH, version=2), "invalid_producer_epoch", "none"),
        # An epoch that the producer has not: by version 2 it is the coordinator's own, as if sent twice.
        (2, Outside(EPOCH + 1), "none", "none"),
        (2, Outside(EPOCH + 1, version=2), "none", "none"),
        (1, Outside(EPOCH + 1), "none", "invalid_producer_epoch"),
        (2, Outside(EPOCH + 2), "none", "invalid_producer_epoch"),
        (2, Outside(EPOCH + 2, version=2), "none", "invalid_producer_epoch"),
        (1, Outside(32_767), "none", "invalid_producer_epoch"),
        # In the name of a coordinator of long ago, while no marker has told the partition of a newer one.
        (1, Outside(EPOCH, coordinator_epoch=0), "none", "none"),
        (2, Outside(EPOCH, coordinator_epoch=0), "none", "none"),
    ],
)
async def test_the_producers_next_end_is_taken_and_completed(
    version: int, outside: Outside, told: str, coordinators: str, committed: bool
) -> None:
    cluster = Cluster(version)
    node, logs = cluster.node, cluster.logs
    async with running(node):
        await cluster.begin()
        assert await cluster.write(outside) == told
        assert logs.is_open("t-0") is (told != "none")
        assert await node.describe() == "Ongoing t-0 t-1", "its coordinator has not heard of it"
        next_epoch = f"{FIRST_PRODUCER}/{EPOCH + 1}" if version == 2 else "-1/-1"
        assert await cluster.end(committed=committed) == next_epoch
        assert await node.describe() == ("CompleteCommit" if committed else "CompleteAbort")
        assert sorted(logs.answers[1:]) == [("t-0", coordinators), ("t-1", "none")]
        assert not logs.is_open("t-0")
        assert not logs.is_open("t-1")
        # Nor is the id stuck: who comes next gets an epoch, and a transaction.
        _, epoch = (await node.init()).split("/")
        assert await node.add("t-1", epoch=int(epoch), version=version) == "none"


@pytest.mark.parametrize("version", [1, 2])
async def test_what_is_written_after_the_marker_is_part_of_the_transaction(version: int) -> None:
    """As in Kafka: for the coordinator the partition still is."""
    cluster = Cluster(version)
    node, logs = cluster.node, cluster.logs
    async with running(node):
        await cluster.begin()
        assert await cluster.write(Outside(EPOCH)) == "none"
        assert await node.add("t-0", epoch=EPOCH, verify=True) == "none"
        assert logs.produce("t-0") is ErrorCode.none
        await cluster.end()
        assert sorted(logs.answers[1:]) == [("t-0", "none"), ("t-1", "none")]
        assert not logs.is_open("t-0")


async def test_in_the_name_of_a_coordinator_that_was_followed_it_is_refused() -> None:
    cluster = Cluster(2)
    logs = cluster.logs
    async with running(cluster.node):
        await cluster.begin()
        await cluster.end()
        assert logs.produce("t-0", EPOCH + 1) is ErrorCode.none
        former = Outside(EPOCH + 1, coordinator_epoch=OWNED_SINCE - 1)
        assert await cluster.write(former) == "transaction_coordinator_fenced"
        assert logs.is_open("t-0")
        assert await cluster.write(Outside(EPOCH + 1)) == "none", "which DescribeProducers tells"
        assert not logs.is_open("t-0")


@pytest.mark.parametrize("version", [1, 2])
async def test_in_the_name_of_a_coordinator_to_come_it_keeps_out_the_one_of_now(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka. The transaction waits for that coordinator: there may be records again that only a marker ends."""
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_GIVEN_UP_MS", NEVER_MS)
    cluster = Cluster(version)
    node, logs = cluster.node, cluster.logs
    async with running(node):
        await cluster.begin()
        assert await cluster.write(Outside(EPOCH, coordinator_epoch=OWNED_SINCE + 1)) == "none"
        assert logs.produce("t-0") is ErrorCode.none
        await cluster.end()
        assert ("t-0", "transaction_coordinator_fenced") in logs.answers
        assert (await node.describe()).startswith("PrepareCommit")
        cluster.own_since(OWNED_SINCE + 1)
        await until_loaded(node)
        await settle()
        assert await node.describe() == "CompleteCommit"
        assert not logs.is_open("t-0")
