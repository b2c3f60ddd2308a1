"""How a replica follows: it tells its leader where its log ends, and does what the answer asks for.

One thing at a time: while an append or a truncation is under way, no position is in force, so nothing else can come.
Appends run on the event loop while the log directory is fast, else in its writer thread, as a leader's do; truncations
always there. All of it stands in one queue with what the replica does as a leader, so that a change of its part finds
the log behind whatever was begun before.

`FollowerState` decides, one for each leader epoch. What ends under an older one has changed the log, and no more.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.kernel.clock import machine_seconds
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.errors import WouldBlock
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendInfo
from barnabas.messages.storage_pb2 import ReplicaRecords
from barnabas.records.batch import Buffer
from barnabas.storage.directories.directory_lane import DirectoryLane, Done, LaneItem
from barnabas.storage.directories.lane_queue import LaneQueue
from barnabas.storage.replica.followed import PAUSE_SECONDS_MIN, Followed
from barnabas.storage.replica.follower_state import (
    UNKNOWN_OFFSET,
    Append,
    Fail,
    FollowerState,
    Learn,
    Position,
    Retry,
    StartAt,
    Step,
    TruncateTo,
)
from barnabas.storage.replica.topic_settings import is_throttled

if TYPE_CHECKING:
    from barnabas.storage.replica.replica import Replica

log = get_logger("storage.following")

_MENDED_BY_TIME: Final = frozenset(
    {ErrorCode.corrupt_message, ErrorCode.invalid_record, ErrorCode.kafka_storage_error}
)
"""What an append may be refused with and be taken the next time: damage on the way, a full disk."""


DAMAGED: Final = KafkaError(
    ErrorCode.kafka_storage_error, "its log is damaged, and lacks what others have of the same leaders"
)


class Phase(enum.Enum):
    """What a follower does."""

    IDLE = "idle"
    """It follows nobody, or what was begun before is not over."""
    READY = "ready"
    """Its leader has heard of its position, or will as soon as there is a stream."""
    TAKING = "taking"
    """An answer is being carried out in the writer thread."""
    SYNCING = "syncing"
    """flush.messages asks for a sync before the leader may count on what was appended."""
    RESTING = "resting"
    """Something has failed; it is tried again in a moment."""
    FAILED = "failed"
    """Nothing is to be done before there is another leader epoch."""


class _UnderWay(NamedTuple):
    item: LaneItem
    done: asyncio.Future[None]
    on_withdrawn: Callable[[], None]


class Following:
    """Owner of what one replica knows and has under way as a follower."""

    __slots__ = (
        "_followed",
        "_lacking_before",
        "_lane",
        "_log",
        "_pause_seconds",
        "_phase",
        "_queue",
        "_replica",
        "_state",
        "_timer",
        "_under_way",
    )

    def __init__(self, replica: Replica, followed: Followed) -> None:
        self._replica = replica
        self._followed = followed
        self._log: PartitionLog | None = None
        self._lane: DirectoryLane | None = None
        self._queue: LaneQueue | None = None
        self._state: FollowerState | None = None
        self._phase = Phase.IDLE
        self._under_way: _UnderWay | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause_seconds = PAUSE_SECONDS_MIN
        self._lacking_before = 0

    def open(self, opened: PartitionLog, lane: DirectoryLane, queue: LaneQueue) -> None:
        """The log is open; `queue` is what the replica has in `lane`."""
        self._log, self._lane, self._queue = opened, lane, queue

    @property
    def _own_log(self) -> PartitionLog:
        """As it is when something's turn comes in the writer thread: it may have moved since that was handed over."""
        assert self._log is not None, "it follows with its log"
        return self._log

    # -- what is known ------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The leader's, as far as it counts here; -1 while it is not known."""
        return UNKNOWN_OFFSET if self._state is None else self._state.high_watermark

    @property
    def has_failed(self) -> bool:
        """Whether nothing is copied before there is another leader epoch."""
        return self._phase is Phase.FAILED

    @property
    def disk_refuses(self) -> bool:
        """Whether the disk does not take what the leader sends, for so long that the leader is to hear of it."""
        return self._state is not None and self._state.disk_refuses

    @property
    def lag(self) -> int:
        """How many committed offsets are not here yet."""
        return 0 if self._state is None or self._log is None else self._state.lag(self._log)

    @property
    def is_held_back_by_quota(self) -> bool:
        """Whether it is throttled (KIP-73), and not known to have all that is committed."""
        state, opened = self._state, self._log
        if not is_throttled(self._replica.settings.follower_throttled, self._replica.index):
            return False
        return (
            state is None or opened is None or state.high_watermark == UNKNOWN_OFFSET or state.lag(opened) > 0
        )

    def lacks_any(self, end_offset: int) -> bool:
        """Whether a log that ends there lacks what it has lost to damage, and its leader had. Who led with it would
        have others take back what is committed.
        """
        return end_offset < self._lacking_before

    # -- whom it follows ----------------------------------------------------------------------------------------

    def begin(self, leader: int, leader_epoch: int) -> None:
        """Follow node `leader` from now on, behind what is under way in the log."""
        self.stop()
        opened, queue = self._log, self._queue
        assert opened is not None and queue is not None, "it follows with its log"  # noqa: PT018
        state = self._state = FollowerState(leader, leader_epoch)
        self._pause_seconds = PAUSE_SECONDS_MIN
        self._followed.add(self._replica, leader)
        if queue.items:
            queue.submit(lambda: self._own_log.drop_unwritten_epochs(), lambda *_: self._on_begun(state))
        else:
            opened.drop_unwritten_epochs()
            self._on_begun(state)

    def _on_begun(self, state: FollowerState) -> None:
        if self._state is state:
            self._replica.sync_end()
            self._offer()

    def stop(self) -> None:
        """Follow nobody: what has not begun is never done, what runs is not waited for."""
        state, self._state = self._state, None
        if state is None:
            return
        self._phase = Phase.IDLE
        self._followed.remove(self._replica, state.leader)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            assert self._queue is not None, "something of it is there"
            if self._queue.withdraw(under_way.item):
                under_way.on_withdrawn()
            _set(under_way.done)

    # -- its position -------------------------------------------------------------------------------------------

    def _offer(self) -> None:
        """Have the leader hear where the log ends, as soon as that counts as written."""
        state = self._state
        if state is None:
            return
        if self._replica.is_end_written:
            self._phase = Phase.READY
            self._followed.ask(self._replica, state.leader)
        else:
            self._phase = Phase.SYNCING

    def on_synced(self) -> None:
        """More of the log is durable."""
        if self._phase is Phase.SYNCING:
            self._offer()

    def on_stream(self) -> None:
        """There is a new stream to the leader: what it was told on another one it may not know."""
        state = self._state
        if state is not None:
            state.forget_position()
            if self._phase is Phase.READY:
                self._followed.ask(self._replica, state.leader)

    def take_position(self) -> Position | None:
        """What the leader is to be told, and answers; None when that is nothing now."""
        state, opened = self._state, self._log
        if state is None or opened is None or self._phase is not Phase.READY:
            return None
        position = state.take_position(opened)
        if position is None:
            self._fail(state.failure)
        return position

    # -- answers ------------------------------------------------------------------------------------------------

    def on_answer(self, answer: ReplicaRecords, records: Buffer) -> asyncio.Future[None] | None:
        """Do what the leader's answer asks for; the future ends once that is done, None when it is."""
        state, opened = self._state, self._log
        if state is None or opened is None or self._phase is not Phase.READY:
            return None
        try:
            step = state.on_answer(answer, records, opened)
            if isinstance(step, Append | Learn):
                # What was lost behind its leader's end is in nobody's log by now, and was not committed.
                self._lacking_before = min(self._lacking_before, answer.log_end_offset)
            return None if step is None else self._carry_out(step, state, records)
        except Exception as error:
            log.exception("a leader's answer could not be carried out", partition=self._replica.name)
            self._fail(repr(error))
            return None

    def _carry_out(self, step: Step, state: FollowerState, records: Buffer) -> asyncio.Future[None] | None:
        match step:
            case Append(restart_at):
                return self._append(state, records, restart_at)
            case TruncateTo(offset) | StartAt(offset):
                return self._truncate(state, offset, fully=isinstance(step, StartAt))
            case Learn():
                opened = self._log
                assert opened is not None, "it follows with its log"
                self._learn(state)
                if state.has_another_start(opened):
                    self._offer()  # the leader is to know where the log starts now
            case Retry(reason):
                self._rest(reason, about=reason)
            case Fail(reason):
                self._fail(reason)
        return None

    def _learn(self, state: FollowerState) -> None:
        """What the leader says of its high watermark and its log's start holds here, too."""
        replica, opened = self._replica, self._log
        assert opened is not None, "it follows with its log"
        if not self.lacks_any(replica.end_offset):
            self._lacking_before = 0
        replica.advance_high_watermark()
        # Not past the high watermark: a leader's log may have moved on past what it answered with (KAFKA-7104).
        opened.maybe_increment_log_start_offset(min(state.log_start_offset, replica.high_watermark))

    # -- appends ------------------------------------------------------------------------------------------------

    def _append(
        self, state: FollowerState, records: Buffer, restart_at: int | None
    ) -> asyncio.Future[None] | None:
        lane = self._lane
        assert lane is not None, "it follows with its log"
        size_bytes, has_restarted = len(records), False
        began = machine_seconds()

        def append(*, may_block: bool = True) -> AppendInfo | None:
            return self._own_log.append_as_follower(
                records, leader_epoch=state.leader_epoch, may_block=may_block
            )

        if restart_at is None and self._replica.appending.is_direct(began):
            try:
                info = append(may_block=False)
            except WouldBlock:
                pass
            except KafkaError as refused:
                self._on_refused(state, refused)
                return None
            else:
                lane.on_append(began, machine_seconds())
                self._on_appended(state, info, size_bytes)
                return None

        def write() -> AppendInfo | None:
            nonlocal has_restarted
            if restart_at is None:
                return append()
            own = self._own_log
            start_offset = own.log_start_offset
            own.truncate_fully_and_start_at(restart_at)
            has_restarted = True
            info = append()
            # What is deleted stays so: this replica may come to lead before it learns where its leader's log begins.
            own.maybe_increment_log_start_offset(min(start_offset, own.log_end_offset))
            return info

        def on_done(result: object, error: BaseException | None) -> None:
            if restart_at is not None and has_restarted:
                # It was empty: who follows it by now, if it has come to lead, has what was appended since.
                self._replica.on_truncated(restart_at)
            if error is not None:
                self._on_refused(state, error)
                return
            assert result is None or isinstance(result, AppendInfo)
            self._on_appended(state, result, size_bytes)
            if has_restarted:
                self._replica.advance_high_watermark(at_least=self._own_log.log_start_offset)

        return self._in_lane(write, on_done, size_bytes)

    def _on_appended(self, state: FollowerState, info: AppendInfo | None, size_bytes: int) -> None:
        replica, lane = self._replica, self._lane
        assert lane is not None, "it follows with its log"
        if info is not None:
            counts = replica.counts.node
            counts.replicated_bytes_in += size_bytes
            counts.reassigned_bytes_in += size_bytes if replica.is_being_added else 0
            if is_throttled(replica.settings.follower_throttled, replica.index):
                self._followed.quota.record(size_bytes, asyncio.get_running_loop().time() * 1000)
            if lane.is_refusing or replica.appending.refusing is not None:
                replica.appending.on_success()
            replica.on_appended(info.last_offset + 1, size_bytes)
        if self._state is not state:
            return
        if info is None:
            self._rest("the leader's records are of a later leader epoch", about="later epoch")
            return
        self._pause_seconds, state.refusals = PAUSE_SECONDS_MIN, 0
        self._learn(state)
        self._offer()

    def _on_refused(self, state: FollowerState, error: BaseException) -> None:
        """The log, or its directory, has not done what it was to do."""
        replica, opened = self._replica, self._log
        assert opened is not None, "it was written to"
        if not isinstance(error, KafkaError):
            if self._state is state:
                self._fail(repr(error))  # a fault of ours, which the lane has logged
            return
        if error.code == ErrorCode.kafka_storage_error:
            replica.appending.on_refusal(error)
            state.refusals += 1
        if self._state is not state:
            return
        if not opened.is_trusted:
            replica.go_offline(error)
        elif error.code in _MENDED_BY_TIME:
            self._rest(error.message, about=error.code.name, is_fault=True)
        else:
            self._fail(error.message)

    # -- truncation ---------------------------------------------------------------------------------------------

    def _truncate(self, state: FollowerState, offset: int, *, fully: bool) -> asyncio.Future[None] | None:
        replica, opened = self._replica, self._log
        assert opened is not None, "it follows with its log"
        say = log.warning if offset < replica.high_watermark and not fully else log.info
        say(
            "the log is begun anew: its leader has nothing of it any more"
            if fully
            else "what the leader does not have is taken back",
            partition=replica.name,
            offset=offset,
            log_end_offset=opened.log_end_offset,
            high_watermark=replica.high_watermark,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
        )

        former_end = replica.on_truncating(offset)

        def truncate() -> int:
            own = self._own_log
            return own.truncate_fully_and_start_at(offset) if fully else own.truncate_to(offset)

        def on_done(result: object, error: BaseException | None) -> None:
            if error is not None:
                replica.on_not_truncated(former_end)
                self._on_refused(state, error)
                return
            assert isinstance(result, int)
            if result < offset:
                self._lacking_before = offset
            elif not fully:  # else its leader may have more of what was lost than went with its start
                self._lacking_before = min(self._lacking_before, offset)
            if replica.leader is not None and self.lacks_any(result):
                replica.go_offline(DAMAGED)
            if replica.leader is not None:
                replica.leader.on_taken_back(result)
            replica.on_truncated(result)
            if self._state is state:
                self._pause_seconds, state.refusals = PAUSE_SECONDS_MIN, 0
                self._offer()

        return self._in_lane(truncate, on_done, 0, lambda: replica.on_not_truncated(former_end))

    # -- what is under way, and what waits -----------------------------------------------------------------------

    def _in_lane(
        self,
        work: Callable[[], object],
        on_done: Done,
        size_bytes: int,
        on_withdrawn: Callable[[], None] = lambda: None,
    ) -> asyncio.Future[None] | None:
        """Do `work` in the writer thread; `on_done` is called on the event loop, or `on_withdrawn` if it never is."""
        assert self._queue is not None, "it follows with its log"
        state = self._state
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def leave() -> None:
            if self._under_way is not None and self._under_way.done is done:
                self._under_way = None
            _set(done)

        def finish(result: object, error: BaseException | None) -> None:
            leave()
            on_done(result, error)

        def withdrawn(refused: KafkaError) -> None:
            leave()
            on_withdrawn()
            if self._state is state:  # there was no room when its turn came
                self._rest(refused.message, about=refused.code.name, is_fault=True)

        self._phase = Phase.TAKING
        try:
            item = self._queue.submit(work, finish, size_bytes, withdrawn)
        except KafkaError as refused:
            self._rest(refused.message, about=refused.code.name, is_fault=True)
            return None
        self._under_way = _UnderWay(item, done, on_withdrawn)
        return done

    def _rest(self, reason: str, *, about: str, is_fault: bool = False) -> None:
        """Try the same again in a moment. Leaders that do not answer yet are part of every election."""
        state, lane = self._state, self._lane
        assert state is not None and lane is not None, "it follows with its log"  # noqa: PT018
        say = lane.lines.warning if is_fault else lane.lines.info
        say(
            "a follower tries again",
            f"{state.leader} {about}",
            partition=self._replica.name,
            leader=state.leader,
            reason=reason,
        )
        self._phase = Phase.RESTING
        self._timer = asyncio.get_running_loop().call_later(self._pause_seconds, self._on_rested)
        self._pause_seconds = min(2 * self._pause_seconds, self._followed.pause_seconds_max)

    def _on_rested(self) -> None:
        self._timer = None
        self._offer()

    def _fail(self, reason: str) -> None:
        state = self._state
        assert state is not None, "it follows"
        log.error(
            "a partition is not copied until it has another leader epoch",
            partition=self._replica.name,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            reason=reason,
        )
        state.fail(reason)
        self._phase = Phase.FAILED


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
