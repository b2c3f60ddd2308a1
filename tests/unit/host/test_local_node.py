"""The storage node of the same process, as its gateway sees it: requests, results, errors, deadlines."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.host.local_link import LocalAppends
from barnabas.host.local_node import LocalNode
from barnabas.links.errors import DeadlinePassed, OutcomeUnknown, Refusal, Refused, Unreachable
from barnabas.links.local_storage import Placed
from barnabas.links.storage_messages import AppendBatches
from barnabas.log.prepared_batches import AppendInfo
from barnabas.messages.storage_pb2 import (
    AppendFrame,
    AppendRequest,
    AppendResult,
    AppendTransaction,
    CoordinatorIdentity,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PartitionAppend,
    PartitionAppendResult,
)
from barnabas.rpc.append_frames import encode_append_frame
from barnabas.storage.fetching.delayed_fetch import FetchPurgatory
from barnabas.storage.handlers.fetch import FetchHandler, UnansweredFetches

TOPIC = b"t" * 16


class FakeAppends:
    """The node's append handler: keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.taken: list[tuple[Any, Any]] = []

    def handle(self, request: Any, answer: Any) -> None:
        self.taken.append((request, answer))

    def answer(self, number: int = 0, base_offset: int = 7) -> None:
        request, answer = self.taken[number]
        result = PartitionAppendResult(base_offset=base_offset)
        answer(AppendResult(correlation_id=request.correlation_id, partitions=[result]))


class FakeServicer:
    """A storage node without a log."""

    def __init__(self) -> None:
        self.appends = FakeAppends()
        reader: Any = SimpleNamespace(nothing_new=None, not_read_in_time=None)
        counts: Any = SimpleNamespace(read_times=None)
        self.fetches = FetchHandler(reader, FetchPurgatory(), counts)
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.failure: Exception | None = None
        self.hand_overs = 0

    async def hand_over(self) -> None:
        self.hand_overs += 1

    async def ListOffsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        self.asked.set()
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return ListOffsetsResponse()


class FakeReplica:
    def __init__(self, info: AppendInfo | None) -> None:
        self.info = info
        self.appending = self

    def append_at_once(self, records: bytes, acks: int) -> AppendInfo | None:
        return self.info


class FakeVerification:
    def __init__(self) -> None:
        self.asked: list[tuple[FakeReplica, bytes, int, AppendTransaction]] = []

    def append_at_once(
        self, replica: FakeReplica, records: bytes, acks: int, transaction: AppendTransaction
    ) -> AppendInfo | None:
        self.asked.append((replica, records, acks, transaction))
        return AppendInfo(7, 8, -1, 0, False)


def batches(records: bytes = b"batch") -> AppendBatches:
    request = AppendBatches(AppendRequest(acks=-1, timeout_ms=500))
    request.add(PartitionAppend(topic_id=TOPIC, partition=3, leader_epoch=-1), records)
    return request


def serving(node: LocalNode, servicer: FakeServicer, replica: FakeReplica | None = None) -> Any:
    replicas: Any = SimpleNamespace(find=lambda topic, index: replica)
    any_servicer: Any = servicer
    return node.serve(any_servicer, replicas, servicer.hand_over)


async def test_a_node_that_does_not_serve_yet_cannot_be_reached() -> None:
    node = LocalNode(1)
    with pytest.raises(Unreachable):
        await node.appends.send(batches())
    with pytest.raises(Unreachable):
        await node.fetches.send(FetchRequest())
    with pytest.raises(Unreachable):
        await node.ListOffsets(ListOffsetsRequest())
    assert node.append_at_once(TOPIC, 0, b"batch", -1) is None
    assert node.here.write_at_once(CoordinatorIdentity(), PartitionAppend(topic_id=TOPIC)) is None


async def test_others_come_to_lead_while_the_node_serves_and_not_after() -> None:
    node, servicer = LocalNode(1), FakeServicer()
    await node.hand_over()
    async with serving(node, servicer):
        await node.hand_over()
    await node.hand_over()
    assert servicer.hand_overs == 1


