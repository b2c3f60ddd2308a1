"""A replica leaves while it moves between log directories, and perhaps comes back: what it left is gone by then."""

from __future__ import annotations

import asyncio
import threading
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from moving_replicas import (
    VALUE,
    all_values,
    alter,
    failing_in,
    fill,
    hanging,
    on_disk,
    place,
    stopped_at_promote,
    throttled,
    unconfirmed_in,
    until,
    until_idle,
)
from storage_harness import StorageHarness, batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.log.moving import future_directory
from barnabas.storage import limits
from barnabas.storage.moves import log_moves


def away(node: StorageHarness, topic: uuid.UUID) -> None:
    node.apply(*topic_records("events", topic, leader=2, leader_epoch=1, replicas=(2, 3)))


def back(node: StorageHarness, topic: uuid.UUID) -> None:
    node.apply(*topic_records("events", topic, leader=1, leader_epoch=2, replicas=(1, 2)))


def here(paths: list[Path]) -> list[str]:
    """The log directories that have anything of a partition."""
    return [name for name, directories in on_disk(paths).items() if directories]


async def check_is_served(node: StorageHarness, topic: uuid.UUID, paths: list[Path], written: int) -> None:
    """It begins anew, in one place, and stays."""
    await node.until_open()
    await fill(node, topic, 3, acks=1)
    await until_idle(node)
    await until(lambda: node.replicas.is_idle and len(here(paths)) == 1)
    replica = node.replica(topic)
    assert replica.log is not None
    assert (replica.is_offline, replica.log.is_closed, replica.log.log_end_offset) == (False, False, written)
    assert on_disk(paths)[place(node, topic)] == ["events-0"]
    await fill(node, topic, 1, acks=1)


async def test_a_topic_that_goes_while_its_places_change_leaves_nothing(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 5)
    entered, leave = stopped_at_promote(monkeypatch)
    await alter(node, paths[1])
    await entered.wait()
    assert await alter(node, paths[2]) == [ErrorCode.none]
    node.snapshot(node.deletion(topic), revision=2_000)
    later = uuid.uuid4()
    node.revision = 3_000
    node.apply(*topic_records("later", later))
    await node.until_open()
    assert (await node.append(later, batch(VALUE))).error_code == 0
    leave.set()
    await until_idle(node)
    await until(lambda: node.replicas.is_idle)
    names = [name for directories in on_disk(paths).values() for name in directories]
    assert names == ["later-0"]


