"""Reading a fetch's partitions from their leaders, all at once, within the request's limits.

The fetch belongs to its client: it is answered within its max_wait and a grace with what the healthy leaders have, and
when the client is gone it is withdrawn from all of them.

A leader that is late holds up what others have for a moment only, and is not asked for more before it has answered:
its late answers are of no use, and many of them would keep it late. A session that has gone without what it has to say
is then given it, for as long as the fetch may take.

Where a follower is read from (`read_sources`) and has anything but records to tell, the leader is asked, for what is
left of the wait: a client hears of no error that is only the follower's, such as that its log does not reach that far
yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from barnabas.gateway import limits
from barnabas.gateway.clients.fetch_sessions import FINAL_EPOCH, NO_SESSION, PartitionKey, WantedPartition
from barnabas.gateway.inside.read_sources import ReadSources
from barnabas.gateway.inside.storage_codes import client_code
from barnabas.gateway.isolation import IsolationLevel
from barnabas.gateway.request import Request, milliseconds
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.tracing import current_traceparent
from barnabas.links.errors import DeadlinePassed, NotSentInTime, OutcomeUnknown, Unreachable
from barnabas.links.storage_link import Fetches
from barnabas.links.storage_messages import FetchedResult, PartitionFetched
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.messages.storage_pb2 import FetchRequest, PartitionFetch
from barnabas.metadata.leaders import LEADER_ERRORS, NOBODY_LEADS, current_leader, led_partition
from barnabas.wire.fetch import FetchedPartition

_LATE: Final = (DeadlinePassed, NotSentInTime)
_UNKNOWN: Final = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


LEADER_TOLD_FROM: Final = 16
"""Earlier versions have a place for who leads, which Kafka fills from here on (KIP-951)."""

_REQUEST_BYTES: Final = 64
_PARTITION_BYTES: Final = 48
"""About how large a FetchRequest is, and each of its partitions."""


class _NodeRead:
    """The part of a fetch that one storage node answers."""

    __slots__ = ("future", "indexes", "message", "stream")

    def __init__(self, message: FetchRequest) -> None:
        self.message = message
        self.indexes: list[int] = []
        self.stream: Fetches | None = None
        self.future: asyncio.Future[FetchedResult] | None = None


class FetchRead:
    """One fetch on its way: owns the results gathered so far, in the order of `wanted`."""

    def __init__(self, request: Request, wanted: Sequence[WantedPartition]) -> None:
        self._request = request
        self._wanted = wanted
        self._image = request.image
        self._sources = ReadSources(request)
        self._refused: list[int] = []
        """Wanted partitions that a follower could not be read for."""
        self._unread = request.parts.unread_answers
        self._held_bytes = 0
        """Of results that are there while others are waited for."""
        self._results: list[FetchedPartition | None] = [None] * len(wanted)

    async def run(self) -> list[tuple[PartitionKey, FetchedPartition | None]]:
        """Read, waiting as the request allows; one result for each wanted partition.

        None for a partition whose leader said nothing in time: nothing is known of it, good or bad.
        """
        reads = self._split_by_node()
        if any(result is not None for result in self._results):
            # Errors are told at once, with whatever the others have.
            for read in reads:
                read.message.max_wait_ms = 0
        elif not reads and not self._closes_session():
            # A session without partitions waits like any other, or its client would ask in a tight loop.
            await asyncio.sleep(self._max_wait_ms() / 1000)
        began = asyncio.get_running_loop().time()
        await self._read_all(reads)
        if self._refused:
            passed_ms = int((asyncio.get_running_loop().time() - began) * 1000)
            await self._read_all(self._split_by_leader(self._refused, passed_ms))
        return [(want.key, result) for want, result in zip(self._wanted, self._results, strict=True)]

    async def _read_all(self, reads: list[_NodeRead]) -> None:
        if any(not _owes_an_answer(read) for read in reads):
            reads = [read for read in reads if not _owes_an_answer(read)]
        for read in reads:
            self._start(read)
        self._request.wait.on_hurry(partial(_hurry, reads))
        try:
            if len(reads) == 1:
                await self._finish(reads[0])
            elif reads:
                await self._finish_several(reads)
        except asyncio.CancelledError:
            for read in reads:
                if read.stream is not None:
                    read.stream.withdraw(read.message)
            raise
        finally:
            self._request.wait.on_hurry(None)

    def not_answered(self, want: WantedPartition) -> FetchedPartition:
        """What is said of a partition whose leader said nothing, where something must be: clients look for it again."""
        return self._failed(want, NOBODY_LEADS)

    def _closes_session(self) -> bool:
        """Whether the client only says farewell: it waits for the answer before it ends (the Java client does)."""
        session_id: int = self._request.get("session_id", NO_SESSION)
        session_epoch: int = self._request.get("session_epoch", FINAL_EPOCH)
        return session_id != NO_SESSION and session_epoch == FINAL_EPOCH

    def _split_by_node(self) -> list[_NodeRead]:
        reads: dict[int, _NodeRead] = {}
        sources = self._sources
        for index, want in enumerate(self._wanted):
            record = led_partition(self._image, want.topic, want.partition)
            if isinstance(record, ErrorCode):
                self._results[index] = self._failed(want, record)
                continue
            node = sources.node_for(record)
            read = self._add(reads, node, index, record)
            if node == sources.addressed:
                read.message.rack_id, read.message.from_follower = sources.rack_id, True
            elif node != record.leader:
                read.message.from_follower = True
        return self._connect(reads)

    def _split_by_leader(self, indexes: Sequence[int], passed_ms: int) -> list[_NodeRead]:
        """For what followers had no records of; the image may be a newer one. At once where there is something to tell,
        else with the wait less what has passed of it, or the client would ask in a tight loop.
        """
        reads: dict[int, _NodeRead] = {}
        for index in indexes:
            want = self._wanted[index]
            record = led_partition(self._request.image, want.topic, want.partition)
            if isinstance(record, ErrorCode):
                self._results[index] = self._failed(want, record)
            else:
                self._add(reads, record.leader, index, record)
        read_bytes = sum(len(result.records) for result in self._results if result is not None)
        has_news = read_bytes or any(result is not None and result.error_code for result in self._results)
        for read in reads.values():
            read.message.max_wait_ms = 0 if has_news else max(0, read.message.max_wait_ms - passed_ms)
            read.message.max_bytes = max(0, read.message.max_bytes - read_bytes)
        return self._connect(reads)

    def _add(self, reads: dict[int, _NodeRead], node: int, index: int, record: PartitionRecord) -> _NodeRead:
        read = reads.get(node)
        if read is None:
            read = reads[node] = _NodeRead(self._message())
        want = self._wanted[index]
        read.indexes.append(index)
        read.message.partitions.append(
            PartitionFetch(
                topic_id=record.topic_id,
                partition=want.partition,
                fetch_offset=want.fetch_offset,
                max_bytes=want.max_bytes,
                current_leader_epoch=want.current_leader_epoch,
                last_fetched_epoch=want.last_fetched_epoch,
            )
        )
        return read

    def _connect(self, reads: dict[int, _NodeRead]) -> list[_NodeRead]:
        for node, read in reads.items():
            read.message.max_bytes = max(1, read.message.max_bytes // len(reads))
            connection = self._request.parts.links.storage(node)
            read.stream = connection.fetches if connection is not None else None
        return list(reads.values())

    def _max_wait_ms(self) -> int:
        return max(0, milliseconds(self._request.body.max_wait) - self._request.times.waited_ms)

    def _message(self) -> FetchRequest:
        body, config = self._request.body, self._request.parts.config
        room_bytes = max(limits.FETCH_BYTES_MIN, self._unread.fetch_bytes_max())
        return FetchRequest(
            max_wait_ms=self._max_wait_ms(),
            min_bytes=max(0, body.min_bytes),
            max_bytes=min(body.max_bytes, config.fetch_max_bytes, room_bytes),
            isolation_level=body.isolation_level,
            traceparent=current_traceparent(),
        )

    def _start(self, read: _NodeRead) -> None:
        if read.stream is not None:
            message = read.message
            read.future = read.stream.send(
                message,
                _REQUEST_BYTES + _PARTITION_BYTES * len(message.partitions),
                message.max_wait_ms / 1000 + limits.ANSWER_GRACE_SECONDS,
            )

    async def _finish(self, read: _NodeRead) -> None:
        try:
            if read.future is None:
                raise Unreachable("the leader is fenced")
            result = await read.future
        except _LATE:
            return
        except (Unreachable, OutcomeUnknown):
            for index in read.indexes:
                if read.message.from_follower and not self._sources.is_debugging:
                    self._refused.append(index)
                else:
                    self._results[index] = self._failed(self._wanted[index], NOBODY_LEADS)
        else:
            for index, got in zip(read.indexes, result.partitions, strict=True):
                has_failed = got.fields.error_code or got.fields.HasField("diverging")
                if has_failed and read.message.from_follower and not self._sources.is_debugging:
                    self._refused.append(index)
                else:
                    self._results[index] = self._fetched(self._wanted[index], got)

    async def _finish_several(self, reads: list[_NodeRead]) -> None:
        """The first node that has something to say ends the wait for the others, which answer with what they have.

        They get a moment for it, and those that answered nobody lately not even that.
        """
        tasks = {asyncio.ensure_future(self._finish_counted(read)): read for read in reads}
        try:
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                stream, message = tasks[task].stream, tasks[task].message
                assert stream is not None, "without a stream it has finished"
                stream.hurry(message)
            waited_for = [task for task in pending if not _is_silent(tasks[task])]
            if waited_for:
                late = any(
                    self._wanted[index].was_late for task in waited_for for index in tasks[task].indexes
                )
                # Without a limit of ours each has its own, which `send` was given.
                await asyncio.wait(waited_for, timeout=None if late else limits.LATE_LEADER_SECONDS)
            for task, read in tasks.items():
                if task.done():
                    task.result()
                elif read.stream is not None:
                    read.stream.give_up(read.message)
        finally:
            for task in tasks:
                task.cancel()
            self._unread.give_back(self._held_bytes)
            self._held_bytes = 0

    async def _finish_counted(self, read: _NodeRead) -> None:
        """What is there of one node counts while others are waited for."""
        await self._finish(read)
        found = (self._results[index] for index in read.indexes)
        size_bytes = sum(len(result.records) for result in found if result is not None)
        self._held_bytes += size_bytes
        self._unread.take(size_bytes)

    def _fetched(self, want: WantedPartition, fetched: PartitionFetched) -> FetchedPartition:
        got = fetched.fields
        code = client_code(got.error_code)
        if code is not ErrorCode.none:
            return self._failed(want, code)
        if fetched.records and (want.max_bytes < 0 or self._request.body.max_bytes < 0):
            return self._failed(
                want, ErrorCode.invalid_request
            )  # less than nothing is wanted, and there is something
        aborted = diverging = None
        if self._request.body.isolation_level == IsolationLevel.READ_COMMITTED:
            aborted = [(entry.producer_id, entry.first_offset) for entry in got.aborted_transactions]
        if got.HasField("diverging"):
            diverging = (got.diverging.leader_epoch, got.diverging.end_offset)
        return FetchedPartition(
            want.partition,
            code,
            got.high_watermark,
            got.last_stable_offset,
            got.log_start_offset,
            fetched.records,
            aborted,
            diverging,
            None,
            got.preferred_read_replica if got.HasField("preferred_read_replica") else -1,
        )

    def _failed(self, want: WantedPartition, code: ErrorCode) -> FetchedPartition:
        self._request.times.count_error(code)
        is_told = code in LEADER_ERRORS and self._request.version >= LEADER_TOLD_FROM
        leader = self._current_leader(want) if is_told else None
        aborted = () if code in _UNKNOWN else None  # nothing more than a habit of Kafka's
        return FetchedPartition(want.partition, code, -1, -1, -1, b"", aborted, None, leader)

    def _current_leader(self, want: WantedPartition) -> tuple[int, int] | None:
        image = self._request.image
        leads = current_leader(image, want.topic, want.partition)
        return None if leads is None else (self._request.shown_leader(image, leads[0]), leads[1])


def _hurry(reads: list[_NodeRead]) -> None:
    """Have the nodes answer with what they have."""
    for read in reads:
        if read.stream is not None:
            read.stream.hurry(read.message)


def _is_silent(read: _NodeRead) -> bool:
    return read.stream is not None and read.stream.is_silent


def _owes_an_answer(read: _NodeRead) -> bool:
    """Whether it is silent, and has a request already that it may answer."""
    return read.stream is not None and read.stream.is_silent and read.stream.waiting_requests > 0
