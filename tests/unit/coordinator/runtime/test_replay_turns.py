"""Many partitions that are loaded at a time leave the event loop its turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from coordinator_node import Node
from log_in_memory import LogInMemory

from barnabas.coordinator.groups.codec import encode_record
from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.runtime.replay_turns import ReplayTurns
from barnabas.records.record import encode_batch

PARTITIONS = 20
RECORDS = 100
AT_ONCE = 10


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_YIELD_RECORDS", AT_ONCE)
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_YIELD_BYTES", 1_000_000)


class Steps:
    """Owner of how many steps were taken, by whom, and of the most in one turn of the loop."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.most_at_once = 0

    def of(self, name: int, count: int, size_bytes: int = 1) -> Iterator[int]:
        for _ in range(count):
            self.taken.append(name)
            yield size_bytes

    @contextlib.asynccontextmanager
    async def watched(self, count: Callable[[], int] | None = None) -> AsyncIterator[None]:
        counted = count or (lambda: len(self.taken))

        async def watch() -> None:
            before = counted()
            while True:
                await asyncio.sleep(0)
                self.most_at_once = max(self.most_at_once, counted() - before)
                before = counted()

        watching = asyncio.create_task(watch())
        yield
        watching.cancel()


class PlainLog(LogInMemory):
    """As a node in the same process gives it: what is in memory is there at once, as much as was asked for."""

    async def read(self, partition: int, end_offset: int) -> AsyncIterator[bytes]:
        yield b"".join(self.batches.get(partition, []))


async def test_many_share_what_one_may_replay_in_a_turn_of_the_loop() -> None:
    turns, steps = ReplayTurns(), Steps()
    async with steps.watched():
        await asyncio.gather(*(turns.replay(steps.of(name, RECORDS)) for name in range(PARTITIONS)))
    assert len(steps.taken) == PARTITIONS * RECORDS
    assert steps.most_at_once == AT_ONCE


async def test_those_that_have_little_share_it_too() -> None:
    turns, steps = ReplayTurns(), Steps()
    async with steps.watched():
        await asyncio.gather(*(turns.replay(steps.of(name, 3)) for name in range(PARTITIONS)))
    assert len(steps.taken) == PARTITIONS * 3
    assert steps.most_at_once == AT_ONCE


async def test_one_that_has_little_does_not_wait_for_all_that_others_have() -> None:
    turns, steps = ReplayTurns(), Steps()
    large = asyncio.create_task(turns.replay(steps.of(1, 100 * AT_ONCE)))
    while not steps.taken:
        await asyncio.sleep(0)
    await turns.replay(steps.of(2, 1))
    assert steps.taken.count(1) <= 2 * AT_ONCE
    assert not large.done()
    await large


async def test_few_large_ones_are_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.limits.LOAD_YIELD_BYTES", 100)
    turns, steps = ReplayTurns(), Steps()
    async with steps.watched():
        await asyncio.gather(*(turns.replay(steps.of(name, 9, size_bytes=50)) for name in range(3)))
    assert steps.most_at_once == 2


async def test_what_is_little_for_one_turn_needs_no_second_one() -> None:
    turns, steps = ReplayTurns(), Steps()
    async with steps.watched():
        for _ in range(5):
            await turns.replay(steps.of(1, AT_ONCE - 1))
            await asyncio.sleep(0)
    assert steps.most_at_once == AT_ONCE - 1


async def test_one_that_is_given_up_or_fails_keeps_nobody_waiting() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("damaged")

    turns, steps = ReplayTurns(), Steps()
    tasks = [asyncio.create_task(turns.replay(steps.of(name, RECORDS))) for name in range(4)]
    while not steps.taken:
        await asyncio.sleep(0)
    for task in tasks[:3]:  # the one whose turn it is, and those that wait
        task.cancel()
    with pytest.raises(ValueError, match="damaged"):
        await turns.replay(failing())
    await asyncio.gather(*tasks, return_exceptions=True)
    assert steps.taken.count(3) == RECORDS


async def test_partitions_that_are_taken_over_at_a_time_leave_the_loop_its_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each had its own count once: a broker that took over fifty of them sent no heartbeat for seconds."""
    log, replayed = PlainLog(), 0
    node = Node("a", log)
    for partition in range(PARTITIONS):
        records = [
            (0, *encode_record(OffsetRecord(f"g{each}", "t", 0, OffsetAndMetadata(each))), ())
            for each in range(RECORDS)
        ]
        log.batches[partition] = [encode_batch(records)]
        log.ends[partition] = RECORDS
    replay = GroupShard.replay

    def counted(shard: GroupShard, record: OffsetRecord) -> None:
        nonlocal replayed
        replayed += 1
        replay(shard, record)

    monkeypatch.setattr(GroupShard, "replay", counted)
    node.see("a", partitions=PARTITIONS)
    running = asyncio.create_task(node.coordinator.partitions.run())
    steps = Steps()
    async with steps.watched(lambda: replayed):
        while not node.coordinator.partitions.is_loaded():
            await asyncio.sleep(0)
    running.cancel()
    assert replayed >= PARTITIONS * RECORDS
    assert steps.most_at_once <= AT_ONCE
