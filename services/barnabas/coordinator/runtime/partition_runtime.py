"""One partition of a coordinator's topic, from loading its log to writing decisions to it.

Decisions are applied at once and in order, and written in the same order; each answer waits until its own records
and all records decided before it are committed. That is right because nobody is told anything that rests on a
record which may still be lost.

**Fencing.** The log's leader takes an append only under the coordinator epoch that it knows for the partition, and only
where the log ends as the append says. So of a write whose answer was lost nothing needs to be guessed: it is sent
again as it was, and either lands now, or is refused because the log has grown, by itself. In that case, and in every
other in which the log is not what it was expected to be, the partition is read again.

**Loading** starts with a write that says no end. Once it is committed, it is certain that nothing of an earlier
coordinator can follow (its epoch is refused), nothing of a broken stream of our own (it expects an earlier end), and
that the log up to there can be read.

**A log that takes no writes**, because the disk is full or stalls or the node is away, costs no state: the write under
way is sent again until it lands. Meanwhile the partition is READ_ONLY. Who waits for a write is told to try again, and
so is whoever asks for another; what needs none is answered at once, from what is committed. Where it matters that
nobody else owns the partition by now, that is known only while the log's leader itself refuses: it knows who does. Time
stands still: a session that ends would have to be written. A decision that was refused this way may yet land with the
rest, as any write may whose answer did not come; it does so before anything that is decided later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Generic

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.runtime.core.decision import Waiter
from barnabas.coordinator.runtime.kind import DecisionT, Kind, RecordT, ShardT, UnreadableRecord
from barnabas.coordinator.runtime.load_times import LoadTimes
from barnabas.coordinator.runtime.log_errors import (
    LOG_MOVED,
    NOT_TAKEN,
    PASSING,
    for_client,
)
from barnabas.coordinator.runtime.metrics import RuntimeMetrics
from barnabas.coordinator.runtime.partition_state import LOADED, PartitionState
from barnabas.coordinator.runtime.replay_turns import ReplayTurns
from barnabas.coordinator.runtime.topic_log import TopicLog
from barnabas.coordinator.runtime.waiting_answers import WaitingAnswers
from barnabas.coordinator.runtime.write_queue import Append, WriteQueue
from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.kernel.tracing import in_trace
from barnabas.records.batch import iterate_headers
from barnabas.records.record import RecordParts, encode_batch

log = get_logger("coordinator.partition")


class PartitionRuntime(Generic[ShardT, DecisionT, RecordT]):
    """Owns the shard of one partition under one coordinator epoch, the calls that wait in it, and its writes.

    `lines` are shared by the partitions of the coordinator: the same thing keeps many of them from being loaded. So
    are `replay_turns`, for they share an event loop.
    `on_deadline` hears after each decision when `on_time` is needed next, in monotonic ms.
    """

    def __init__(
        self,
        partition: int,
        coordinator_epoch: int,
        kind: Kind[ShardT, DecisionT, RecordT],
        topic_log: TopicLog,
        config: CoordinatorConfig,
        environment: Environment,
        metrics: RuntimeMetrics,
        lines: RareLines,
        replay_turns: ReplayTurns,
        on_deadline: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self.state = PartitionState.LOADING
        self._kind = kind
        self._log = topic_log
        self._config = config
        self._clock = environment.clock
        self._new_id = environment.new_id
        self._metrics = metrics
        self._logger = log.bind(topic=kind.topic, partition=partition)
        self._lines = lines
        self._replay_turns = replay_turns
        self._on_deadline = on_deadline
        self._shard = kind.make_shard()
        self._waiting = WaitingAnswers()
        self._queue: WriteQueue[RecordT] = WriteQueue(kind.head)
        self._queued = asyncio.Event()
        self._turn: asyncio.Handle | None = None
        """Ends the turn of the event loop in which something was decided, while nothing is being written."""
        self.load_times = LoadTimes(environment.clock, config.coordinator_load_wait_ms)
        self._log_end = 0
        """Where the log ends, after all that is known to be in it."""
        self._broken = False
        self._owner_at: float | None = None
        """When the last write was sent, by the event loop's time, if the log's leader refused it as it does to the
        owner alone."""
        self._replayed = 0
        """Records of the log, while it is being read."""

    @property
    def is_loaded(self) -> bool:
        """Whether requests that need no write are served, at least."""
        return self.state in LOADED

    @property
    def shard(self) -> ShardT:
        """The state, for reading. Raises KafkaError when it is not loaded."""
        if self.state is PartitionState.LOADING:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        if self.state is PartitionState.CLOSED:
            raise KafkaError(ErrorCode.not_coordinator)
        return self._shard

    async def run(self) -> None:
        """Load and serve, again after each failure of the log, until cancelled."""
        try:
            while True:
                self.load_times.begin()
                try:
                    await self._load()
                    self.load_times.on_loaded()
                    await self._write_forever()
                except (KafkaError, UnreadableRecord) as error:
                    self._on_log_failed(error)
                except Exception:
                    self._logger.exception("partition failed")
                    self._drop(KafkaError(ErrorCode.unknown_server_error))
                await self.load_times.pause()
        finally:
            self.close()

    def close(self) -> None:
        """Serve no longer; whoever waits is sent to look for the new coordinator."""
        self.state = PartitionState.CLOSED
        self.load_times.end_wait()
        self._waiting.fail_all(KafkaError(ErrorCode.not_coordinator))

    def check_takes_writes(self) -> None:
        """Raise COORDINATOR_LOAD_IN_PROGRESS while nothing that must be written is decided."""
        if self.state is PartitionState.READ_ONLY or self._queue.is_full:
            raise self._cannot_write()

    # -- deciding -----------------------------------------------------------------------------------------------

    async def submit(
        self,
        decide: Callable[[ShardT, Waiter, DecisionT], None],
        *,
        writes: bool = True,
        is_brief: bool = False,
    ) -> Any:
        """Decide about one request and return its answer once everything that it rests on is in the log.

        `decide` answers the waiter, now or in a later decision. `writes` is False for what changes nothing: that is
        decided although the log takes no writes, and may not ask for one then. What `is_brief` has an answer of a few
        bytes, and is decided although many wait for theirs. Raises KafkaError when the partition is not being served,
        or stops being served meanwhile; COORDINATOR_LOAD_IN_PROGRESS for what cannot be written now.
        """
        await self.load_times.wait_for_first()
        waiter, answer = self._ask(decide, writes=writes, is_brief=is_brief)
        try:
            return await answer
        finally:
            self._waiting.forget(waiter)

    def begin(
        self,
        decide: Callable[[ShardT, Waiter, DecisionT], None],
        *,
        writes: bool = True,
        is_brief: bool = False,
    ) -> asyncio.Future[Any]:
        """As `submit`, but decide now; the answer is there, or comes. Who wants it no longer cancels it."""
        waiter, answer = self._ask(decide, writes=writes, is_brief=is_brief)
        self._waiting.forget_once_over(waiter)
        return answer

    def _ask(
        self, decide: Callable[[ShardT, Waiter, DecisionT], None], *, writes: bool, is_brief: bool
    ) -> tuple[Waiter, asyncio.Future[Any]]:
        shard = self.shard
        if writes:
            self.check_takes_writes()
        if self._queue.holds_many_answers and not is_brief:
            raise self._cannot_write()
        waiter, answer = self._waiting.add()
        try:
            self._decide(lambda decision: decide(shard, waiter, decision), waiter)
            # A deadline that is due already, such as an initial rebalance delay of 0, need not wait for a timer.
            self.on_time()
            self._announce_deadline()
        except BaseException:
            self._waiting.forget(waiter)
            raise
        return waiter, answer

    def do(self, work: Callable[[ShardT, DecisionT], None]) -> None:
        """Decide something that no client asked for; nothing happens while the log cannot be written."""
        if self.state is not PartitionState.SERVING:
            return
        try:
            self._decide(lambda decision: work(self._shard, decision))
        except Exception:
            # Nobody waits for an answer, and one partition's trouble is none of the others'.
            self._logger.exception("decision failed")

    def on_time(self) -> bool:
        """Handle deadlines that are due; whether any was."""
        next_ms = self.next_deadline_ms()
        is_due = next_ms is not None and next_ms <= self._monotonic_ms()
        if is_due:
            self.do(self._kind.on_time)
        return is_due

    def on_jump(self, jumped_ms: int) -> None:
        """The clock went forward by `jumped_ms` at once."""
        self._shard.on_jump(self._monotonic_ms(), jumped_ms)

    def next_deadline_ms(self) -> int | None:
        """When `on_time` is needed next, in monotonic ms; None for never."""
        return self._shard.next_deadline_ms() if self.state is PartitionState.SERVING else None

    def _announce_deadline(self) -> None:
        next_ms = self.next_deadline_ms()
        if next_ms is not None:
            self._on_deadline(next_ms)

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _decide(self, work: Callable[[DecisionT], None], waiter: Waiter | None = None) -> None:
        """Have `work` decide, for `waiter` if it has one."""
        decision = self._make_decision()
        is_read_only = decision.is_read_only
        try:
            work(decision)
            assert not (is_read_only and (decision.records or decision.must_be_owner)), (
                "what writes is refused while the log takes no writes"
            )
            if decision.must_be_owner and not (decision.records or self._queue.has_next):
                # What waits is sent later than now, and shows as much; what is under way may have landed long ago.
                decision.records.append(self._kind.barrier)
            encoded = self._encode_all(decision)
            if encoded is None:
                self._take_back(decision, waiter)
                return
            for record in decision.records:
                self._shard.replay_uncommitted(record)
        except Exception:
            # What the decision has changed so far cannot be known: start again from the log.
            self.state = PartitionState.LOADING
            self._broken = True
            self._queued.set()
            raise
        self._waiting.deliver(decision.replies_at_once)
        if decision.records:
            self._queue.add(decision.records, encoded, decision.replies)
            if self._turn is None and self._queue.under_way is None:
                self._turn = asyncio.get_running_loop().call_soon(self._end_turn)
        elif self._queue and not is_read_only:
            self._queue.reply_after_all(decision.replies)
        else:
            self._waiting.deliver(decision.replies)
        for note in decision.notes:
            log.info(note.event, **note.fields)
        self._kind.count(decision)

    def _make_decision(self) -> DecisionT:
        is_read_only = self.state is PartitionState.READ_ONLY
        decision = self._kind.make_decision(
            self._clock.now_ms(), self._monotonic_ms(), self._new_id, is_read_only
        )
        if is_read_only and self._owner_at is not None:
            known_seconds = asyncio.get_running_loop().time() - self._owner_at
            decision.is_owner_by_refusal = known_seconds <= limits.OWNER_KNOWN_SECONDS
        return decision

    def _encode_all(self, decision: DecisionT) -> list[RecordParts] | None:
        """The decision's records as bytes; None when one of them has no bytes."""
        try:
            return [self._encode(record, decision.now_ms) for record in decision.records]
        except Exception:
            self._logger.exception("a decision cannot be written and is taken back")
            return None

    def _take_back(self, decision: DecisionT, waiter: Waiter | None) -> None:
        """Nothing of `decision` was replayed: what it is about goes on from what the log says, all else as it was."""
        after = self._make_decision()
        stranded = self._kind.start_afresh(self._shard, decision.records, after)
        assert not after.records, "what starts afresh is in the log already"
        told = [asked for asked, _ in (*decision.replies_at_once, *decision.replies)]
        error = KafkaError(ErrorCode.unknown_server_error, "what was asked for cannot be written to the log")
        self._waiting.fail((*stranded, *told, *([] if waiter is None else [waiter])), error)

    def _encode(self, record: RecordT, now_ms: int) -> RecordParts:
        key, value = self._kind.encode(record)
        return now_ms, key, value, ()

    # -- loading ------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        """Read the log and serve it. Raises KafkaError, after which it is served READ_ONLY or not at all."""
        barrier = encode_batch([self._encode(self._kind.barrier, self._clock.now_ms())])
        asked_at = asyncio.get_running_loop().time()
        try:
            end = await self._log.append(self.partition, self.coordinator_epoch, barrier, None)
        except KafkaError as refused:
            self._note_refusal(refused, asked_at)
            if refused.code in NOT_TAKEN and not self.is_loaded:
                # The leader knows our epoch: nobody else writes any more, and who has written before is not told of
                # what is committed from now on. So what is committed now can be told.
                await self._read(await self._log.committed_end(self.partition), PartitionState.READ_ONLY)
            raise
        self._log_end, self._owner_at = end + 1, None
        await self._read(end, PartitionState.SERVING)

    async def _read(self, end_offset: int, state: PartitionState) -> None:
        """Replay the log up to `end_offset` into a new shard and serve that in `state`."""
        started = perf_counter()
        shard = self._kind.make_shard()
        self._replayed = 0
        async for chunk in self._log.read(self.partition, end_offset):
            await self._replay_turns.replay(self._replay(shard, chunk))
        if self._kind.on_producers is not None:
            # Nothing was written since the last record that was read: the leader knows the producers of that log.
            self._kind.on_producers(shard, await self._log.producers(self.partition))
        self._shard, self._broken, self.state = shard, False, state
        self.load_times.end_wait()
        self._decide(lambda decision: self._kind.on_loaded(shard, decision))
        self._announce_deadline()
        seconds = perf_counter() - started
        self._metrics.load_seconds.observe(seconds)
        self._logger.debug(
            "loaded",
            state=state.value,
            coordinator_epoch=self.coordinator_epoch,
            records=self._replayed,
            seconds=round(seconds, 3),
        )

    def _replay(self, shard: ShardT, chunk: bytes) -> Iterator[int]:
        """Replay whole batches, a record a step, and say what was read for it: a batch for the first of its records."""
        view = memoryview(chunk)
        for position, header in iterate_headers(chunk):
            size_bytes = header.size_in_bytes
            for record in self._kind.decode_batch(view[position : position + size_bytes]):
                shard.replay(record)
                self._replayed += 1
                yield size_bytes
                size_bytes = 0

    # -- writing ------------------------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        """Write what was decided in it: at once where the log is that near, else it is for `_write_forever`."""
        self._turn = None
        try:
            while self.state is PartitionState.SERVING and self._queue.has_next and not self._queue.under_way:
                self._write_at_once(self._queue.next_append())
        except Exception:
            self._logger.exception("partition failed")
            self.state, self._broken = PartitionState.LOADING, True
        if self._queue or self._broken:
            self._queued.set()

    def _write_at_once(self, append: Append) -> None:
        """It stays under way where that cannot be; so does what is traced, as the other way has the spans."""
        began, place = perf_counter(), (self.partition, self.coordinator_epoch)
        near = None if append.traceparent else self._log.append_at_once(*place, append.batches, self._log_end)
        if near is not None:
            self._metrics.append_seconds.observe(perf_counter() - began)
            self._on_written(near, append)

    def _on_written(self, first_offset: int, append: Append) -> None:
        """What was under way is in the log: say what rests on it."""
        self._log_end = first_offset + append.record_count
        for write in self._queue.on_written():
            for record in write.records:
                self._shard.on_committed(record)
            self._waiting.deliver(write.replies)

    async def _write_forever(self) -> None:
        while True:
            await self._queued.wait()
            self._queued.clear()
            while self._queue:
                append = self._queue.under_way or self._queue.next_append()
                with self._metrics.append_seconds.time(), in_trace(append.traceparent):
                    first_offset = await self._write(append)
                self._on_written(first_offset, append)
                self._resume()
            self._check_whole()

    async def _write(self, append: Append) -> int:
        """Have `append` land where it belongs, however long that takes, and return the first offset. Raises KafkaError
        when it never will."""
        patience_seconds = self._config.offsets_commit_timeout_ms / 1000
        loop = asyncio.get_running_loop()
        timer = loop.call_later(patience_seconds, self._become_read_only, "a write takes too long")
        pause_ms = limits.APPEND_RETRY_MS_MIN
        try:
            while True:
                asked_at = loop.time()
                try:
                    first_offset = await self._log.append(
                        self.partition, self.coordinator_epoch, append.batches, self._log_end
                    )
                    self._owner_at = None
                    return first_offset
                except KafkaError as error:
                    self._note_refusal(error, asked_at)
                    if error.code not in PASSING:
                        raise
                    if error.code in NOT_TAKEN:
                        self._become_read_only(str(error))
                    self._logger.debug("a write is sent again", reason=str(error))
                await asyncio.sleep(pause_ms / 1000)
                self._check_whole()
                pause_ms = min(pause_ms * 2, limits.APPEND_RETRY_MS_MAX)
        finally:
            timer.cancel()

    def _check_whole(self) -> None:
        if self._broken:
            raise KafkaError(ErrorCode.unknown_server_error, "a decision failed half way")

    def _note_refusal(self, refused: KafkaError, asked_at: float) -> None:
        """The log's leader says to the owner alone that it has no room or too few replicas; nothing else that it says
        tells who that is. It may have said so at once, and this process have been frozen before it heard of it.
        """
        self._owner_at = asked_at if refused.code in NOT_TAKEN else None

    def _become_read_only(self, reason: str) -> None:
        """Decide nothing more that must be written, and keep nobody waiting for what is."""
        if self.state is not PartitionState.SERVING:
            return
        self.state = PartitionState.READ_ONLY
        self._logger.warning("partition is served for reading only", reason=reason)
        self._waiting.fail(self._queue.take_waiters(), self._cannot_write())

    def _cannot_write(self) -> KafkaError:
        what = f"the log of {self._kind.topic}-{self.partition} takes no writes now"
        return KafkaError(ErrorCode.coordinator_load_in_progress, what)

    def _resume(self) -> None:
        """A write landed: decide as ever."""
        if self.state is not PartitionState.READ_ONLY:
            return
        self.state = PartitionState.SERVING
        self._logger.info("partition is served again")
        shard = self._shard
        self._decide(lambda decision: self._kind.on_resumed(shard, decision))
        self._announce_deadline()

    # -- failing ------------------------------------------------------------------------------------------------

    def _on_log_failed(self, error: KafkaError | UnreadableRecord) -> None:
        """The log must be read again, or could not be. What is known to be committed is told meanwhile."""
        if isinstance(error, UnreadableRecord) or error.code not in PASSING | LOG_MOVED or not self.is_loaded:
            self._drop(error)
            return
        if error.code in LOG_MOVED:
            self._metrics.unloads.inc()
        self.load_times.on_failed(error)
        self._become_read_only(str(error))
        self._queue.clear()
        self._waiting.fail_all(for_client(error))

    def _drop(self, error: KafkaError | UnreadableRecord) -> None:
        """Forget everything: only the log knows what is true now."""
        # A node that starts takes a moment: fifty partitions need not say so, unless it takes long.
        is_loading = self.state is PartitionState.LOADING
        is_early = is_loading and self.load_times.is_early
        say = self._lines.info if is_early and isinstance(error, KafkaError) else self._lines.warning
        say(
            "partition is not served",
            ("soon" if is_early else "late") if is_loading else str(self.partition),
            topic=self._kind.topic,
            partition=self.partition,
            coordinator_epoch=self.coordinator_epoch,
            state=self.state.value,
            reason=str(error),
        )
        self._metrics.unloads.inc()
        self.load_times.on_failed(error)
        self.state = PartitionState.LOADING
        self._shard = self._kind.make_shard()
        self._queue.clear()
        self._broken = False
        self._waiting.fail_all(for_client(error))