async def test_batches_are_handed_over_as_they_are_and_results_come_back() -> None:
    node, servicer = LocalNode(1), FakeServicer()
    records = b"the very same bytes"
    async with serving(node, servicer):
        future = node.appends.send(batches(records), len(records), 1.5)
        ((request, _),) = servicer.appends.taken
        (item,) = request.partitions
        assert (request.acks, request.timeout_ms) == (-1, 500)
        assert (item.topic_id, item.partition, item.leader_epoch) == (TOPIC, 3, -1)
        assert item.records is records
        assert not request.HasField("coordinator")
        assert not request.HasField("transaction")
        assert not future.done()
        servicer.appends.answer(base_offset=40)
        assert (await future).partitions[0].base_offset == 40
        servicer.appends.answer()  # a second answer changes nothing


async def test_the_handler_hears_of_a_batch_all_that_it_does_of_one_from_elsewhere() -> None:
    node, servicer = LocalNode(1), FakeServicer()
    told = AppendBatches(AppendRequest(acks=1, timeout_ms=500))
    for is_behind in (False, True):
        item = PartitionAppend(topic_id=TOPIC, partition=3, leader_epoch=-1, behind_refused=is_behind)
        told.add(item, b"batch")
    async with serving(node, servicer):
        result = node.appends.send(told)
        request, _ = servicer.appends.taken[0]
        assert [each.behind_refused for each in request.partitions] == [False, True]
        of_a_coordinator = {"coordinator_epoch", "expected_log_end", "marker_transaction_version"}
        for field in set(PartitionAppend.DESCRIPTOR.fields_by_name) - of_a_coordinator:
            assert hasattr(request.partitions[0], field), f"the handler may ask for {field}"
    with pytest.raises(OutcomeUnknown):
        await result


async def test_the_handler_hears_of_the_transaction() -> None:
    node, servicer = LocalNode(1), FakeServicer()
    transaction = AppendTransaction(transactional_id="t", adds_partitions=True)
    told = AppendBatches(AppendRequest(acks=-1, timeout_ms=500, transaction=transaction))
    told.add(PartitionAppend(topic_id=TOPIC, partition=3, leader_epoch=-1), b"batch")
    async with serving(node, servicer):
        result = node.appends.send(told)
        request, _ = servicer.appends.taken[0]
        assert request.HasField("transaction")
        assert request.transaction == transaction
        assert not request.HasField("coordinator")
    with pytest.raises(OutcomeUnknown):
        await result


async def test_what_waits_when_the_node_ends_has_an_unknown_outcome() -> None:
    node, servicer = LocalNode(1), FakeServicer()
    async with serving(node, servicer):
        future = node.appends.send(batches())
    assert future.done(), "else whoever waits would wait for ever"
    with pytest.raises(OutcomeUnknown):
        await future
    with pytest.raises(Unreachable):
        await node.appends.send(batches())
    servicer.appends.answer()  # too late, and nobody minds


