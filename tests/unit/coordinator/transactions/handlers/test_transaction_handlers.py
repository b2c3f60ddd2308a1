"""What a coordinator of transactions answers: its own checks, those whom it is not for, and logs that take nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from log_in_memory import LogInMemory
from transaction_node import (
    COMMITTED,
    TransactionNode,
    World,
    a_world,
    an_addition,
    running,
    settle,
    states,
)

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.transactions.core.transaction import NO_TIMEOUT_MS, TopicPartition
from barnabas.coordinator.transactions.markers.marker import Marker
from barnabas.coordinator.transactions.markers.places import Place
from barnabas.kernel.errors import ErrorCode
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages import transactions_pb2 as pb
from barnabas.metadata.group_partition import partition_for_group
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC


@pytest.fixture
def world() -> World:
    return a_world()


@pytest.fixture(autouse=True)
def _retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOAD_RETRY_MS_MIN", "APPEND_RETRY_MS_MIN", "APPEND_RETRY_MS_MAX"):
        monkeypatch.setattr(f"barnabas.coordinator.limits.{name}", 0)


def an_init(**fields: object) -> pb.InitProducerIdRequest:
    usual = {
        "transactional_id": "a",
        "transaction_timeout_ms": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    return pb.InitProducerIdRequest(**(usual | fields))  # type: ignore[arg-type]


# -- whose it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("owner", "code"), [("", "coordinator_not_available"), ("b", "not_coordinator")])
async def test_whoever_is_not_asked_rightly_says_so(log: LogInMemory, owner: str, code: str) -> None:
    world = a_world(owner=owner) if owner else World()
    node = TransactionNode("a", world, log)
    if not owner:
        world.topic("t", 1)
    async with running(node):
        assert await node.init() == code
        assert await node.end() == code
        assert await node.describe() == code
        assert await node.add("t-0", "t-0") == f"{code},{code}"
        assert await node.add("t-0", verify=True) == code


async def test_while_it_is_loaded(log: LogInMemory, world: World) -> None:
    config = CoordinatorConfig(coordinator_id="a", coordinator_load_wait_ms=0)
    node = TransactionNode("a", world, log, config)
    code = "coordinator_load_in_progress"
    assert await node.init() == code
    assert await node.end() == code
    assert await node.describe() == code
    assert await node.add("t-0") == code
    listed = await node.calls.ListTransactions(pb.ListTransactionsRequest(duration_ms=-1))
    assert ErrorCode(listed.error_code).name == code


# -- InitProducerId --------------------------------------------------------------------------------------------------


async def test_epochs_rise_and_fence_whoever_was_before(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        assert [await node.init() for _ in range(2)] == ["1000/0", "1000/1"]
        assert await node.end(epoch=0) == "producer_fenced"
        assert await node.add("t-0", epoch=0) == "producer_fenced"
        assert await node.add("t-0", epoch=0, verify=True) == "producer_fenced"


async def test_a_new_producer_takes_over_once_the_open_transaction_is_aborted(
    log: LogInMemory, world: World
) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        assert await node.init() == "concurrent_transactions"
        await settle()
        assert await node.init() == "1000/2"
        assert states(log) == ["Empty", "Ongoing", "PrepareAbort", "CompleteAbort", "Empty"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.invalid_request),
        ({"transactional_id": "x" * 40_000}, ErrorCode.invalid_request),
        ({"producer_id": 5}, ErrorCode.invalid_request),
        ({"producer_epoch": 5}, ErrorCode.invalid_request),
        ({"transaction_timeout_ms": 0}, ErrorCode.invalid_transaction_timeout),
        ({"transaction_timeout_ms": -1}, ErrorCode.invalid_transaction_timeout),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.invalid_transaction_timeout),
        ({"two_phase_commit": True}, ErrorCode.transactional_id_authorization_failed),
    ],
)
async def test_what_needs_no_coordinator_is_refused_by_any(
    log: LogInMemory, fields: dict[str, object], code: ErrorCode
) -> None:
    node = TransactionNode("a", a_world(owner="b"), log)
    answer = await node.calls.InitProducerId(an_init(**fields))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


async def test_transactions_that_another_system_decides_have_no_time_out(
    log: LogInMemory, world: World
) -> None:
    config = CoordinatorConfig(coordinator_id="a", transaction_two_phase_commit_enable=True)
    node = TransactionNode("a", world, log, config)
    async with running(node):
        answer = await node.calls.InitProducerId(an_init(two_phase_commit=True, transaction_timeout_ms=0))
        assert answer.error_code == 0
        answer = await node.calls.InitProducerId(an_init(two_phase_commit=True, transaction_timeout_ms=0))
        assert answer.producer_epoch == 1
        found = await node.calls.DescribeTransactions(pb.DescribeTransactionsRequest(transactional_ids=["a"]))
        assert found.transactions[0].transaction_timeout_ms == NO_TIMEOUT_MS


async def test_the_first_producer_waits_for_a_block_of_ids(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    node.producer_ids.has_some = False
    async with running(node):
        assert await node.init() == "1000/0"
        node.producer_ids.has_some = node.producer_ids.comes = False
        assert await node.init("b") == "coordinator_load_in_progress"
        assert await node.init() == "1000/1", "who has an id needs none"
        node.producer_ids.comes = True
        assert await node.init("b") == "1001/0"


# -- AddPartitionsToTxn ----------------------------------------------------------------------------------------------


async def test_one_unknown_partition_keeps_out_the_others(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.init()
        unknown, kept_out = "unknown_topic_or_partition", "operation_not_attempted"
        assert await node.add("t-0", "nope-0", "t-3") == f"{kept_out},{unknown},{unknown}"
        assert await node.add(f"{TRANSACTION_STATE_TOPIC}-0") == unknown
        assert states(log) == ["Empty"]
        assert await node.add("t-0", f"{GROUP_METADATA_TOPIC}-0") == "none,none"
        world.delete("t")
        assert await node.add("t-0") == unknown
        assert states(log) == ["Empty", "Ongoing"]


@pytest.mark.parametrize("writers", [1, 3])
async def test_what_comes_before_the_end_has_landed_may_wait_for_it(
    log: LogInMemory, world: World, writers: int
) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        node.post.freeze("1")
        assert await node.end() == "1000/1"
        adding = [asyncio.create_task(node.add("t-0", epoch=1, wait_ms=60_000)) for _ in range(writers)]
        await settle()
        assert not any(each.done() for each in adding)
        assert await node.add("t-0", epoch=1) == "concurrent_transactions"
        assert await node.add("t-0", epoch=1, verify=True, wait_ms=60_000) == "concurrent_transactions"
        node.post.thaw("1")
        assert await asyncio.gather(*adding) == ["none"] * writers
        assert states(log) == [*COMMITTED, "Ongoing"]


async def test_it_does_not_wait_for_longer_than_it_may(
    log: LogInMemory, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        node.post.freeze("1")
        assert await node.end() == "1000/1"
        assert await node.add("t-0", epoch=1, wait_ms=1) == "concurrent_transactions"
        monkeypatch.setattr("barnabas.coordinator.limits.CONCURRENT_WAIT_MS_MAX", 1)
        assert await node.add("t-0", epoch=1, wait_ms=2**31) == "concurrent_transactions"


async def test_each_transaction_of_a_request_is_answered_for_itself(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        first, second = await node.open("t-0"), int((await node.init("b")).split("/")[0])
        items = [
            an_addition("t-1", transactional_id="b", producer_id=second),
            an_addition("t-0", "t-1", producer_id=first, verify=True),
            an_addition("t-0", transactional_id="c"),
            an_addition("t-0", transactional_id=""),
            an_addition("nope-0", transactional_id="b", producer_id=second),
        ]
        request = pb.AddPartitionsToTxnRequest(transactions=items)
        answer = await node.calls.AddPartitionsToTxn(request)
        assert [[ErrorCode(code).name for code in each.error_codes] for each in answer.transactions] == [
            ["none"],
            ["none", "transaction_abortable"],
            ["invalid_producer_id_mapping"],
            ["invalid_request"],
            ["unknown_topic_or_partition"],
        ]


async def test_transactions_of_several_partitions_of_the_log(log: LogInMemory) -> None:
    world = World()
    world.coordinators("a", "b")
    world.topic("t", 1)
    world.topic(TRANSACTION_STATE_TOPIC, 3, 3, owner="a")
    world.own(TRANSACTION_STATE_TOPIC, "b", 0, index=1)
    mine, theirs = (
        next(str(each) for each in range(100) if partition_for_group(str(each), 2) == index)
        for index in range(2)
    )
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.init(mine)
        items = [an_addition("t-0", transactional_id=each) for each in (theirs, mine)]
        answer = await node.calls.AddPartitionsToTxn(pb.AddPartitionsToTxnRequest(transactions=items))
        assert [list(each.error_codes) for each in answer.transactions] == [[ErrorCode.not_coordinator], [0]]


async def test_verifying_needs_no_log_that_takes_writes(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        log.fail_with = ErrorCode.kafka_storage_error
        assert await node.add("t-1") == "coordinator_load_in_progress"
        assert await node.add("t-0", verify=True) == "none"
        assert node.coordinator.is_part(TransactionQuestion("a", 1000, 0, False, "t", 0))
        assert await node.add("t-1", verify=True) == "coordinator_load_in_progress", (
            "that may end the transaction"
        )
        log.fail_with = None


async def test_verifying_while_another_partition_is_on_its_way(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        log.gate = asyncio.Event()
        adding = asyncio.create_task(node.add("t-1"))
        await settle()
        assert await node.add("t-0", verify=True) == "none"
        refused = asyncio.create_task(node.add("t-0", "t-1", verify=True))
        await settle()
        log.gate.set()
        assert await adding == "none"
        assert await refused == "none,transaction_abortable"
        assert await node.add("t-1", verify=True) == "none"


# -- EndTxn ----------------------------------------------------------------------------------------------------------


async def test_an_end_without_an_id_is_no_request(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        assert await node.end("") == "invalid_request"
        assert await node.end("nobody") == "invalid_producer_id_mapping"


async def test_a_lost_answer_is_given_again(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        assert await node.end() == "1000/1"
        await settle()
        assert await node.end() == "1000/1"
        assert await node.end(committed=False) == "invalid_txn_state"
        assert states(log).count("PrepareCommit") == 1


async def test_the_in_sync_replicas_are_too_few(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        log.fail_with = ErrorCode.not_enough_replicas
        assert await node.end() == "coordinator_load_in_progress"
        log.fail_with = None
        for _ in range(20):
            await settle()
        assert await node.end() == "1000/1", "what was refused has landed, or is decided now"
        assert states(log) == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"]


# -- descriptions and lists ------------------------------------------------------------------------------------------


async def test_descriptions(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0", "t-2")
        assert await node.describe() == "Ongoing t-0 t-2"
        assert await node.describe("") == "invalid_request"
        assert await node.describe("nobody") == "transactional_id_not_found"
        request = pb.DescribeTransactionsRequest(transactional_ids=["a", "a", "a"], bytes_max=1)
        assert len((await node.calls.DescribeTransactions(request)).transactions) == 1
        request.bytes_max = 0
        assert len((await node.calls.DescribeTransactions(request)).transactions) == 3


async def test_lists(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0", transactional_id="one")
        await node.init("two")

        async def listed(**fields: object) -> tuple[int, list[str], list[str]]:
            request = pb.ListTransactionsRequest(**({"duration_ms": -1} | fields))  # type: ignore[arg-type]
            answer = await node.calls.ListTransactions(request)
            names = sorted(each.transactional_id for each in answer.transactions)
            return answer.error_code, names, list(answer.unknown_states)

        assert await listed() == (0, ["one", "two"], [])
        assert await listed(states=["Ongoing", "Odd"]) == (0, ["one"], ["Odd"])
        assert await listed(transactional_id_pattern="t.*") == (0, ["two"], [])
        assert await listed(transactional_id_pattern="(") == (ErrorCode.invalid_regular_expression, [], [])


# -- WriteTxnMarkers -------------------------------------------------------------------------------------------------


async def test_an_administrator_ends_what_hangs(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    node.post.codes[f"{GROUP_METADATA_TOPIC}-0"] = [ErrorCode.not_coordinator]
    node.post.codes["t-1"] = [ErrorCode.transaction_coordinator_fenced]
    topics = [pb.TransactionTopic(name="t", partitions=[1, 0]), pb.TransactionTopic(name="x", partitions=[0])]
    topics.append(pb.TransactionTopic(name=GROUP_METADATA_TOPIC, partitions=[0]))
    marker = pb.TransactionMarker(producer_id=7, producer_epoch=3, coordinator_epoch=4, topics=topics)
    request = pb.WriteTxnMarkersRequest(markers=[marker, pb.TransactionMarker(producer_id=8)])
    async with running(node):
        answer = await node.calls.WriteTxnMarkers(request)
    assert [[ErrorCode(code).name for code in each.error_codes] for each in answer.markers] == [
        ["transaction_coordinator_fenced", "none", "unknown_topic_or_partition", "not_leader_or_follower"],
        [],
    ]
    sent = node.post.sent[0][2]
    assert (sent.producer_id, sent.producer_epoch, sent.coordinator_epoch, sent.committed) == (7, 3, 4, False)


async def test_many_markers_are_written_a_few_at_a_time(
    log: LogInMemory, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent all at once, thousands keep the coordinator from everything else until the controller fences it."""
    monkeypatch.setattr(limits, "WRITTEN_MARKERS_AT_ONCE", 2)
    node = TransactionNode("a", world, log)
    send, under_way, most = node.post.send, 0, 0

    async def counted(place: Place, marker: Marker, partitions: Sequence[TopicPartition]) -> list[ErrorCode]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        codes: list[ErrorCode] = await send(place, marker, partitions)
        return codes

    monkeypatch.setattr(node.post, "send", counted)
    topics = [pb.TransactionTopic(name="t", partitions=[0])]
    markers = [pb.TransactionMarker(producer_id=number, topics=topics) for number in range(5)]
    async with running(node):
        answer = await node.calls.WriteTxnMarkers(pb.WriteTxnMarkersRequest(markers=markers))
    assert [list(each.error_codes) for each in answer.markers] == [[0]] * 5
    assert [marker.producer_id for _, _, marker, *_ in node.post.sent] == list(range(5))
    assert most == 2


