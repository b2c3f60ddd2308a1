"""One partition of __consumer_offsets, from loading its log to writing decisions to it.

Decisions are applied at once and in order, and written in the same order; each answer waits until its own records
and all records decided before it are committed. That is right because nobody is told anything that rests on a
record which may still be lost: when a write fails, everything decided since is known to this process alone. So the
state is dropped whole and read from the log again, and whoever waited is told to come back.

Loading starts with a write. Only when a record of ours, under our leader epoch, is committed is it certain that
nothing of an earlier coordinator can still enter the log (its epoch is refused) and that the log up to there is
committed and thus readable. That record is a tombstone for the group "", which no group can be.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import Message

from barnabas.coordinator import limits
from barnabas.coordinator.codec import UnreadableRecord, decode_batch, encode_batches
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.core.deadlines import on_loaded, on_time
from barnabas.coordinator.core.records import GroupRecord
from barnabas.coordinator.core.shard import GroupShard
from barnabas.coordinator.core.turn import Turn, Waiter
from barnabas.coordinator.metrics import CoordinatorMetrics
from barnabas.coordinator.offsets_log import OffsetsLog
from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.kernel.tracing import current_traceparent, in_trace
from barnabas.records.batch import iterate_headers

log = get_logger("coordinator.partition")

Decide = Callable[[GroupShard, Waiter, Turn], None]
"""Decides about one request: answers the waiter, now or in a later turn."""

_BARRIER = GroupRecord("", None)


_NOT_OPENED_YET: Final = (ErrorCode.unknown_topic_id, ErrorCode.not_leader_or_follower)
"""What a storage node says of a log that it is about to open: nothing to worry about while loading."""


class PartitionState(enum.Enum):
    LOADING = "loading"
    SERVING = "serving"
    CLOSED = "closed"


@dataclass(slots=True)
class _Pending:
    """A decision on its way into the log, and what to say once it is there."""

    batches: bytes
    replies: list[tuple[Waiter, Message]]
    traceparent: str = field(default_factory=current_traceparent)
    """The span of the request that was decided about."""


class PartitionRuntime:
    """Owns the shard of one partition under one leader epoch, the calls that wait in it, and its writes.

    `on_deadline` hears after each turn when `on_time` is needed next, in monotonic ms.
    """

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        offsets_log: OffsetsLog,
        config: CoordinatorConfig,
        clock: Clock,
        metrics: CoordinatorMetrics,
        on_deadline: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = PartitionState.LOADING
        self._log = offsets_log
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._on_deadline = on_deadline
        self._shard = GroupShard(config)
        self._waiting: dict[Waiter, asyncio.Future[Any]] = {}
        self._next_waiter = 1
        self._queue: deque[_Pending] = deque()
        self._in_flight: list[_Pending] = []
        self._queued = asyncio.Event()
        self._loaded_once = asyncio.Event()
        self._broken = False

    @property
    def shard(self) -> GroupShard:
        """The groups, for reading. Raises KafkaError when they are not loaded."""
        if self.state is PartitionState.LOADING:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        if self.state is PartitionState.CLOSED:
            raise KafkaError(ErrorCode.not_coordinator)
        return self._shard

    async def run(self) -> None:
        """Load and serve, again after each failure of the log, until cancelled."""
        pause_ms = limits.LOAD_RETRY_MS_MIN
        try:
            while True:
                try:
                    await self._load()
                    pause_ms = limits.LOAD_RETRY_MS_MIN
                    await self._write_forever()
                except (KafkaError, UnreadableRecord) as error:
                    self._drop(error)
                except Exception:
                    log.exception("partition failed", partition=self.partition)
                    self._drop(KafkaError(ErrorCode.unknown_server_error))
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, limits.LOAD_RETRY_MS_MAX)
        finally:
            self.close()

    def close(self) -> None:
        """Serve no longer; whoever waits is sent to look for the new coordinator."""
        self.state = PartitionState.CLOSED
        self._loaded_once.set()
        self._fail_waiting(KafkaError(ErrorCode.not_coordinator))

    async def first_load(self) -> None:
        """Wait until the partition was loaded once or is given up, coordinator.load.wait.ms at most."""
        if not self._loaded_once.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.coordinator_load_wait_ms / 1000):
                    await self._loaded_once.wait()

    async def submit(self, decide: Decide) -> Any:
        """Decide about one request and return its answer once everything that it rests on is in the log.

        Raises KafkaError when the partition is not being served, or stops being served meanwhile.
        """
        await self.first_load()
        shard = self.shard
        waiter = Waiter(self._next_waiter)
        self._next_waiter += 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = future
        try:
            self._take_turn(lambda turn: decide(shard, waiter, turn))
            # A deadline that is due already, such as an initial rebalance delay of 0, need not wait for a timer.
            self.on_time()
            self._announce_deadline()
            return await future
        finally:
            del self._waiting[waiter]

    def do(self, work: Callable[[GroupShard, Turn], None]) -> None:
        """Decide something that no client asked for; nothing happens while the partition is not served."""
        if self.state is not PartitionState.SERVING:
            return
        try:
            self._take_turn(lambda turn: work(self._shard, turn))
        except Exception:
            # Nobody waits for an answer, and one partition's trouble is none of the others'.
            log.exception("decision failed", partition=self.partition)

    def on_time(self) -> None:
        """Handle deadlines that are due."""
        next_ms = self.next_deadline_ms()
        if next_ms is not None and next_ms <= self._monotonic_ms():
            self.do(on_time)

    def next_deadline_ms(self) -> int | None:
        """When `on_time` is needed next, in monotonic ms; None for never."""
        return self._shard.timers.next_ms() if self.state is PartitionState.SERVING else None

    def _announce_deadline(self) -> None:
        next_ms = self.next_deadline_ms()
        if next_ms is not None:
            self._on_deadline(next_ms)

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _take_turn(self, work: Callable[[Turn], None]) -> None:
        turn = Turn(self._clock.now_ms(), self._monotonic_ms(), str(uuid.uuid4()))
        try:
            work(turn)
            batches = encode_batches(turn.records, turn.now_ms) if turn.records else b""
            for record in turn.records:
                self._shard.replay(record)
        except Exception:
            # What the decision has changed so far cannot be known: start again from the log.
            self.state = PartitionState.LOADING
            self._broken = True
            self._queued.set()
            raise
        if batches:
            self._queue.append(_Pending(batches, turn.replies))
            self._queued.set()
        elif self._queue or self._in_flight:
            last = self._queue[-1] if self._queue else self._in_flight[-1]
            last.replies.extend(turn.replies)
        else:
            self._deliver(turn.replies)
        for note in turn.notes:
            log.info(note.event, **note.fields)
        self._metrics.rebalances.inc(turn.rebalances_completed)
        self._metrics.offset_commits.inc(turn.offsets_committed)
        self._metrics.offset_expirations.inc(turn.offsets_expired)

    def _deliver(self, replies: list[tuple[Waiter, Message]]) -> None:
        for waiter, message in replies:
            future = self._waiting.get(waiter)
            if future is not None and not future.done():
                future.set_result(message)

    async def _load(self) -> None:
        started = time.perf_counter()
        shard = GroupShard(self._config)
        barrier = encode_batches([_BARRIER], self._clock.now_ms())
        end_offset = await self._log.append(self.partition, self.leader_epoch, barrier)
        count = 0
        async for chunk in self._log.read(self.partition, self.leader_epoch, end_offset):
            view = memoryview(chunk)
            for position, header in iterate_headers(chunk):
                for record in decode_batch(view[position : position + header.size_in_bytes]):
                    shard.replay(record)
                    count += 1
                    if count % limits.LOAD_YIELD_RECORDS == 0:
                        await asyncio.sleep(0)
        self._shard = shard
        self.state = PartitionState.SERVING
        self._loaded_once.set()
        self._take_turn(lambda turn: on_loaded(shard, turn))
        self._announce_deadline()
        seconds = time.perf_counter() - started
        self._metrics.load_seconds.observe(seconds)
        log.debug(
            "loaded",
            partition=self.partition,
            leader_epoch=self.leader_epoch,
            records=count,
            groups=len(shard.groups),
            seconds=round(seconds, 3),
        )

    async def _write_forever(self) -> None:
        while True:
            await self._queued.wait()
            self._queued.clear()
            while self._queue:
                self._in_flight = self._next_append()
                records = b"".join(pending.batches for pending in self._in_flight)
                # One append for many requests: its span is a child of the first one's that is traced.
                traceparent = next((each.traceparent for each in self._in_flight if each.traceparent), "")
                with self._metrics.append_seconds.time(), in_trace(traceparent):
                    await self._log.append(self.partition, self.leader_epoch, records)
                written, self._in_flight = self._in_flight, []
                for pending in written:
                    self._deliver(pending.replies)
            if self._broken:
                raise KafkaError(ErrorCode.unknown_server_error, "a decision failed half way")

    def _next_append(self) -> list[_Pending]:
        """The decisions that go into the log together: those that waited, up to a size."""
        taken = [self._queue.popleft()]
        size = len(taken[0].batches)
        while self._queue and size + len(self._queue[0].batches) <= limits.APPEND_BYTES_TARGET:
            pending = self._queue.popleft()
            size += len(pending.batches)
            taken.append(pending)
        return taken

    def _drop(self, error: KafkaError | UnreadableRecord) -> None:
        """Forget everything: only the log knows what is true now."""
        is_new = isinstance(error, KafkaError) and error.code in _NOT_OPENED_YET
        say = log.info if is_new and self.state is PartitionState.LOADING else log.warning
        say(
            "partition is not served",
            partition=self.partition,
            leader_epoch=self.leader_epoch,
            while_=self.state.value,
            reason=str(error),
        )
        self._metrics.unloads.inc()
        if not is_new:
            self._loaded_once.set()  # it was, or it may take long: nobody is to wait for it
        self.state = PartitionState.LOADING
        self._shard = GroupShard(self._config)
        self._queue.clear()
        self._in_flight = []
        self._broken = False
        self._fail_waiting(for_client(error))

    def _fail_waiting(self, error: KafkaError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)


_FOR_CLIENTS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_not_available: ErrorCode.coordinator_not_available,
    ErrorCode.unknown_leader_epoch: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.fenced_leader_epoch: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
}
"""What a client is told when the log fails, by the storage node's code; anything else is UNKNOWN_SERVER_ERROR."""


def for_client(error: KafkaError | UnreadableRecord) -> KafkaError:
    """The error that a client understands when `error` came from the log."""
    if isinstance(error, UnreadableRecord):
        return KafkaError(ErrorCode.coordinator_not_available)
    return KafkaError(_FOR_CLIENTS.get(error.code, ErrorCode.unknown_server_error), error.message)