async def test_a_node_whose_waiting_fetches_are_served_no_longer_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody would notice otherwise: every fetch that waits would be answered when its time is over, with nothing."""

    async def fail(_: UnansweredFetches) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(UnansweredFetches, "serve_woken", fail)
    node, servicer = LocalNode(1), FakeServicer()

    async def serve_for_a_minute() -> None:
        async with serving(node, servicer):
            await asyncio.sleep(60)

    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        await serve_for_a_minute()
    with pytest.raises(Unreachable):
        await node.fetches.send(FetchRequest())


async def test_the_handler_is_given_all_that_a_gateway_says_of_a_batch() -> None:
    """Else what comes over the network would be another request than what is handed over here."""
    appends = LocalAppends()
    handler: Any = FakeAppends()
    appends.open(handler)
    made = batches()
    made.partitions[0].behind_refused = True
    appends.send(made)
    (request, _) = handler.taken[0]
    (item,) = request.partitions
    of_coordinators = {"coordinator_epoch", "expected_log_end", "marker_transaction_version"}
    for name in set(PartitionAppend.DESCRIPTOR.fields_by_name) - of_coordinators - {"records"}:
        assert getattr(item, name) == getattr(made.partitions[0], name), name
    appends.close()


async def test_what_a_coordinator_writes_is_handed_over_as_it_is() -> None:
    node, servicer = LocalNode(1, reads_for_clients=False), FakeServicer()
    identity = CoordinatorIdentity(coordinator_id="c", incarnation_id="i")
    item = PartitionAppend(
        topic_id=TOPIC, partition=3, coordinator_epoch=4, expected_log_end=9, records=b"batch"
    )
    told = AppendRequest(acks=-1, timeout_ms=500, coordinator=identity, partitions=[item])
    async with serving(node, servicer):
        result = node.appends.send(told)
        ((request, _),) = servicer.appends.taken
        assert request is told
        servicer.appends.answer(base_offset=9)
        assert (await result).partitions[0].base_offset == 9


async def test_markers_are_handed_over_as_a_node_elsewhere_reads_them() -> None:
    node, servicer = LocalNode(1, reads_for_clients=False), FakeServicer()
    identity = CoordinatorIdentity(coordinator_id="c", incarnation_id="i")
    told = AppendBatches(AppendRequest(acks=-1, timeout_ms=500, coordinator=identity))
    for partition in (3, 4):
        item = PartitionAppend(
            topic_id=TOPIC, partition=partition, leader_epoch=2, marker_transaction_version=2
        )
        told.add(item, memoryview(b"marker of %d" % partition))
    async with serving(node, servicer):
        result = node.appends.send(told)
        ((request, _),) = servicer.appends.taken
        (elsewhere,) = AppendFrame.FromString(encode_append_frame([told])).requests
        assert request == elsewhere
        servicer.appends.answer()
        await result


async def test_a_request_is_over_when_its_time_is() -> None:
    """The shared timer of deadlines is called by hand: no time passes."""
    appends = LocalAppends()
    handler: Any = FakeAppends()
    appends.open(handler)
    first = appends.send(batches(), 5, 1.0)
    second = appends.send(batches(), 5, 1.0)
    handler.answer(1)
    appends._on_passed([handler.taken[0][0].correlation_id])
    with pytest.raises(DeadlinePassed):
        await first
    assert (await second).partitions[0].base_offset == 7
    handler.answer(0)  # it comes after all, and is dropped
    appends.close()


async def test_a_look_up_is_late_as_over_the_network() -> None:
    node, servicer = LocalNode(1), FakeServicer()
    async with serving(node, servicer):
        with pytest.raises(DeadlinePassed):
            await node.ListOffsets(ListOffsetsRequest(), timeout=0)
        servicer.may_answer.set()
        assert await node.ListOffsets(ListOffsetsRequest(), timeout=60) == ListOffsetsResponse()


@pytest.mark.parametrize(
    ("failure", "known"),
    [
        (Refused(Refusal.NEVER_ACCEPTED, "too many"), Refused),
        (KeyError("a fault of ours"), OutcomeUnknown),
        (TimeoutError("of something inside"), OutcomeUnknown),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
async def test_a_call_that_fails_does_so_as_one_to_a_node_elsewhere(
    failure: Exception, known: type[Exception]
) -> None:
    """Whoever asks knows of no other errors."""
    node, servicer = LocalNode(1), FakeServicer()
    servicer.failure = failure
    servicer.may_answer.set()
    async with serving(node, servicer):
        with pytest.raises(known) as raised:
            await node.ListOffsets(ListOffsetsRequest(), timeout=60)
    assert type(raised.value) is known


@pytest.mark.parametrize(
    ("replica", "placed"),
    [
        (None, None),
        (FakeReplica(None), None),
        (FakeReplica(AppendInfo(5, 6, 99, 1, False)), Placed(5, 99, 1)),
    ],
    ids=["not here", "not at once", "appended"],
)
async def test_an_append_at_once(replica: FakeReplica | None, placed: Placed | None) -> None:
    node, servicer = LocalNode(1), FakeServicer()
    async with serving(node, servicer, replica):
        assert node.append_at_once(TOPIC, 0, b"batch", -1) == placed


async def test_an_append_at_once_of_a_transaction() -> None:
    node, servicer, replica = LocalNode(1), FakeServicer(), FakeReplica(None)
    verification = FakeVerification()
    servicer.appends.verification = verification
    transaction = AppendTransaction(transactional_id="tx")
    async with serving(node, servicer, replica):
        assert node.append_at_once(TOPIC, 0, b"batch", -1, transaction) == Placed(7, -1, 0)
    assert verification.asked == [(replica, b"batch", -1, transaction)]
    servicer.appends.is_stopped = True
    async with serving(node, servicer, FakeReplica(AppendInfo(5, 6, 99, 1, False))):
        assert node.append_at_once(TOPIC, 0, b"batch", -1) is None
        assert node.append_at_once(TOPIC, 0, b"batch", -1, transaction) is None
