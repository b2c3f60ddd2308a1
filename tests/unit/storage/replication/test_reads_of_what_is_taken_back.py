"""A follower takes back what was committed, after an unclean election, while a consumer's read is in a thread."""

from __future__ import annotations

import asyncio
import errno
import struct
import threading
import uuid
from typing import Final

import pytest
from scripted_leader import LEADER, Follower, ScriptedStream, fill, until

from barnabas.kernel.errors import ErrorCode
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.segments.transaction_index import AbortedTransaction
from barnabas.records.batch import iterate_headers
from barnabas.records.control import encode_marker
from barnabas.records.record import encode_batch
from barnabas.storage.replica.replica import Replica

PARTITION_LEADER_EPOCH: Final = 12
"""Where it stands in a batch's header."""


def aborted(offset: int) -> bytes:
    """The marker that ends the producer's transaction."""
    marker = bytearray(
        encode_marker(
            committed=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1_700_000_000_000
        )
    )
    struct.pack_into(">q", marker, 0, offset)
    struct.pack_into(">i", marker, PARTITION_LEADER_EPOCH, 1)
    return bytes(marker)


def undecided(offset: int, count: int) -> bytes:
    """Batches of one record each, of a transaction that is open."""
    return b"".join(
        encode_batch(
            [(1_700_000_000_000, None, b"open", ())],
            base_offset=offset + number,
            partition_leader_epoch=1,
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
            transactional=True,
        )
        for number in range(count)
    )


async def test_a_read_that_looks_again_goes_by_what_is_committed_then(
    follower: Follower, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are other segments. What it knew before of the last stable offset is of another log."""
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    await fill(follower, topic, stream, 6)
    opened = follower.replica(topic).log
    assert opened is not None
    opened.roll()
    await fill(follower, topic, stream, 4)
    begun: list[int] = []
    listed = PartitionLog.aborted_transactions

    def held(
        log: PartitionLog, offset: int, upper_bound_offset: int, *, nowait: bool = False
    ) -> list[AbortedTransaction]:
        if nowait:
            raise BlockingIOError
        begun.append(offset)
        go.wait(20)
        return listed(log, offset, upper_bound_offset)

    monkeypatch.setattr(PartitionLog, "aborted_transactions", held)
    reading = asyncio.create_task(follower.node.fetch(topic, 0, isolation_level=1, from_follower=True))
    await until(lambda: begun)
    follower.lead(topic, LEADER, 1)
    await stream.until_heard(1, 10, 0)
    stream.tell(diverging=(0, 2))
    await stream.until_heard(1, 2, 0)
    stream.tell(undecided(2, 6), high_watermark=8, log_end_offset=8)
    await stream.until_heard(1, 8, 1)
    assert follower.replica(topic).last_stable_offset == 2
    go.set()
    fetched = await reading
    assert [header.base_offset for _, header in iterate_headers(fetched.records)] == [0, 1]
    assert (fetched.high_watermark, fetched.last_stable_offset) == (8, 2)


@pytest.mark.parametrize("level", [0, 1])
async def test_a_read_that_looked_before_goes_by_what_is_committed_then(
    follower: Follower, go: threading.Event, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """The same segment: it is found only once other records stand in it, which are not committed."""
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    await fill(follower, topic, stream, 10)
    opened = follower.replica(topic).log
    assert opened is not None
    begun: list[int] = []
    locate = opened.locate

    def held(offset: int, *arguments: object, nowait: bool = False, **named: object) -> object:
        if nowait:
            raise BlockingIOError
        begun.append(offset)
        go.wait(20)
        return locate(offset, *arguments, **named)

    monkeypatch.setattr(opened, "locate", held)
    reading = asyncio.create_task(follower.node.fetch(topic, 0, isolation_level=level, from_follower=True))
    await until(lambda: begun)
    follower.lead(topic, LEADER, 1)
    await stream.until_heard(1, 10, 0)
    stream.tell(diverging=(0, 2))
    await stream.until_heard(1, 2, 0)
    stream.tell(undecided(2, 6), high_watermark=2, log_end_offset=8)
    await stream.until_heard(1, 8, 1)
    go.set()
    fetched = await reading
    assert [header.base_offset for _, header in iterate_headers(fetched.records)] == [0, 1]
    assert fetched.high_watermark == 2


async def begin_with_an_abort(follower: Follower) -> tuple[uuid.UUID, ScriptedStream]:
    """A record, two that were aborted, and their marker, all of them committed; then there is another leader epoch."""
    topic = await follower.create(epoch=1)
    stream = await follower.network.stream()
    await stream.until_heard(1, 0)
    await fill(follower, topic, stream, 1, epoch=1)
    stream.tell(undecided(1, 2) + aborted(3), high_watermark=4, log_end_offset=4)
    await stream.until_heard(1, 4)
    assert follower.replica(topic).last_stable_offset == 4
    follower.lead(topic, LEADER, 2)
    await stream.until_heard(2, 4)
    return topic, stream


async def test_an_abort_that_is_taken_back_leaves_nothing_to_be_read_as_committed(
    follower: Follower, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its list goes before the producers' state is that of the shorter log."""
    begun: list[int] = []
    rebuild = LogProducers.rebuild

    def held(producers: LogProducers, end_offset: int) -> None:
        begun.append(end_offset)
        go.wait(20)
        rebuild(producers, end_offset)

    monkeypatch.setattr(LogProducers, "rebuild", held)
    topic, stream = await begin_with_an_abort(follower)
    stream.tell(diverging=(1, 3))
    await until(lambda: begun)
    fetched = await follower.node.fetch(topic, 0, isolation_level=1, from_follower=True)
    assert (fetched.error_code, fetched.records) == (0, b"")
    go.set()
    await stream.until_heard(2, 3)
    fetched = await follower.node.fetch(topic, 0, isolation_level=1, from_follower=True)
    assert [header.base_offset for _, header in iterate_headers(fetched.records)] == [0]
    assert fetched.last_stable_offset == 1


async def test_nor_does_one_whose_log_was_not_taken_back_to_its_end(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica goes offline, which the event loop hears of a moment later."""

    def refused(*_: object) -> None:
        raise OSError(errno.EIO, "refused")

    monkeypatch.setattr(LogProducers, "rebuild", refused)
    monkeypatch.setattr(Replica, "go_offline", lambda *_: None)
    topic, stream = await begin_with_an_abort(follower)
    opened = follower.replica(topic).log
    assert opened is not None
    stream.tell(diverging=(1, 3))
    await until(lambda: not opened.is_trusted)
    fetched = await follower.node.fetch(topic, 0, isolation_level=1, from_follower=True)
    assert (fetched.error_code, fetched.records) == (ErrorCode.kafka_storage_error, b"")
