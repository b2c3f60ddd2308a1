"""Markers whose partitions get other leaders, are deleted, or whose transaction another coordinator takes over."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from log_in_memory import LogInMemory
from prometheus_client import generate_latest
from transaction_node import (
    COMMITTED,
    DECIDED,
    TransactionNode,
    a_world,
    running,
    settle,
    states,
    until_complete,
    until_loaded,
)

from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.kernel.errors import ErrorCode
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

# -- the metadata move -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_never")
async def test_whoever_leads_next_is_told_at_once(log: LogInMemory) -> None:
    world = a_world()
    node = TransactionNode("a", world, log)
    node.post.freeze("1")
    async with running(node):
        await node.open("t-0", "t-2")
        await node.end()
        await settle()
        world.lead("t", 0, 2)
        await settle()
        assert (node.post.told("t-0"), node.post.told("t-2")) == (["1", "2"], ["1"])
        assert await node.describe() == "PrepareCommit t-2"
        world.lead("t", 2, 2)
        await until_complete(log)
        assert node.post.given_up == 1, "nobody waits for the frozen one"


@pytest.mark.usefixtures("_never")
async def test_the_loop_has_its_turns_when_many_hear_of_a_leader(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.MARKERS_UNANSWERED_MAX", 10)
    world = a_world()
    world.topic("one", -1)
    node = TransactionNode("a", world, log)
    node.post.is_here = True
    told: list[int] = []

    async def watch() -> None:
        while True:
            told.append(len(node.post.sent))
            await asyncio.sleep(0)

    async with running(node):
        for number in range(100):
            producer = await node.open("one-0", transactional_id=f"id-{number}")
            await node.end(f"id-{number}", producer)
        await settle()
        assert node.post.sent == []
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        world.lead("one", 0, 1)
        for _ in range(5):
            await settle()
        watching.cancel()
        assert states(log).count("CompleteCommit") == 100
        assert max(later - sooner for sooner, later in itertools.pairwise(told)) <= 20


@pytest.mark.usefixtures("_never")
async def test_the_answer_of_a_former_leader_counts_no_more(log: LogInMemory) -> None:
    world = a_world()
    node = TransactionNode("a", world, log)
    node.post.freeze("1")
    node.post.freeze("2")
    async with running(node):
        await node.open("t-0", "t-2")
        await node.end()
        await settle()
        world.lead("t", 0, 2)
        node.post.thaw("1")  # it answers for t-2, and for t-0, of which it knows nothing any more
        await settle()
        assert await node.describe() == "PrepareCommit t-0"
        node.post.thaw("2")
        await until_complete(log)


@pytest.mark.usefixtures("_never")
async def test_a_leader_that_is_led_by_somebody_else_while_it_refuses(log: LogInMemory) -> None:
    world = a_world()
    node = TransactionNode("a", world, log)
    node.post.codes["t-0"] = [ErrorCode.not_leader_or_follower]
    async with running(node):
        await node.open("t-0")
        await node.end()
        await settle()
        assert states(log) == list(DECIDED)
        world.lead("t", 1, 1)  # another partition: nothing changes
        await settle()
        assert node.post.told("t-0") == ["1"]
        world.lead("t", 0, 3)
        await until_complete(log)
        assert node.post.told("t-0") == ["1", "3"]


@pytest.mark.usefixtures("_never")
async def test_a_partition_without_a_leader_waits_for_one(log: LogInMemory) -> None:
    world = a_world()
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0", "t-1")
        world.lead("t", 0, -1)
        await node.end()
        await settle()
        assert await node.describe() == "PrepareCommit t-0"
        assert b"unknowndestinationqueuesize 1.0" in generate_latest(node.registry)
        world.lead("t", 0, 3)
        await until_complete(log)
        assert node.post.told("t-0") == ["3"]


@pytest.mark.usefixtures("_at_once")
async def test_a_leader_that_is_fenced_is_waited_for(log: LogInMemory) -> None:
    world = a_world()
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        world.node(1, fenced=True)
        await node.end()
        await settle()
        assert node.post.sent == []
        world.node(1)
        await until_complete(log)


@pytest.mark.usefixtures("_never")
async def test_offsets_are_told_to_their_next_owner(log: LogInMemory) -> None:
    world = a_world()
    node = TransactionNode("a", world, log)
    node.post.freeze("a")
    async with running(node):
        await node.open(f"{GROUP_METADATA_TOPIC}-0")
        await node.end()
        await settle()
        world.own(GROUP_METADATA_TOPIC, "b", 1)
        await until_complete(log)
        assert node.post.told(f"{GROUP_METADATA_TOPIC}-0") == ["a", "b"]


@pytest.mark.usefixtures("_never")
@pytest.mark.parametrize("when", ["before", "under way"])
async def test_a_deleted_topic_needs_no_marker(log: LogInMemory, when: str) -> None:
    world = a_world()
    node = TransactionNode("a", world, log)
    node.post.freeze("1")
    async with running(node):
        await node.open("t-0")
        if when == "before":
            world.delete("t")
        await node.end()
        await settle()
        if when == "under way":
            assert states(log) == list(DECIDED)
            world.delete("t")
        await until_complete(log)


@pytest.mark.usefixtures("_never")
async def test_a_topic_that_is_only_missing_is_waited_for(log: LogInMemory) -> None:
    world = a_world()
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        world.lose("t")
        await node.end()
        await settle()
        assert (states(log), node.post.sent) == (list(DECIDED), [])
        world.topic("t", 2)
        await until_complete(log)
        assert node.post.told("t-0") == ["2"]


@pytest.mark.usefixtures("_never")
async def test_a_topic_made_anew_is_told_as_far_as_it_goes(log: LogInMemory) -> None:
    world = a_world()
    node = TransactionNode("a", world, log)
    for place in ("1", "2"):
        node.post.freeze(place)
    async with running(node):
        await node.open("t-0", "t-1")
        await node.end()
        await settle()
        world.lose(
            "t"
        )  # the same step of the controller's would be a deletion; seen from a snapshot it is both
        world.topic("t", 3)
        await settle()
        assert await node.describe() == "PrepareCommit t-1", "of t-1 nobody knows whether it was deleted"
        world.delete("t")
        world.topic("t", 3)
        await until_complete(log)
        assert node.post.told("t-0") == ["1", "3"]


@pytest.mark.usefixtures("_never")
async def test_a_snapshot_is_looked_through(log: LogInMemory) -> None:
    world = a_world()
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        world.lead("t", 0, -1)
        await node.end()
        await settle()
        world.nodes.clear()  # it does not see this change by itself
        before = world.image
        world.lead("t", 0, 2)
        world.start_over()
        node.coordinator.on_image(before, world.image)
        await until_complete(log)
        assert node.post.told("t-0") == ["2"]


# -- the coordinator moves -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_at_once")
async def test_a_coordinator_that_lost_the_transaction_stops(log: LogInMemory) -> None:
    world = a_world()
    first, second = TransactionNode("a", world, log), TransactionNode("b", world, log)
    first.post.freeze("1")
    async with running(first, second):
        await first.open("t-0", "t-1")
        await first.end()
        await settle()
        log.epochs[0] = 1
        world.own(TRANSACTION_STATE_TOPIC, "b", 1)
        assert first.post.given_up == 0, "that is for the next turn of the loop"
        await until_complete(log)
        assert first.post.given_up == 1
        assert list(first.coordinator.markers.waiting()) == []
        assert {(name, marker.coordinator_epoch) for _, name, marker in second.post.sent} == {
            ("t-0", 1),
            ("t-1", 1),
        }, "nobody knows who was told"
        sent = len(first.post.sent)
        first.post.thaw("1")
        await settle()
        assert len(first.post.sent) == sent
        assert await second.end() == "1000/1", "a lost answer is given again"


async def test_what_is_lost_while_it_is_begun_is_not_begun(
    log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many are told there are breaths in between, and the metadata may come in one of them."""
    monkeypatch.setattr("barnabas.coordinator.limits.MARKING_YIELD_PARTITIONS", 1)
    world = a_world()
    first, second = TransactionNode("a", world, log), TransactionNode("b", world, log)
    first.post.freeze("1")
    second.post.is_here = False  # else nobody is told between two breaths
    async with running(first, second):
        for number in range(10):
            producer = await first.open("t-0", transactional_id=f"id-{number}")
            await first.end(f"id-{number}", producer)
        await settle()
        send = second.post.send

        async def send_and_lose(*parcel: Any) -> list[ErrorCode]:
            second.post.send = send  # type: ignore[method-assign]
            log.epochs[0] = 2
            asyncio.get_running_loop().call_soon(world.own, TRANSACTION_STATE_TOPIC, "a", 2)
            return await send(*parcel)

        second.post.send = send_and_lose  # type: ignore[method-assign]
        log.epochs[0] = 1
        world.own(TRANSACTION_STATE_TOPIC, "b", 1)
        await until_loaded(second)
        await settle()
        assert 1 <= len(second.post.sent) < 5
        assert list(second.coordinator.markers.waiting()) == []


