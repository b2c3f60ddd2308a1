"""Whoever asks a node that comes, goes or changes its part where a log ends hears the truth or an error.

An end that lies before what was acknowledged would have a reader take a full log for an empty one, and lose what it
skips. So after every single step of the event loop, from the moment that the node can be asked, ListOffsets and Fetch
are asked, and held to what was acknowledged and to what they said before.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from typing import Any, Final

import pytest
from storage_harness import StorageHarness, batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import EARLIEST, LATEST
from barnabas.messages.storage_pb2 import ListOffsetsPartition, ListOffsetsResult
from barnabas.storage.handlers.list_offsets import ListOffsetsHandler

TOPIC: Final = uuid.UUID(int=7)
TRY_AGAIN: Final = frozenset((int(ErrorCode.not_leader_or_follower), int(ErrorCode.unknown_topic_id)))
"""What a gateway makes NOT_LEADER_OR_FOLLOWER of, at which clients ask again."""


class SteppedLoop(asyncio.SelectorEventLoop):
    """Calls `after_step` after each callback that it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.after_step: Callable[[], None] = lambda: None
        self.failure: AssertionError | None = None
        """The first of `after_step`: an event loop raises what its callbacks do to nobody."""

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        return super().call_soon(self._step, callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._step, callback, *args, context=context)

    def _step(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)
        if self.failure is None:
            try:
                self.after_step()
            except AssertionError as failure:
                self.failure = failure


class Reader:
    """Asks for both ends of one log, and for its records; owns what it knows of them."""

    def __init__(self) -> None:
        self.node: StorageHarness | None = None
        """Who is asked, if anybody can be."""
        self.acknowledged = 0
        """Where the log ends by what producers were told."""
        self._told = 0
        self.answers: Counter[str] = Counter()

    def ask(self) -> None:
        node = self.node
        if node is None:
            return
        lookups = ListOffsetsHandler(node.replicas)
        for isolation_level in (0, 1):
            start = _answer_of(lookups, EARLIEST, isolation_level)
            end = _answer_of(lookups, LATEST, isolation_level)
            assert start.error_code == end.error_code, "one step, one answer"
            if end.error_code:
                assert end.error_code in TRY_AGAIN
                assert end.offset == -1
                self.answers["refused"] += 1
            else:
                assert start.offset == 0
                assert end.offset >= max(self.acknowledged, self._told)
                self._told = end.offset
                self.answers["told"] += 1
        self._fetch(node)

    def _fetch(self, node: StorageHarness) -> None:
        (answer,) = node.reader.read(node.fetch_request(TOPIC)).answers
        fields = answer.fields
        if fields.error_code:
            assert fields.error_code in TRY_AGAIN
            assert fields.high_watermark == -1
        else:
            assert (fields.log_start_offset, fields.high_watermark) == (0, fields.last_stable_offset)
            assert fields.high_watermark >= max(self.acknowledged, self._told)
            assert bool(answer.records) == (fields.high_watermark > 0)


def _answer_of(lookups: ListOffsetsHandler, timestamp_ms: int, isolation_level: int) -> ListOffsetsResult:
    """Without a step of the event loop between: an end is known, or it is not."""
    item = ListOffsetsPartition(
        topic_id=TOPIC.bytes, partition=0, current_leader_epoch=-1, timestamp_ms=timestamp_ms
    )
    asked = lookups._answer(item, isolation_level)
    try:
        asked.send(None)
    except StopIteration as answered:
        result: ListOffsetsResult = answered.value
        return result
    raise AssertionError("an end of the log has to be waited for")


async def append(node: StorageHarness, reader: Reader, *values: bytes) -> None:
    result = await node.append(TOPIC, batch(*values))
    assert (result.error_code, result.base_offset) == (0, reader.acknowledged)
    reader.acknowledged += len(values)


def lead(node: StorageHarness, leader: int, leader_epoch: int) -> None:
    """An election, which changes the partition's record and nothing else."""
    partition, _topic = topic_records("events", TOPIC, leader=leader, leader_epoch=leader_epoch)
    node.apply(partition)


async def live(node: StorageHarness, reader: Reader, life: int) -> None:
    """What a controller makes of a node that has come: it is fenced, leads, leads no longer and leads again."""
    epoch = 10 * life
    await asyncio.sleep(0)
    node.revision = 1_000 * (life + 1)
    node.snapshot(*topic_records("events", TOPIC, leader=-1, leader_epoch=epoch), revision=node.revision)
    await asyncio.sleep(0)
    lead(node, 1, epoch + 1)
    await append(node, reader, b"a", b"b")
    # Others are created and opened beside it.
    node.apply(*topic_records("others", uuid.UUID(int=100 + life), 10))
    await append(node, reader, b"c")
    await node.until_open()
    for number, leader in enumerate((-1, 1, 2, 1, 1), start=2):
        lead(node, leader, epoch + number)
        await asyncio.sleep(0)
    await append(node, reader, b"d")


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("crash", [False, True])
def test_an_end_is_the_true_one_or_an_error_at_every_step(
    tmp_path: Path, *, crash: bool, threaded: bool
) -> None:
    """`threaded`: with two log directories all appends run in writer threads."""
    others = [tmp_path / "b"] if threaded else []
    reader = Reader()

    async def lives() -> None:
        for life in range(3):
            async with run_node(tmp_path / "a", tmp_path / f"s{life}", others, crash=crash) as node:
                reader.node = node
                await live(node, reader, life)
            reader.node = None

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SteppedLoop)
        loop.after_step = reader.ask
        runner.run(lives())
    if loop.failure is not None:
        raise loop.failure
    assert reader.acknowledged == 12
    assert reader.answers["told"]
    assert reader.answers["refused"]
