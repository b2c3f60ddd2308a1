"""Markers on their way: to whom, when again, given up, and how many at a time."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from log_in_memory import LogInMemory
from prometheus_client import generate_latest
from transaction_node import (
    COMMITTED,
    DECIDED,
    NEVER_MS,
    TransactionNode,
    World,
    a_world,
    running,
    settle,
    states,
    until_complete,
    until_loaded,
)

from barnabas.coordinator.transactions.core.transaction import TopicPartition
from barnabas.coordinator.transactions.markers.marker import Marker
from barnabas.coordinator.transactions.markers.reactions import REACTIONS, Reaction
from barnabas.kernel.errors import ErrorCode
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC


async def test_each_partition_is_told_where_it_lives(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    async with running(node):
        await node.open("t-0", "t-1", "t-2", f"{GROUP_METADATA_TOPIC}-0")
        assert await node.end() == "1000/1"
        await until_complete(log)
        assert sorted((place, name) for place, name, _ in node.post.sent) == [
            ("1", "t-0"),
            ("1", "t-2"),
            ("2", "t-1"),
            ("a", f"{GROUP_METADATA_TOPIC}-0"),
        ]
        assert {marker for _, _, marker in node.post.sent} == {Marker(1000, 1, True, 0, 2)}
        assert await node.describe() == "CompleteCommit"


async def test_who_does_not_know_at_once_is_asked(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    node.post.is_here = True
    node.post.codes["t-2"] = [ErrorCode.not_enough_replicas]
    async with running(node):
        await node.open("t-0", "t-1", "t-2", f"{GROUP_METADATA_TOPIC}-0")
        await node.end()
        await until_complete(log)
        told = [name for _, name, _ in node.post.sent]
        assert sorted(told) == [f"{GROUP_METADATA_TOPIC}-0", "t-0", "t-1", "t-2", "t-2"]
        page = generate_latest(node.registry).decode()
        assert 'barnabas_coordinator_markers_total{result="told"} 4.0' in page
        assert 'barnabas_coordinator_markers_total{result="again"} 1.0' in page


@pytest.mark.parametrize(("version", "epoch"), [(2, 1), (0, 0)])
async def test_an_abort_by_either_rules(log: LogInMemory, version: int, epoch: int) -> None:
    node = TransactionNode("a", a_world(version=version), log)
    async with running(node):
        await node.init()
        assert await node.add("t-0", version=version) == "none"
        await node.end(committed=False, version=version)
        await until_complete(log, "Empty", "Ongoing", "PrepareAbort", "CompleteAbort")
        assert [marker for _, _, marker in node.post.sent] == [Marker(1000, epoch, False, 0, version)]


async def test_what_was_never_written_to_needs_no_marker(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    async with running(node):
        await node.init()
        assert await node.end(committed=False) == "1000/1"
        await until_complete(log, "Empty", "PrepareAbort", "CompleteAbort")
        assert node.post.sent == []


async def test_the_client_waits_for_the_decision_and_not_for_partitions(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    node.post.freeze("1")
    async with running(node):
        await node.open("t-0", "t-1")
        assert await node.end() == "1000/1"
        assert await node.end(epoch=1) == "concurrent_transactions"
        await settle()
        assert await node.describe() == "PrepareCommit t-0", "t-1 knows"
        node.post.thaw("1")
        await until_complete(log)


async def test_nobody_is_told_before_the_end_is_certain(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    async with running(node):
        await node.open("t-0")
        log.gate = asyncio.Event()
        ending = asyncio.create_task(node.end())
        await settle()
        assert not ending.done()
        assert node.post.sent == []
        log.gate.set()
        assert await ending == "1000/1"
        await until_complete(log)


@pytest.mark.parametrize("code", [code for code, what in REACTIONS.items() if what is Reaction.TOLD])
async def test_what_counts_as_told(log: LogInMemory, code: ErrorCode) -> None:
    node = TransactionNode("a", a_world(), log)
    node.post.codes["t-0"] = [code]
    async with running(node):
        await node.open("t-0")
        await node.end()
        await until_complete(log)
        assert node.post.told("t-0") == ["1"]


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(
    "code",
    [
        *(code for code, what in REACTIONS.items() if what is Reaction.AGAIN),
        ErrorCode.unknown_server_error,
        ErrorCode.corrupt_message,
    ],
)
async def test_what_passes_is_tried_again_alone(log: LogInMemory, code: ErrorCode) -> None:
    node = TransactionNode("a", a_world(), log)
    node.post.codes["t-0"] = [code, code]
    async with running(node):
        await node.open("t-0", "t-1", "t-2")
        await node.end()
        await until_complete(log)
        assert node.post.told("t-0") == ["1", "1", "1"]
        assert (node.post.told("t-1"), node.post.told("t-2")) == (["2"], ["1"])


@pytest.mark.usefixtures("_at_once")
async def test_a_fault_of_ours_is_tried_again(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    node.post.fails = True
    async with running(node):
        await node.open("t-0")
        await node.end()
        await settle()
        assert states(log) == list(DECIDED)
        node.post.fails = False
        await until_complete(log)


async def test_pauses_double_up_to_a_limit(log: LogInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_RETRY_MS_MIN", 20)
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_RETRY_MS_MAX", 100)
    node = TransactionNode("a", a_world(), log)
    node.post.codes["t-0"] = [ErrorCode.not_leader_or_follower] * 5
    pauses: list[int] = []
    sender = node.coordinator.markers

    def at_once(parcel: object, pause_ms: int) -> None:
        pauses.append(pause_ms)
        asyncio.get_running_loop().call_soon(sender._try_again, parcel)  # type: ignore[arg-type]

    monkeypatch.setattr(sender, "_try_later", at_once)
    async with running(node):
        await node.open("t-0")
        await node.end()
        await until_complete(log)
        assert pauses == [20, 40, 80, 100, 100]


# -- given up --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [code for code, what in REACTIONS.items() if what is Reaction.GIVE_UP])
async def test_who_is_refused_as_old_tells_nobody_for_a_while(
    log: LogInMemory, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_GIVEN_UP_MS", NEVER_MS)
    node = TransactionNode("a", a_world(), log)
    node.post.codes["t-0"] = [code]
    node.post.freeze("1")
    node.post.freeze("2")
    async with running(node):
        await node.open("t-0", "t-1")
        await node.end()
        await settle()
        node.post.thaw("1")
        await settle()
        assert node.post.given_up == 1, "the other's answer counts no more"
        assert list(node.coordinator.markers.waiting()) == [(2, True)]
        assert b"barnabas_coordinator_given_up_transactions 1.0" in generate_latest(node.registry)
        sent = len(node.post.sent)
        node.post.thaw("2")
        await settle()
        assert (len(node.post.sent), states(log)) == (sent, list(DECIDED))
        # Other transactions go on.
        producer = await node.open("t-0", transactional_id="b")
        await node.end("b", producer)
        await until_complete(log, *DECIDED, *COMMITTED)


async def test_a_partition_that_knows_a_newer_epoch_is_told_no_more(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    node.post.codes["t-0"] = [ErrorCode.invalid_producer_epoch]
    async with running(node):
        await node.open("t-0", "t-1")
        await node.end()
        await until_complete(log)
        assert list(node.coordinator.markers.waiting()) == []
        counts = generate_latest(node.registry)
        for result in (b"overtaken", b"told"):
            assert b'barnabas_coordinator_markers_total{result="%b"} 1.0' % result in counts


async def test_what_was_given_up_is_tried_again_some_time(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_GIVEN_UP_MS", 0)
    node = TransactionNode("a", a_world(), log)
    node.post.codes["t-0"] = [ErrorCode.transaction_coordinator_fenced]
    async with running(node):
        await node.open("t-0", "t-1")
        await node.end()
        await until_complete(log)
        assert list(node.coordinator.markers.waiting()) == []


async def test_a_next_coordinator_takes_up_what_was_given_up(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_GIVEN_UP_MS", NEVER_MS)
    world = a_world()
    node = TransactionNode("a", world, log)
    node.post.codes["t-0"] = [ErrorCode.transaction_coordinator_fenced]
    async with running(node):
        await node.open("t-0")
        await node.end()
        await settle()
        log.epochs[0] = 1
        world.own(TRANSACTION_STATE_TOPIC, "a", 1)
        await until_complete(log)
        assert [marker.coordinator_epoch for _, _, marker in node.post.sent] == [0, 1]


# -- room ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_never")
async def test_a_silent_node_holds_up_only_what_is_its_own(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.MARKERS_UNANSWERED_MAX", 1)
    world = a_world()
    node = TransactionNode("a", world, log)
    node.post.freeze("1")
    async with running(node):
        for transactional_id, partition in (("a", "t-0"), ("b", "t-0"), ("c", "t-2"), ("d", "t-1")):
            producer = await node.open(partition, transactional_id=transactional_id)
            await node.end(transactional_id, producer)
        await settle()
        assert [name for _, name, _ in node.post.sent] == ["t-0", "t-1"]
        world.lead("t", 2, 3)  # what waits for room moves like all else
        await settle()
        assert node.post.told("t-2") == ["3"]
        node.post.thaw("1")
        await settle()
        assert states(log).count("CompleteCommit") == 4
        assert node.post.told("t-0") == ["1", "1"]


@pytest.mark.usefixtures("_never")
async def test_room_of_what_nobody_waits_for_any_more_is_free_again(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.MARKERS_UNANSWERED_MAX", 1)
    world = a_world()
    node = TransactionNode("a", world, log)
    node.post.freeze("1")
    async with running(node):
        for transactional_id, partition in (("a", "t-0"), ("b", "t-2")):
            producer = await node.open(partition, transactional_id=transactional_id)
            await node.end(transactional_id, producer)
        await settle()
        world.lead("t", 0, 2)
        await settle()
        assert node.post.told("t-2") == ["1"]


async def test_a_thousand_at_once(log: LogInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.MARKING_YIELD_PARTITIONS", 7)
    world = a_world()
    first, second = TransactionNode("a", world, log), TransactionNode("b", world, log)
    first.post.freeze("1")
    async with running(first, second):
        for number in range(100):
            producer = await first.open("t-0", "t-1", transactional_id=f"id-{number}")
            await first.end(f"id-{number}", producer)
        await settle()
        log.epochs[0] = 1
        world.own(TRANSACTION_STATE_TOPIC, "b", 1)
        await until_loaded(second)
        for _ in range(20):
            await settle()
        assert states(log).count("CompleteCommit") == 100
        assert len(second.post.sent) == 200
        assert list(second.coordinator.markers.waiting()) == []


async def test_the_loop_has_its_turns_while_many_partitions_are_told(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.MARKING_YIELD_PARTITIONS", 50)
    world = a_world()
    world.topic("wide", *([1] * 40))
    first, second = TransactionNode("a", world, log), TransactionNode("b", world, log)
    names = [f"wide-{index}" for index in range(40)]
    first.post.freeze("1")
    second.post.is_here = True
    told: list[int] = []

    async def watch() -> None:
        while True:
            told.append(len(second.post.sent))
            await asyncio.sleep(0)

    async with running(first, second):
        for number in range(20):
            producer = await first.open(*names, transactional_id=f"id-{number}")
            await first.end(f"id-{number}", producer)
        await settle()
        watching = asyncio.create_task(watch())
        log.epochs[0] = 1
        world.own(TRANSACTION_STATE_TOPIC, "b", 1)
        await until_loaded(second)
        for _ in range(20):
            await settle()
        watching.cancel()
        assert told[-1] == 20 * 40
        assert max(later - sooner for sooner, later in itertools.pairwise(told)) <= 80


# -- once, because somebody wants it ---------------------------------------------------------------------------------


async def test_sending_once(log: LogInMemory) -> None:
    world: World = a_world()
    node = TransactionNode("a", world, log)
    world.lead("t", 2, -1)
    node.post.codes["t-1"] = [ErrorCode.invalid_producer_epoch]
    marker = Marker(7, 3, False, 9, 0)
    asked = [
        TopicPartition(name, index)
        for name, index in (("t", 1), ("nope", 0), ("t", 0), ("t", 2), ("t", 3), ("t", 1))
    ]
    asked.append(TopicPartition(TRANSACTION_STATE_TOPIC, 0))
    async with running(node):
        assert await node.coordinator.markers.send_once(marker, asked) == [
            ErrorCode.invalid_producer_epoch,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.none,
            ErrorCode.not_leader_or_follower,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.invalid_producer_epoch,
            ErrorCode.unknown_topic_or_partition,
        ]
    assert [(name, sent) for _, name, sent in node.post.sent] == [("t-1", marker), ("t-0", marker)]


# -- what another run does, and what is left -------------------------------------------------------------------------


async def test_the_order_is_not_that_of_a_set(log: LogInMemory) -> None:
    world = a_world()
    world.topic("many", *[1] * 40)
    node = TransactionNode("a", world, log)
    names = [f"many-{index}" for index in range(40)]
    async with running(node):
        await node.open(*reversed(names))
        await node.end()
        await until_complete(log)
        assert [name for _, name, _ in node.post.sent] == names


@pytest.mark.usefixtures("_at_once")
async def test_nothing_is_kept_of_what_is_over(log: LogInMemory) -> None:
    world = a_world()
    world.topic("u", 1, 1)
    node = TransactionNode("a", world, log)
    sender = node.coordinator.markers
    async with running(node):
        await node.open("t-0", "t-1", "t-2", "u-0", "u-1", f"{GROUP_METADATA_TOPIC}-0")
        node.post.codes["u-1"] = [ErrorCode.not_enough_replicas]
        node.post.freeze("1")
        await node.end()
        await settle()
        world.lead("u", 0, 2)
        world.lead("u", 1, 2)  # all of the topic has left what is under way
        await settle()
        assert list(sender._by_topic) == ["t"]
        world.lead("t", 0, 2)
        world.delete("t")
        await until_complete(log)
        await settle()
        assert (sender._markings, sender._by_topic, sender._rooms) == ({}, {}, {})


async def test_what_is_tried_again_is_given_up_no_longer(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.MARKER_GIVEN_UP_MS", 0)
    node = TransactionNode("a", a_world(), log)
    node.post.codes["t-0"] = [ErrorCode.transaction_coordinator_fenced]
    async with running(node):
        await node.open("t-0")
        await node.end()
        while len(node.post.sent) < 1:
            await asyncio.sleep(0)
        node.post.freeze("1")
        await settle()
        assert list(node.coordinator.markers.waiting()) == [(0, False)]
        node.post.thaw("1")
        await until_complete(log)
