"""How an append comes into a replica's log: on the event loop, in the writer thread of its directory, or at once.

Appends of a replica run one at a time, on the event loop while the log directory is fast, else in its writer
thread (`DirectoryLane`): as long as one of a replica's is there, all that follow go there too. Those whose records take
long to look at wait for that first, where they are in nobody else's way (`RecordChecks`). What they change besides the
log is changed on the event loop.

While anything of the replica is in the writer thread, it may hold the log's lock for as long as the disk takes; then
nothing on the event loop may take that lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.kernel.clock import machine_seconds
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import ALL_REPLICAS, NO_EPOCH
from barnabas.log.config import LogConfig
from barnabas.log.errors import Refuser, WouldBlock, refuser_of
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendInfo, AppendOrigin, CheckedAppend
from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.log.producers.verification_guards import NO_GUARD
from barnabas.records.batch import HEADER_SIZE, parse_header
from barnabas.records.validate import LongCheck
from barnabas.storage.directories.directory_lane import DirectoryLane, LaneItem
from barnabas.storage.directories.lane_queue import LaneQueue
from barnabas.storage.replica.coordinator_claim import CoordinatorClaim
from barnabas.storage.replica.error_codes import (
    FENCED_EPOCH,
    NOT_LEADER,
    REMOVED,
    STORAGE_ERROR,
    UNKNOWN_EPOCH,
)
from barnabas.storage.replica.refusing_log import RefusingLog
from barnabas.storage.transactions.unverified import UnverifiedBatches

if TYPE_CHECKING:
    from barnabas.storage.replica.replica import Replica

OnAppended = Callable[[AppendInfo | None, KafkaError | None, float], None]
"""Called once on the event loop with what an append in the writer thread came to, and the seconds that it took."""


class Appending:
    """Owner of what one replica has in the writer thread, and of what its clients are to send again."""

    __slots__ = (
        "_lane",
        "_log",
        "_queue",
        "_replica",
        "refused",
        "refuses_clients",
        "refusing",
        "unverified",
    )

    def __init__(self, replica: Replica, refused: RefusedSequences) -> None:
        """`refused` is what clients were told to send again before there was this replica."""
        self._replica = replica
        self._log: PartitionLog | None = None
        self._lane: DirectoryLane | None = None
        self._queue: LaneQueue | None = None
        self.refused = refused
        """What clients are to send again: it was given up, here or in the log."""
        self.refuses_clients = False
        """Whether nothing of clients is taken, for another node is about to lead."""
        self.refusing: RefusingLog | None = None
        """Once the log was refused something for a reason of its own."""
        self.unverified = UnverifiedBatches()
        """What waits until the coordinators of its transactions have been asked."""

    def open(self, opened: PartitionLog, lane: DirectoryLane, queue: LaneQueue) -> None:
        """The log is open; `queue` is what the replica has in `lane`, the way to its disk."""
        opened.refused = self.refused
        if self._log is not None:
            opened.guards = self._log.guards
        self._log = opened
        self._lane = lane
        self.refusing = None
        self._queue = queue

    def check_known(self, records: bytes) -> None:
        """Whether records may be taken although an earlier batch of their producer may still be to come: by their
        sequences, which only a log that knows the producer can check.

        Raises OUT_OF_ORDER_SEQUENCE_NUMBER. Producers are looked up and not locked: who is not known yet, as what makes
        it known waits for the writer thread, sends again.
        """
        if self._log is None or self._replica.error or len(records) < HEADER_SIZE:
            return  # refused for another reason
        producer_id = parse_header(records).producer_id
        if producer_id >= 0 and not self._log.knows_producer(producer_id):
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {producer_id} has nothing here, and an earlier batch of it was refused",
            )

    # -- on the event loop --------------------------------------------------------------------------------------

    def is_direct(self, now: float) -> bool:
        """Whether the next append may run on the event loop (`append`); else it has to `append_in_lane`."""
        is_queued = self._queue is not None and self._queue.items
        return not is_queued and (self._lane is None or self._lane.is_direct(now))

    def append(
        self,
        records: bytes,
        leader_epoch: int,
        acks: int,
        *,
        claim: CoordinatorClaim | None = None,
        guard: int = NO_GUARD,
    ) -> AppendInfo:
        """Append whole record batches as the leader; `Replica.wait` then says when they may be acknowledged.

        `claim` is what a coordinator says of itself, None for clients; `guard` the one under which `Verification` has
        asked about the records. Raises KafkaError: the codes of `check_epoch` and of the claim's checks, what the log
        refuses, INVALID_TOPIC_EXCEPTION for a client's records to an internal topic, NOT_ENOUGH_REPLICAS under
        acks=all. Raises WouldBlock, with nothing changed, when the log needs more of its disk than a write, or the
        records a longer look: then it is a matter for `append_in_lane`.
        """
        try:
            self.admit(leader_epoch, acks, claim)
            info = self._write(records, self._replica.leader_epoch, claim, guard, may_block=False)
        except KafkaError as refused:
            self.refused.note(refused.code, records)
            self._on_refused(refused, len(records))
            raise
        self._on_written(info, len(records))
        return info

    @property
    def may_append_at_once(self) -> bool:
        """Whether `append_at_once` is worth trying."""
        replica = self._replica
        return replica.acknowledges_at_once and not (
            replica.error or replica.internal or self.refuses_clients
        )

    def append_at_once(self, records: memoryview, acks: int, guard: int = NO_GUARD) -> AppendInfo | None:
        """Append one batch of a client's as `append` does, where it can be acknowledged when this returns.

        None, with nothing changed, where it cannot: the log is not led here or not open, its directory is not known to
        be fast, other replicas or a sync have to be waited for, or the batch is refused.
        """
        if not self.may_append_at_once:
            return None
        lane, opened, leader_epoch = self._lane, self._log, self._replica.leader_epoch
        assert lane is not None and opened is not None, "a leader has its log"  # noqa: PT018
        return self._at_once(
            lambda: opened.append_as_leader(
                records, leader_epoch, guard=guard, may_block=False, time=lane.checks.loop_time
            ),
            len(records),
        )

    def write_at_once(
        self, records: bytes, leader_epoch: int, claim: CoordinatorClaim, guard: int
    ) -> AppendInfo | None:
        """Append a coordinator's batches under acks=all as `append` does, where `append_at_once` would a client's."""
        replica = self._replica
        if replica.error or not replica.acknowledges_at_once:
            return None

        def write() -> AppendInfo:
            self.admit(leader_epoch, ALL_REPLICAS, claim)
            return self._write(records, replica.leader_epoch, claim, guard, may_block=False)

        return self._at_once(write, len(records))

    def _at_once(self, write: Callable[[], AppendInfo], size_bytes: int) -> AppendInfo | None:
        replica, lane, queue = self._replica, self._lane, self._queue
        assert lane is not None and queue is not None, "a leader has its log"  # noqa: PT018
        began = machine_seconds()
        if queue.items or not lane.is_direct(began):
            return None
        try:
            info = write()
        except (KafkaError, WouldBlock):
            return None
        ended = machine_seconds()
        if not info.duplicate:
            lane.on_append(began, ended)
        self._on_written(info, size_bytes)
        replica.counts.node.append_times.observe(ended - began)
        return info

    # -- in the writer thread -----------------------------------------------------------------------------------

    def append_in_lane(
        self,
        records: bytes,
        leader_epoch: int,
        acks: int,
        *,
        claim: CoordinatorClaim | None = None,
        guard: int = NO_GUARD,
        on_appended: OnAppended,
    ) -> LaneItem:
        """As `append`, in the writer thread; it can be taken back (`on_overdue`) until it begins.

        Raises KafkaError for what can be refused at once: that includes too much that waits for the directory.
        """
        try:
            self.admit(leader_epoch, acks, claim)
            return self._submit(records, claim, guard, on_appended)
        except KafkaError as refused:
            self.refused.note(refused.code, records)
            self.count_refused(int(refused.code), len(records))
            raise

    def _submit(
        self, records: bytes, claim: CoordinatorClaim | None, guard: int, on_appended: OnAppended
    ) -> LaneItem:
        size_bytes = len(records)
        # The epoch under which it was admitted: a later one stands behind it in the lane.
        leader_epoch, leader = self._replica.leader_epoch, self._replica.leader
        opened, lane, queue = self._log, self._lane, self._queue
        assert opened is not None and lane is not None and queue is not None, "a leader has its log"  # noqa: PT018
        checked: CheckedAppend | None = None
        check_seconds = 0.0
        check: Callable[[], None] | None = None

        def look() -> None:
            nonlocal checked, check_seconds
            began = machine_seconds()
            try:
                checked = opened.check(records)
            except KafkaError as refused:
                self.refused.note(refused.code, records)  # here and now: the next one may be about to begin
                raise
            check_seconds = machine_seconds() - began

        def write() -> AppendInfo:
            return self._write(records, leader_epoch, claim, guard, may_block=True, checked=checked)

        def on_done(result: object, error: BaseException | None) -> None:
            has_written = isinstance(result, AppendInfo) and not result.duplicate
            lane.on_threaded_append(item.seconds, has_written=has_written)
            if error is not None:
                # Anything else is a fault of ours, which the lane has logged.
                fault = KafkaError(ErrorCode.unknown_server_error)
                refused = error if isinstance(error, KafkaError) else fault
                self._on_refused(refused, size_bytes)
                on_appended(None, refused, item.seconds)
                return
            assert isinstance(result, AppendInfo)
            self._on_written(result, size_bytes)
            if self._replica.leader is not leader:
                # It is in the log, but somebody else has decided meanwhile whether it stays.
                self.refused.add(records)
                lost = KafkaError(ErrorCode(self._replica.error or NOT_LEADER))
                self.count_refused(int(lost.code), size_bytes)
                on_appended(None, lost, item.seconds)
            else:
                on_appended(result, None, item.seconds + check_seconds)

        def on_withdrawn(reason: KafkaError) -> None:
            self.refused.add(records)
            self.count_refused(int(reason.code), size_bytes)
            on_appended(None, reason, 0.0)

        if claim is None and opened.needs_walk(records):
            try:
                checked = opened.check(records, time=lane.checks.loop_time)
            except LongCheck:
                check = look
        item = queue.submit(write, on_done, size_bytes, on_withdrawn, check=check)
        return item

    def on_overdue(self, item: LaneItem, records: bytes) -> None:
        """Nobody waits for the append any more: if it has not begun it is never written, else it may still land."""
        assert self._lane is not None, "what is in a lane has one"
        assert self._queue is not None
        if not self._queue.is_held(item):
            self._lane.on_overdue()
        self.refused.add(records)  # before one behind it can begin; should this one land, it is forgotten
        self._queue.withdraw(item)

    def withdraw_all(self, error_code: int) -> None:
        """Refuse the appends that wait for the writer thread, where the one that runs goes on, and behind them those
        that wait for transaction coordinators.
        """
        error = KafkaError(ErrorCode(error_code))
        if self._queue is not None:
            self._queue.withdraw_all(error)
        self.unverified.refuse_all(error)

    # -- what else changes the log, in turn with the appends ----------------------------------------------------

    def begin_epoch(self, leader_epoch: int) -> None:
        """The log is led under `leader_epoch` from now on, behind the appends that are under way.

        Before the appends of this epoch, each of which would do the same if it failed. That waits for no disk, so it
        goes to the writer thread only behind appends there: a node that starts comes to lead thousands of partitions at
        once.

        What waits for transaction coordinators was to be appended under the epoch before: another node may have led
        since.
        """
        self.unverified.refuse_all(KafkaError(ErrorCode(NOT_LEADER)))
        self._in_turn(lambda opened: opened.assign_epoch_start(leader_epoch))

    def update_config(self, config: LogConfig) -> None:
        """Obey other settings from the next append on."""
        if self._log is not None:
            self._in_turn(lambda opened: opened.update_config(config))

    def _in_turn(self, change: Callable[[PartitionLog], object]) -> None:
        def now() -> None:
            assert self._log is not None, "a log is changed that is there"
            change(self._log)  # as it is when its turn comes: it may have moved

        if self._queue is not None and self._queue.items:
            self._queue.submit(now, lambda *_: None)
        else:
            now()

    # -- the steps of each append -------------------------------------------------------------------------------

    def admit(self, leader_epoch: int, acks: int, claim: CoordinatorClaim | None) -> None:
        """The checks that need no look at the log. Raises KafkaError."""
        replica = self._replica
        if claim is not None and replica.is_offline:
            # It refuses whoever comes; that this is for its disk is for the owner alone, who knows by it that he is.
            if leader_epoch != replica.record.leader_epoch:
                raise KafkaError(ErrorCode(NOT_LEADER))
            claim.check_owner(replica.record, internal=replica.internal)
        error = replica.check_epoch(leader_epoch) or (NOT_LEADER if replica.newer_epoch != NO_EPOCH else 0)
        if error:
            advice = f"leader epoch {leader_epoch} was given, {replica.leader_epoch} is current"
            raise KafkaError(ErrorCode(error), advice if error in (FENCED_EPOCH, UNKNOWN_EPOCH) else "")
        if claim is not None:
            claim.check_owner(replica.record, internal=replica.internal)
        elif replica.internal:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"clients may not write to {replica.topic}")
        elif self.refuses_clients or self._hands_over:
            raise KafkaError(ErrorCode(NOT_LEADER))
        leader = replica.leader
        if acks == ALL_REPLICAS and leader is not None and leader.is_short:
            advice = f"{leader.in_sync} replicas are in sync, {leader.needed} are needed"
            raise KafkaError(ErrorCode.not_enough_replicas, advice)

    @property
    def _hands_over(self) -> bool:
        """Whether another node is about to lead because the disk refuses, or the log."""
        lane, refusing = self._lane, self.refusing
        hands_over = (lane is not None and lane.hands_over) or (refusing is not None and refusing.hands_over)
        return hands_over and len(self._replica.record.isr) > 1

    def _write(
        self,
        records: bytes,
        leader_epoch: int,
        claim: CoordinatorClaim | None,
        guard: int,
        *,
        may_block: bool,
        checked: CheckedAppend | None = None,
    ) -> AppendInfo:
        """Append to the log, and change nothing else: with `may_block` this is in the writer thread.

        `checked` is what was found out about `records` already.
        """
        opened = self._log
        assert opened is not None, "a leader has its log"
        origin, transaction_version = AppendOrigin.CLIENT, 0
        if claim is not None:
            if may_block:
                # While it waited for the writer thread the partition may have gone to another coordinator.
                claim.check_owner(self._replica.record, internal=self._replica.internal)
            # One step with the append: nothing may come between them.
            claim.check_log_end(opened.log_end_offset)
            origin = AppendOrigin.COORDINATOR if self._replica.internal else AppendOrigin.MARKER
            transaction_version = claim.marker_transaction_version
        try:
            if checked is not None:
                return opened.append_checked(checked, leader_epoch, guard=guard, may_block=may_block)
            time = None if may_block or self._lane is None else self._lane.checks.loop_time
            return opened.append_as_leader(
                records,
                leader_epoch,
                origin=origin,
                guard=guard,
                transaction_version=transaction_version,
                may_block=may_block,
                time=time,
            )
        except KafkaError as refused:
            self.refused.note(refused.code, records)  # here and now: the next one may be about to begin
            raise

    def _on_written(self, info: AppendInfo, size_bytes: int) -> None:
        """On the event loop, after each append: what follows from it besides the log."""
        replica, lane = self._replica, self._lane
        counts = replica.counts
        counts.appends += 1
        if info.duplicate:
            return
        end_offset = info.last_offset + 1
        counts.messages_in += end_offset - info.base_offset
        counts.bytes_in += size_bytes
        assert lane is not None, "a leader has its log"
        if lane.is_refusing or self.refusing is not None:
            self.on_success()
        replica.on_appended(end_offset, size_bytes)

    def _on_refused(self, refused: KafkaError, size_bytes: int) -> None:
        self.on_refusal(refused)
        self.count_refused(int(refused.code), size_bytes)

    # -- what the disk takes, from a leader or a follower -------------------------------------------------------

    @property
    def is_handed_over(self) -> bool:
        """Whether others are to lead where they can, and had a moment for what was acknowledged: the disk of its
        directory refuses to write, or the log does.
        """
        lane, refusing = self._lane, self.refusing
        return (lane is not None and lane.refusals.is_handed_over) or (
            refusing is not None and refusing.refusals.is_handed_over
        )

    def on_refusal(self, refused: KafkaError) -> None:
        """Something could not be written. That a log is gone or offline already says nothing more."""
        lane, replica = self._lane, self._replica
        refuser = refuser_of(refused)
        if refuser is None or lane is None or replica.error in (STORAGE_ERROR, REMOVED):
            return
        match refuser:
            case Refuser.DISK:
                lane.on_refusal(refused.message)
            case Refuser.PROCESS:
                lane.lines.error(
                    "cannot append: the process lacks what it needs; see its limits of descriptors and memory",
                    log_dir=lane.path,
                    reason=refused.message,
                )
            case Refuser.LOG:
                if self.refusing is None:
                    self.refusing = RefusingLog(replica, lane)
                self.refusing.on_refusal(refused.message)

    def on_success(self) -> None:
        """Something was written."""
        assert self._lane is not None, "it was written somewhere"
        if self._lane.is_refusing:
            self._lane.on_success()
        if self.refusing is not None:
            self.refusing.refusals.on_success()

    # -- the counts ---------------------------------------------------------------------------------------------

    def count_refused(self, error_code: int, size_bytes: int) -> None:
        """An append was not done, or not to be acknowledged, with this code of Kafka's."""
        counts = self._replica.counts
        counts.appends += 1
        counts.on_refused_append(error_code, size_bytes)