async def test_an_error_that_nobody_foresaw(log: LogInMemory, world: World) -> None:
    node = TransactionNode("a", world, log)
    node.post.fails = True
    topics = [pb.TransactionTopic(name="t", partitions=[1, 0])]
    request = pb.WriteTxnMarkersRequest(markers=[pb.TransactionMarker(producer_id=7, topics=topics)])
    answer = await node.calls.WriteTxnMarkers(request)
    assert list(answer.markers[0].error_codes) == [ErrorCode.unknown_server_error] * 2


@pytest.mark.parametrize("step", ["init", "add", "end"])
async def test_a_log_without_in_sync_replicas_at_any_step(log: LogInMemory, world: World, step: str) -> None:
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        ask = {"init": node.init, "add": lambda: node.add("t-1"), "end": node.end}[step]
        log.fail_with = ErrorCode.not_enough_replicas
        assert await ask() == "coordinator_load_in_progress"
        assert await ask() == "coordinator_load_in_progress"
        log.fail_with = None
        for _ in range(20):
            await settle()
        then = {"init": "1000/2", "add": "none", "end": "1000/1"}[step]
        assert await ask() == then, "what was refused has landed once"
        await settle()
        assert states(log).count("PrepareAbort") == (step == "init")
        assert states(log).count("PrepareCommit") == (step == "end")