@pytest.mark.usefixtures("_at_once")
async def test_a_zombie_that_has_told_all_completes_nothing(log: LogInMemory) -> None:
    world = a_world()
    zombie, second = TransactionNode("a", world, log), TransactionNode("b", world, log)
    zombie.post.freeze("1")
    async with running(zombie, second):
        await zombie.open("t-0")
        await zombie.end()
        await settle()
        world.nodes.remove(zombie)  # it hears no more of the metadata
        log.epochs[0] = 1
        world.own(TRANSACTION_STATE_TOPIC, "b", 1)
        await until_complete(log)
        zombie.post.thaw("1")
        await settle()
        assert states(log) == list(COMMITTED)


@pytest.mark.usefixtures("_at_once")
async def test_what_is_complete_and_not_written_is_written_later(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    node.post.freeze("1")
    async with running(node):
        await node.open("t-0")
        await node.end()
        await settle()
        log.fail_with = ErrorCode.not_enough_replicas
        assert await node.init("b") == "coordinator_load_in_progress"
        assert node.state() is PartitionState.READ_ONLY
        node.post.thaw("1")
        await settle()
        assert states(log) == list(DECIDED)
        assert b"logappendretryqueuesize 1.0" in generate_latest(node.registry)
        log.fail_with = None
        await until_complete(log, *DECIDED, "Empty", "CompleteCommit")
        assert node.post.told("t-0") == ["1"]


@pytest.mark.usefixtures("_at_once")
async def test_what_is_loaded_read_only_is_told_all_the_same(log: LogInMemory) -> None:
    world = a_world()
    first, second = TransactionNode("a", world, log), TransactionNode("b", world, log)
    first.post.freeze("1")
    async with running(first, second):
        await first.open("t-0")
        await first.end()
        await settle()
        log.epochs[0] = 1
        log.fail_with = ErrorCode.not_enough_replicas
        world.own(TRANSACTION_STATE_TOPIC, "b", 1)
        await until_loaded(second)
        await settle()
        assert second.post.told("t-0") == ["1"]
        assert states(log) == list(DECIDED)
        log.fail_with = None
        await until_complete(log)


@pytest.mark.usefixtures("_at_once")
async def test_a_log_that_is_read_again_gives_out_what_is_left(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    node.post.freeze("1")
    async with running(node):
        await node.open("t-0")
        await node.end()
        await settle()
        log.lose_frame = True  # and lands later, where nobody expects it
        asking = asyncio.create_task(node.init("b"))
        await settle()
        for stray in log.strays:
            with pytest.raises(Exception, match="OUT_OF_RANGE"):
                stray()
        await asking
        log.ends[0] += 1  # what was given up has landed
        await node.init("c")
        await settle()
        assert node.post.given_up == 1, "what was sent before the log was read again counts no more"
        node.post.thaw("1")
        for _ in range(1_000):
            if "CompleteCommit" in states(log):
                break
            await asyncio.sleep(0)
        assert states(log).count("CompleteCommit") == 1


async def test_it_stops_in_the_middle(log: LogInMemory) -> None:
    node = TransactionNode("a", a_world(), log)
    node.post.freeze("1")
    async with running(node):
        await node.open("t-0", "t-1")
        await node.end()
        await settle()
    assert node.post.given_up == 1
    assert states(log) == list(DECIDED)


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("told", [(), ("1",), ("1", "2")], ids=["nobody", "some", "all"])
@pytest.mark.parametrize("committed", [True, False])
async def test_one_end_whoever_knows_when_the_coordinator_dies(
    log: LogInMemory, told: tuple[str, ...], committed: bool
) -> None:
    world = a_world()
    first, second = TransactionNode("a", world, log), TransactionNode("b", world, log)
    for place in {"1", "2"} - set(told):
        first.post.freeze(place)
    async with running(first, second):
        await first.open("t-0", "t-1")
        log.gate = None
        ending = asyncio.create_task(first.end(committed=committed))
        for _ in range(1_000):
            if len(states(log)) == 3:
                break
            await asyncio.sleep(0)
        log.gate = asyncio.Event()  # nothing of the first lands any more
        await settle()
        log.epochs[0] = 1
        world.own(TRANSACTION_STATE_TOPIC, "b", 1)
        log.gate.set()
        end = "Commit" if committed else "Abort"
        await until_complete(log, "Empty", "Ongoing", f"Prepare{end}", f"Complete{end}")
        assert await ending in ("1000/1", "not_coordinator")
        sent = [marker for node in (first, second) for _, _, marker in node.post.sent]
        assert {(marker.producer_epoch, marker.committed) for marker in sent} == {(1, committed)}
        assert await second.end(committed=committed) == "1000/1", "no second epoch"