@pytest.mark.parametrize("is_done", [False, True])
async def test_what_comes_back_while_its_places_change_is_left_alone(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    topic = await node.create_topic(replicas=(1, 2))
    await fill(node, topic, 5, acks=1)
    entered, leave = stopped_at_promote(monkeypatch, is_done=is_done)
    await alter(node, paths[1])
    await entered.wait()
    away(node, topic)
    node.replicas.moves.prefer("events", 0, str(paths[1]))
    back(node, topic)
    assert not node.replicas.is_settled, "it waits"
    leave.set()
    await check_is_served(node, topic, paths, written=3)


async def test_what_comes_back_while_another_move_waits_is_left_alone(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FORMER_LOG_SECONDS", 3600)
    topic = await node.create_topic(replicas=(1, 2))
    await fill(node, topic, 5, acks=1)
    await alter(node, paths[1])
    await until(lambda: place(node, topic) == "b")
    assert await alter(node, paths[0]) == [ErrorCode.none], "behind what is left of the first"
    await fill(node, topic, 5, acks=1)
    away(node, topic)
    back(node, topic)
    await check_is_served(node, topic, paths, written=3)


async def test_what_came_back_is_there_after_a_restart(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        topic = await node.create_topic(replicas=(1, 2))
        await fill(node, topic, 5, acks=1)
        with monkeypatch.context() as patch:
            entered, leave = stopped_at_promote(patch)
            await alter(node, paths[1])
            await entered.wait()
            await alter(node, paths[2])
            away(node, topic)
            leave.set()
            await until_idle(node)
        back(node, topic)
        await node.until_open()
        await fill(node, topic, 12, acks=1)
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        node.snapshot(*topic_records("events", topic, leader=1, leader_epoch=2, replicas=(1, 2)))
        await node.until_open()
        opened = node.replica(topic).log
        assert opened is not None
        assert opened.log_end_offset == 12


async def test_what_is_not_begun_yet_does_not_wait_for_other_moves_to_end(
    node: StorageHarness, paths: list[Path]
) -> None:
    """The first to the directory takes for ever; the second was called off."""
    topic = await node.create_topic()
    later = await node.create_topic("later")
    assert place(node, later) == "b"
    await fill(node, topic, 20)
    node.apply(throttled(1))
    await alter(node, paths[2])
    await until(lambda: node.replicas.moves.copied_bytes)
    await alter(node, paths[2], topic="later")
    node.apply(*topic_records("later", later, leader=2, leader_epoch=1, replicas=(2,)))
    await until(lambda: on_disk(paths)["b"] == [])
    assert [name[:7] for name in on_disk(paths)["c"]] == ["events-"]


@pytest.mark.parametrize("stays_in", ["", "a", "b"])
async def test_a_partition_that_may_be_in_two_places_is_begun_in_none(
    paths: list[Path], tmp_path: Path, stays_in: str
) -> None:
    """The disk did not confirm the change; an order to go takes both, or nothing is begun before the next start."""
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        topic = await node.create_topic(replicas=(1, 2))
        await fill(node, topic, 5, acks=1)
        with unconfirmed_in(paths[1]):
            await alter(node, paths[1])
            await until_idle(node)
        assert node.replica(topic).is_offline
        assert here(paths) == ["a", "b"]
        if not stays_in:
            away(node, topic)
            back(node, topic)
            await check_is_served(node, topic, paths, written=3)
            return
        with failing_in(tmp_path / stays_in, "rename"):
            away(node, topic)
            back(node, topic)
            await until(lambda: node.replicas.is_idle and node.replica(topic).is_offline)
        assert (await node.append(topic, batch(VALUE), acks=1)).error_code == ErrorCode.kafka_storage_error
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        node.snapshot(*topic_records("events", topic, leader=1, leader_epoch=2, replicas=(1, 2)))
        await node.until_open()
        assert len(here(paths)) == 1
        await fill(node, topic, 1, acks=1)


async def test_a_directory_that_lets_nothing_go_keeps_it_and_serves_it(
    node: StorageHarness, paths: list[Path]
) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 5)
    with failing_in(paths[0], "rename"):
        await alter(node, paths[1])
        await until_idle(node)
    assert node.replicas.moves.failed_count == 1
    with unconfirmed_in(paths[0]):
        await alter(node, paths[1])
        await until_idle(node)
    await fill(node, topic, 5)
    assert on_disk(paths) == {"a": ["events-0"], "b": [], "c": []}
    assert await alter(node, paths[2]) == [ErrorCode.none]
    await until_idle(node)
    assert await all_values(node, topic) == list(range(10))
    assert on_disk(paths) == {"a": [], "b": [], "c": ["events-0"]}
    assert node.replicas.moves.failed_count == 0


async def test_the_next_move_begins_when_nothing_is_left_of_the_last(
    paths: list[Path], tmp_path: Path
) -> None:
    """A change that the disk does not confirm takes the replica offline: no other can come to have it as well."""
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        topic = await node.create_topic()
        await fill(node, topic, 5)
        with unconfirmed_in(paths[1]):
            await alter(node, paths[1])
            await until_idle(node)
        assert node.replica(topic).is_offline
        assert await alter(node, paths[2]) == [ErrorCode.kafka_storage_error]
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        node.snapshot(*topic_records("events", topic))
        await node.until_open()
        assert await all_values(node, topic) == list(range(5))
        assert await alter(node, paths[2]) == [ErrorCode.none]
        await until_idle(node)
        assert on_disk(paths) == {"a": [], "b": [], "c": ["events-0"]}


@pytest.mark.parametrize("method", ["copy", "flush", "complete", "prepare"])
async def test_a_directory_that_hangs_does_not_keep_what_leaves_for_another(
    node: StorageHarness, paths: list[Path], method: str
) -> None:
    topic = await node.create_topic(replicas=(1, 2))
    await fill(node, topic, 5, acks=1)
    with hanging(method) as entered:
        await alter(node, paths[1])
        await until(entered.is_set)
        away(node, topic)
        await until(lambda: on_disk(paths)["a"] == [])
        back(node, topic)
        await node.until_open()
        assert place(node, topic) != "b" or method == "copy"
        await fill(node, topic, 3, acks=1)
        assert node.replicas.moves._moves
    await until_idle(node)
    await check_is_served(node, topic, paths, written=6)


async def test_what_was_refused_because_it_took_too_long_is_not_found_at_the_next_start(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        topic = await node.create_topic()
        await fill(node, topic, 3)
        for number, module in enumerate(("create_future", "ensure_topic_id")):
            entered, is_over = threading.Event(), threading.Event()
            target = log_moves if number == 0 else future_directory
            real = getattr(target, module)

            def slow(
                *arguments: Any, real: Any = real, entered: Any = entered, is_over: Any = is_over
            ) -> None:
                entered.set()
                is_over.wait(20)
                real(*arguments)

            lane = node.lanes[str(paths[1])]
            with monkeypatch.context() as patch:
                patch.setattr(target, module, slow)
                patch.setattr(lane, "run", partial(lane.run, wait_ms=50))
                assert await alter(node, paths[1]) == [ErrorCode.kafka_storage_error]
                is_over.set()
                await until_idle(node)
                await asyncio.get_running_loop().run_in_executor(lane.opening, lambda: None)
            await until(lambda: on_disk(paths) == {"a": ["events-0"], "b": [], "c": []})


async def test_a_move_begins_though_nobody_waits_for_the_answer(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 3)
    may_go_on, entered = threading.Event(), threading.Event()
    real = log_moves.create_future

    def slow(*arguments: Any) -> None:
        entered.set()
        may_go_on.wait(20)
        real(*arguments)

    monkeypatch.setattr(log_moves, "create_future", slow)
    asking = asyncio.create_task(alter(node, paths[1]))
    await until(entered.is_set)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await asyncio.sleep(0.1)  # the node hears of it
    may_go_on.set()
    await until(lambda: place(node, topic) == "b")
    await until_idle(node)


async def test_where_it_will_be_is_asked_of_the_move_that_changes_its_place(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 3)
    entered, leave = stopped_at_promote(monkeypatch)
    await alter(node, paths[1])
    await entered.wait()
    await alter(node, paths[2])
    assert await alter(node, paths[1]) == [ErrorCode.none]
    leave.set()
    await until_idle(node)
    assert place(node, topic) == "b"
    assert on_disk(paths) == {"a": [], "b": ["events-0"], "c": []}
    assert "a move has failed" not in caplog.text


async def test_what_changes_with_the_places_is_known_in_the_new_one(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are deleted, and a leader that writes nothing is elected."""
    topic = await node.create_topic()
    await fill(node, topic, 5)
    entered, leave = stopped_at_promote(monkeypatch, is_done=True)
    await alter(node, paths[1])
    await entered.wait()
    former = node.replica(topic).log
    assert former is not None
    former.maybe_increment_log_start_offset(3)
    node.apply(*topic_records("events", topic, leader_epoch=6))
    assert (await node.fetch(topic, 4)).error_code == 0, "reads go on"
    leave.set()
    await until_idle(node)
    moved = node.replica(topic).log
    assert moved is not None
    assert (place(node, topic), moved.log_start_offset) == ("b", 3)
    await until(lambda: moved.end_offset_for_epoch(6) == (6, 5))  # the writer thread does it
    assert not node.replica(topic).is_offline
