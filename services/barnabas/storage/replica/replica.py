"""One replica of one partition: who may write and read it, and up to where.

A partition is opened in a thread; until then appends wait for it in order. Then they run one at a time, on the event
loop while the log directory is fast, else in its writer thread (`DirectoryLane`): as long as one of a partition's is
there, all that follow go there too. What they change besides the log is changed on the event loop, so that the high
watermark moves in one place: `_advance_high_watermark`.

While anything of the partition is in the writer thread, it may hold the log's lock for as long as the disk takes; then
nothing on the event loop may take that lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.append import AppendInfo, AppendOrigin
from barnabas.log.config import LONG_MAX
from barnabas.log.errors import WouldBlock
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.rpc.v1.metadata_pb2 import PartitionRecord
from barnabas.storage import limits
from barnabas.storage.counts import TopicCounts
from barnabas.storage.directories.directory_lane import DirectoryLane, Done, LaneItem
from barnabas.storage.directories.lane_queue import LaneQueue, OnWithdrawn
from barnabas.storage.replica.coordinator_claim import CoordinatorClaim
from barnabas.storage.replica.group_commit import GroupCommit
from barnabas.storage.replica.offset_waiters import OffsetWaiters, OnDecided
from barnabas.storage.replica.topic_settings import TopicSettings
from barnabas.storage.replica.unawaited_flushes import UnawaitedFlushes

if TYPE_CHECKING:
    from barnabas.storage.fetching.delayed_fetch import DelayedFetch, FetchPurgatory

NO_EPOCH: Final = -1
ALL_REPLICAS: Final = -1
"""acks=all."""
NOT_LEADER: Final = int(ErrorCode.not_leader_or_follower)
FENCED_EPOCH: Final = int(ErrorCode.fenced_leader_epoch)
UNKNOWN_EPOCH: Final = int(ErrorCode.unknown_leader_epoch)

OnAppended = Callable[[AppendInfo | None, KafkaError | None, float], None]
"""Called once on the event loop with what an append in the writer thread came to, and the seconds that it took."""

log = get_logger("storage.partition")


class Replica:
    """Owner of one replica: its log, its part in the cluster, its high watermark, and those who wait on it. `log` is
    None until it is open. `counts` are those of its topic on this node.
    """

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        *,
        internal: bool,
        node_id: int,
        settings: TopicSettings,
        counts: TopicCounts,
        purgatory: FetchPurgatory,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.internal = internal
        self.log: PartitionLog | None = None
        self.lane: DirectoryLane | None = None
        """The way to the disk of the log directory that holds the log."""
        self.record = PartitionRecord(leader=-1, leader_epoch=NO_EPOCH)
        self.settings = settings
        self.is_leader = False
        self.leader_epoch = NO_EPOCH
        self.newer_epoch = NO_EPOCH
        """What the log has seen, where that is newer than the metadata's: nothing is appended then (`NewerEpochs`)."""
        self.high_watermark = 0
        self.error = NOT_LEADER
        """Kafka's error code for all who come while the partition is not led by this node; 0 while it is."""
        self.is_offline = False
        """Whether the disk failed where what it holds is no longer known."""
        self.refused = RefusedSequences()
        """What clients are to send again: it was given up, here or in the log."""
        self.watchers: dict[DelayedFetch, int] = {}
        """Waiting fetches and the offset that each wants."""
        self.counts = counts
        self._node_id = node_id
        self._purgatory = purgatory
        self._commit: GroupCommit | None = None
        self._unawaited: UnawaitedFlushes | None = None
        self._for_high_watermark = OffsetWaiters()
        self._for_sync = OffsetWaiters()
        self._parked: deque[Callable[[], None]] | None = deque()
        self._parked_bytes = 0
        self._unseen_bytes = 0
        self._end_offset = 0
        """The log's end as the event loop knows it: an append in the writer thread may have moved it already."""
        self._queue: LaneQueue | None = None
        self._stable_offset = 0
        """The last stable offset when it was last asked for; it never goes back."""

    def __repr__(self) -> str:
        return f"<Replica {self.name}>"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed consumers stop; at most the high watermark.

        While the writer thread has work of this partition it is what the last append there left.
        """
        assert self.log is not None, f"{self.name} has no log yet"
        if not self._queue:
            self._stable_offset = self.log.last_stable_offset(self.high_watermark)
        return self._stable_offset

    # -- life ---------------------------------------------------------------------------------------------------

    @property
    def is_opening(self) -> bool:
        """Whether the log will be there soon: appends may be parked."""
        return self._parked is not None

    def park(self, action: Callable[[], None], size_bytes: int) -> bool:
        """Run `action` once the log is open, or has failed to open; False when too much waits already."""
        assert self._parked is not None, f"{self.name} is not being opened"
        if self._parked_bytes + size_bytes > limits.PARKED_BYTES_MAX:
            return False
        self._parked.append(action)
        self._parked_bytes += size_bytes
        return True

    def on_open(self, opened: PartitionLog, high_watermark: int, lane: DirectoryLane) -> None:
        """The log is open; `high_watermark` is the one written down before the last stop."""
        self.log = opened
        self.lane = lane
        self._queue = LaneQueue(lane)
        opened.refused = self.refused
        self._end_offset = opened.log_end_offset
        self._commit = GroupCommit(opened, lane.flush, self._on_synced, self._go_offline)
        self._unawaited = UnawaitedFlushes(self.name, opened, lane.flush, self._go_offline)
        self.high_watermark = min(max(high_watermark, opened.log_start_offset), opened.log_end_offset)
        self._stable_offset = opened.log_start_offset
        opened.update_config(self.settings.log)
        self.follow(self.record)
        self._unpark()

    def on_open_failed(self) -> None:
        """The log cannot be opened: the partition is offline."""
        self.is_offline = True
        self.error = int(ErrorCode.kafka_storage_error)
        self._unpark()

    def _unpark(self) -> None:
        parked, self._parked = self._parked, None
        self._parked_bytes = 0
        for action in parked or ():
            action()

    def follow(self, record: PartitionRecord) -> None:
        """Take the part that the controller's `record` gives to this replica."""
        if record.leader == self._node_id and self.record.isr:
            self.counts.on_isr_change(len(self.record.isr), len(record.isr))
        self.record = record
        if self.log is None or self.is_offline:
            return
        leads = record.leader == self._node_id
        if leads == self.is_leader and record.leader_epoch == self.leader_epoch:
            return
        self.leader_epoch = record.leader_epoch
        self.is_leader = leads
        self.error = 0 if leads else NOT_LEADER
        seen = self.log.latest().leader_epoch
        self.newer_epoch = seen if seen > record.leader_epoch else NO_EPOCH
        if leads:
            if seen < record.leader_epoch:
                # Before the appends of this epoch, each of which would do the same if it failed. That waits for no
                # disk, so it goes to the writer thread only behind appends there: a node that starts comes to lead
                # thousands of partitions at once.
                begin = partial(self.log.assign_epoch_start, record.leader_epoch)
                if self._queue:
                    self._enter_lane(begin, lambda *_: None)
                else:
                    begin()
            self._advance_high_watermark()
        else:
            self._withdraw_all(NOT_LEADER)
            self._fail_waiters(NOT_LEADER)
        # Whoever waits under the old epoch is to learn of the new one.
        self._complete_watchers()

    def update_settings(self, settings: TopicSettings) -> None:
        """Obey other settings from now on."""
        if settings is not self.settings:
            self.settings = settings
            if self.log is None:
                return
            if self._queue:
                self._enter_lane(partial(self.log.update_config, settings.log), lambda *_: None)
            else:
                self.log.update_config(settings.log)

    def on_removed(self) -> None:
        """The partition is no longer here: its topic was deleted, or it moved to other nodes."""
        self.is_leader = False
        self.error = int(ErrorCode.unknown_topic_or_partition)
        self._unpark()
        self._withdraw_all(self.error)
        self._fail_waiters(self.error)
        self._complete_watchers()
        self._stop_flushes()

    def _go_offline(self, error: BaseException) -> None:
        """A sync failed: nothing is served until the next start has recovered the log."""
        log.error("partition is offline: its disk failed", partition=self.name, reason=str(error))
        self.is_offline = True
        self._stop_flushes()
        self.is_leader = False
        self.error = int(ErrorCode.kafka_storage_error)
        self._withdraw_all(self.error)
        self._fail_waiters(self.error)
        self._complete_watchers()

    def _stop_flushes(self) -> None:
        if self._unawaited is not None:
            self._unawaited.stop()

    def _fail_waiters(self, error_code: int) -> None:
        self._for_high_watermark.fail(error_code)
        self._for_sync.fail(error_code)

    def _complete_watchers(self) -> None:
        for fetch in list(self.watchers):
            fetch.complete()

    # -- leader epochs ------------------------------------------------------------------------------------------

    def check_epoch(self, leader_epoch: int) -> int:
        """Kafka's error code for a sender that knows `leader_epoch` (-1: does not say), 0 when it may go on."""
        if self.error:
            return self.error
        if leader_epoch == self.leader_epoch or leader_epoch == NO_EPOCH:
            return 0
        return FENCED_EPOCH if leader_epoch < self.leader_epoch else UNKNOWN_EPOCH

    # -- appending ----------------------------------------------------------------------------------------------

    def appends_directly(self, now: float) -> bool:
        """Whether the next append may run on the event loop (`append`); else it has to `append_in_lane`."""
        return not self._queue and (self.lane is None or self.lane.is_direct(now))

    def append(
        self, records: bytes, leader_epoch: int, acks: int, *, claim: CoordinatorClaim | None = None
    ) -> AppendInfo:
        """Append whole record batches as the leader; `wait` then says when they may be acknowledged.

        `claim` is what a coordinator says of itself, None for clients. Raises KafkaError: the codes of `check_epoch`
        and of the claim's checks, what the log refuses, INVALID_TOPIC_EXCEPTION for a client's records to an internal
        topic, NOT_ENOUGH_REPLICAS under acks=all. Raises WouldBlock, with nothing changed,
        when the log needs more of its disk than a write: then it is a matter for `append_in_lane`.
        """
        try:
            self._admit(leader_epoch, acks, claim)
            info = self._write(records, self.leader_epoch, claim, may_block=False)
        except KafkaError as refused:
            self.refused.note(refused.code, records)
            self._on_refused(refused, len(records))
            raise
        self._on_written(info, len(records))
        return info

    def append_in_lane(
        self,
        records: bytes,
        leader_epoch: int,
        acks: int,
        *,
        claim: CoordinatorClaim | None = None,
        on_appended: OnAppended,
    ) -> LaneItem:
        """The same in the writer thread; it can be taken back with `withdraw` until it begins. Raises KafkaError for
        what can be refused at once: that includes too much that waits for the directory.
        """
        try:
            self._admit(leader_epoch, acks, claim)
            return self._append_in_lane(records, claim, on_appended)
        except KafkaError as refused:
            self.refused.note(refused.code, records)
            self.count_refused(int(refused.code), len(records))
            raise

    def _append_in_lane(
        self, records: bytes, claim: CoordinatorClaim | None, on_appended: OnAppended
    ) -> LaneItem:
        size_bytes = len(records)
        # The epoch under which it was admitted: a later one stands behind it in the lane.
        leader_epoch = self.leader_epoch

        def write() -> tuple[AppendInfo, int]:
            assert self.log is not None
            info = self._write(records, leader_epoch, claim, may_block=True)
            return info, self.log.last_stable_offset(self.high_watermark)

        def on_done(result: object, error: BaseException | None) -> None:
            if error is not None:
                # Anything else is a fault of ours, which the lane has logged.
                fault = KafkaError(ErrorCode.unknown_server_error)
                refused = error if isinstance(error, KafkaError) else fault
                self._on_refused(refused, size_bytes)
                on_appended(None, refused, item.seconds)
                return
            assert isinstance(result, tuple)
            info, self._stable_offset = result
            self._on_written(info, size_bytes)
            if not self.is_leader:
                # It is in the log, but this replica does not decide any more whether it stays.
                lost = KafkaError(ErrorCode(self.error or NOT_LEADER))
                self.count_refused(int(lost.code), size_bytes)
                on_appended(None, lost, item.seconds)
            else:
                on_appended(info, None, item.seconds)

        def on_withdrawn(reason: KafkaError) -> None:
            self.refused.add(records)
            self.count_refused(int(reason.code), size_bytes)
            on_appended(None, reason, 0.0)

        item = self._enter_lane(write, on_done, size_bytes, on_withdrawn)
        return item

    def _enter_lane(
        self,
        work: Callable[[], object],
        on_done: Done,
        size_bytes: int = 0,
        on_withdrawn: OnWithdrawn | None = None,
    ) -> LaneItem:
        assert self._queue is not None, "a log has its queue"
        if not self._queue and self.log is not None:
            # The last chance to ask the log itself.
            self._stable_offset = self.log.last_stable_offset(self.high_watermark)
        return self._queue.submit(work, on_done, size_bytes, on_withdrawn)

    def on_overdue(self, item: LaneItem, records: bytes) -> None:
        """Nobody waits for the append any more: if it has not begun it is never written, else it may still land."""
        assert self.lane is not None, "what is in a lane has one"
        assert self._queue is not None
        self.lane.on_overdue()
        self.refused.add(records)  # before one behind it can begin; should this one land, it is forgotten
        self._queue.withdraw(item)

    def _withdraw_all(self, error_code: int) -> None:
        if self._queue is not None:  # the one that runs in the writer thread goes on
            self._queue.withdraw_all(KafkaError(ErrorCode(error_code)))

    def _admit(self, leader_epoch: int, acks: int, claim: CoordinatorClaim | None) -> None:
        """The checks that need no look at the log."""
        error = self.check_epoch(leader_epoch) or (NOT_LEADER if self.newer_epoch != NO_EPOCH else 0)
        if error:
            advice = f"leader epoch {leader_epoch} was given, {self.leader_epoch} is current"
            raise KafkaError(ErrorCode(error), advice if error in (FENCED_EPOCH, UNKNOWN_EPOCH) else "")
        if claim is not None:
            claim.check_owner(self.record, internal=self.internal)
        elif self.internal:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"clients may not write to {self.topic}")
        if acks == ALL_REPLICAS:
            self._check_in_sync_replicas()

    def _write(
        self, records: bytes, leader_epoch: int, claim: CoordinatorClaim | None, *, may_block: bool
    ) -> AppendInfo:
        """Append to the log, and change nothing else: with `may_block` this is in the writer thread."""
        assert self.log is not None, "a leader has its log"
        origin = AppendOrigin.CLIENT
        if claim is not None:
            if may_block:
                # While it waited for the writer thread the partition may have gone to another coordinator.
                claim.check_owner(self.record, internal=self.internal)
            # One step with the append: nothing may come between them.
            claim.check_log_end(self.log.log_end_offset)
            origin = AppendOrigin.COORDINATOR
        try:
            return self.log.append_as_leader(records, leader_epoch, origin=origin, may_block=may_block)
        except KafkaError as refused:
            self.refused.note(refused.code, records)  # here and now: the next one may be about to begin
            raise

    def append_at_once(self, records: bytes, acks: int) -> AppendInfo | None:
        """Append one batch of a client's as `append` does, where it can be acknowledged when this returns.

        None, with nothing changed, where it cannot: the log is not led here or not open, its directory is not known to
        be fast, other replicas or a sync have to be waited for, or the batch is refused.
        """
        lane, opened, commit = self.lane, self.log, self._commit
        if self.error or self.internal or lane is None or opened is None or commit is None or self._queue:
            return None
        if commit.is_pending or self.settings.log.flush_messages < LONG_MAX or len(self.record.isr) != 1:
            return None
        began = perf_counter()
        if not lane.is_direct(began):
            return None
        try:
            if acks == ALL_REPLICAS:
                self._check_in_sync_replicas()
            info = opened.append_as_leader(records, self.leader_epoch, may_block=False)
        except (KafkaError, WouldBlock):
            return None
        lane.on_append(began, perf_counter())
        self._on_written(info, len(records))
        return info

    def _check_in_sync_replicas(self) -> None:
        in_sync = len(self.record.isr)
        # A topic with fewer replicas than the setting asks for needs all of them.
        needed = min(self.settings.min_insync_replicas, len(self.record.replicas))
        if in_sync < needed:
            advice = f"{in_sync} replicas are in sync, {needed} are needed"
            raise KafkaError(ErrorCode.not_enough_replicas, advice)

    def _on_refused(self, refused: KafkaError, size_bytes: int) -> None:
        if refused.code == ErrorCode.kafka_storage_error and self.lane is not None and not self.is_offline:
            self.lane.on_refusal(refused.message)
        self.count_refused(int(refused.code), size_bytes)

    def count_refused(self, error_code: int, size_bytes: int) -> None:
        """An append was not done, or not to be acknowledged, with this code of Kafka's."""
        self.counts.appends += 1
        self.counts.on_refused_append(error_code, size_bytes)

    def _on_written(self, info: AppendInfo, size_bytes: int) -> None:
        """On the event loop, after each append: what follows from it besides the log."""
        self.counts.appends += 1
        if info.duplicate:
            return
        self.counts.messages_in += info.last_offset - info.first_offset + 1
        self.counts.bytes_in += size_bytes
        self._unseen_bytes += size_bytes
        self._end_offset = info.last_offset + 1
        assert self.log is not None
        assert self.lane is not None
        assert self._commit is not None
        assert self._unawaited is not None
        self.lane.on_success()
        if self.is_offline:
            return
        config = self.settings.log
        if config.flush_messages < LONG_MAX and self.log.unflushed_records >= config.flush_messages:
            self._commit.request()
            self._unawaited.on_append(LONG_MAX)
        else:
            self._unawaited.on_append(config.flush_ms)
        self._advance_high_watermark()

    def wait(self, offset: int, acks: int, on_decided: OnDecided) -> bool:
        """Have `on_decided` called once records before `offset` may be acknowledged; False if they may at once."""
        if acks == ALL_REPLICAS:
            if self.high_watermark >= offset:
                return False
            self._for_high_watermark.add(offset, on_decided)
            return True
        commit = self._commit
        if acks == 0 or commit is None or not commit.is_waiting_for(offset):
            return False
        self._for_sync.add(offset, on_decided)
        return True

    # -- high watermark and durability --------------------------------------------------------------------------

    def _advance_high_watermark(self) -> None:
        """Move the high watermark to where every in-sync replica is, and tell those who wait for it: the only place
        that moves it. This replica is the only one, so that is its own log end; while a sync that flush.messages asked
        for is running, it is what is known to be durable.
        """
        assert self.log is not None
        commit = self._commit
        replicated = self._end_offset
        if commit is not None and commit.is_pending:
            replicated = min(replicated, self.log.recovery_point)
        if not self.is_leader or replicated <= self.high_watermark:
            return
        self.high_watermark = replicated
        if self._for_high_watermark:
            self._for_high_watermark.release(replicated)
        if self.watchers:
            self._purgatory.on_growth(self, self._unseen_bytes)
        self._unseen_bytes = 0

    def _on_synced(self, offset: int) -> None:
        self._for_sync.release(offset)
        self._advance_high_watermark()
