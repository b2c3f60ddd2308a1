"""What one replica knows as a follower, and what follows from what its leader says. Pure: no I/O, no clock.

A follower says where its log ends, its *position*; the leader answers. An answer counts only if it is to the position
in force: its offset and its leader epoch say so. What the answer asks for (an append, a truncation) is for others to
do; only when it is done, the next position is taken.

Truncation goes by leader epochs alone (KIP-101, KIP-279; KIP-595 for how the leader says so), never by the high
watermark: where two logs have an epoch in common they are equal up to where the first of them ends it. A leader that
has other epochs says which of its epochs is the newest that the follower may have too, and where it ends there; the
follower takes back what cannot be the leader's and asks again, until they agree. Every log knows its epochs: the
leader's batches carry them, and recovery reads them from there. A log that has records and no epochs has lost its
checkpoint by somebody's hand; nobody can say what of it the leader has, so it follows nobody.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.messages.storage_pb2 import ReplicaRecords
from barnabas.records.batch import HEADER_SIZE, Buffer, parse_header

UNKNOWN_OFFSET: Final = -1

REFUSALS_MIN: Final = 2
"""How often in a row the disk refuses an append before the leader hears of it: once is a hitch."""


class FollowedLog(Protocol):
    """What a follower asks of its own log; `log.partition_log.PartitionLog` is one."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record; -1 without one."""
        ...

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the newest epoch that is at most the one asked for; where that is below all,
        (the one asked for, where the first begins); (-1, -1) where it is above all.
        """
        ...


class Position(NamedTuple):
    """What the leader is told, as in ReplicaPosition of storage.proto."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


class Append(NamedTuple):
    """The records continue the log. `restart_at`: they do once the log, which is empty, begins there."""

    restart_at: int | None = None


class Learn(NamedTuple):
    """There are only other news; the position stays in force."""


class TruncateTo(NamedTuple):
    """What stands from this offset on is not the leader's."""

    offset: int


class StartAt(NamedTuple):
    """The leader has nothing of this log any more: all of it goes, and it begins again at this offset."""

    offset: int


class Retry(NamedTuple):
    """The leader cannot answer now, or its answer is of no use: the same again, later."""

    reason: str


class Fail(NamedTuple):
    """There is nothing to be done before there is another leader epoch."""

    reason: str


Step = Append | Learn | TruncateTo | StartAt | Retry | Fail


class FollowerState:
    """Owner of what one replica knows as a follower, for as long as one leader epoch lasts."""

    __slots__ = (
        "failure",
        "high_watermark",
        "in_force",
        "leader",
        "leader_epoch",
        "log_start_offset",
        "refusals",
    )

    def __init__(self, leader: int, leader_epoch: int) -> None:
        """The replica comes to follow node `leader`."""
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.in_force: Position | None = None
        """What the leader was told last and has not answered."""
        self.high_watermark = UNKNOWN_OFFSET
        """The leader's: up to there this log is committed, as far as it goes."""
        self.log_start_offset = UNKNOWN_OFFSET
        """The leader's."""
        self.failure = ""
        """Why there is nothing to be done before another leader epoch; empty while there is."""
        self.refusals = 0
        """How often the disk has refused an append since it last took something."""

    @property
    def disk_refuses(self) -> bool:
        """Whether the leader is to hear that it need not wait for this replica."""
        return self.refusals >= REFUSALS_MIN

    def take_position(self, log: FollowedLog) -> Position | None:
        """What the leader is to be told; in force from now on. None when there is nothing to be said: `failure`."""
        end_offset, last_epoch = log.log_end_offset, log.last_epoch
        if last_epoch == NO_EPOCH and log.log_start_offset < end_offset:
            self.failure = "the log has records and no leader epochs: its leader-epoch-checkpoint is gone"
        if self.failure:
            return None
        self.in_force = Position(self.leader_epoch, end_offset, last_epoch, log.log_start_offset)
        return self.in_force

    def has_another_start(self, log: FollowedLog) -> bool:
        """Whether the log begins elsewhere than the leader was told: it moved, or retention here went first."""
        return self.in_force is not None and self.in_force.log_start_offset != log.log_start_offset

    def forget_position(self) -> None:
        """The leader has not heard of it, or its answer will not come."""
        self.in_force = None

    def fail(self, reason: str) -> None:
        """There is nothing to be done before there is another leader epoch."""
        self.in_force = None
        self.failure = reason

    def lag(self, log: FollowedLog) -> int:
        """How many offsets this log is behind what is committed, as Kafka counts it."""
        return max(0, self.high_watermark - log.log_end_offset)

    # -- answers ------------------------------------------------------------------------------------------------

    def on_answer(self, answer: ReplicaRecords, records: Buffer, log: FollowedLog) -> Step | None:
        """What the leader's `answer` with its `records` asks for; None when it is to no position in force.

        Unless it is only news, the position is in force no longer.
        """
        position = self.in_force
        if (
            position is None
            or answer.leader_epoch != position.leader_epoch
            or answer.fetch_offset != position.fetch_offset
        ):
            return None
        if answer.error_code:
            self.in_force = None
            return self._on_error(answer, log)
        if answer.HasField("diverging"):
            # Nothing else of it counts: the high watermark speaks of records that this log does not have (KAFKA-14704).
            self.in_force = None
            parting = answer.diverging
            offset = truncation_offset(parting.leader_epoch, parting.end_offset, position.fetch_offset, log)
            return _truncate(offset, log)
        step = self._on_records(records, answer.log_start_offset, log) if records else Learn()
        # What goes with StartAt may be of another history than what is committed.
        if not isinstance(step, Retry | Fail | StartAt):
            self.high_watermark = answer.high_watermark
            self.log_start_offset = answer.log_start_offset
        return step

    def _on_records(self, records: Buffer, leader_start: int, log: FollowedLog) -> Step:
        self.in_force = None
        if len(records) < HEADER_SIZE:
            return Retry("the leader's records are cut short")
        first, end_offset = parse_header(records), log.log_end_offset
        if first.base_offset >= end_offset:
            return Append()
        if log.log_start_offset == end_offset <= first.last_offset:
            # The leader's log begins in the midst of a batch, which comes as a whole.
            return Append(restart_at=first.base_offset)
        if log.log_start_offset < end_offset <= leader_start:
            # All of this log is deleted, and may be of another history: epochs are compared from the leader's start on.
            return StartAt(leader_start)
        return Fail(f"the leader's records begin at {first.base_offset}, the log ends at {end_offset}")

    def _on_error(self, answer: ReplicaRecords, log: FollowedLog) -> Step:
        code = answer.error_code
        if code == ErrorCode.fenced_leader_epoch:
            return Fail("the leader knows a newer leader epoch")
        if code == ErrorCode.offset_out_of_range:
            return _on_out_of_range(answer.log_start_offset, answer.log_end_offset, log)
        return Retry(f"the leader answers {_name(code)}")


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)  # of a newer node


def _on_out_of_range(leader_start: int, leader_end: int, log: FollowedLog) -> Step:
    """The leader has nothing at this log's end. What lies before it is compared by epochs once the ends fit."""
    end_offset = log.log_end_offset
    if 0 <= leader_end < end_offset:
        # After an unclean election, or the leader lost data (KAFKA-7414).
        return _truncate(leader_end, log)
    if leader_start > end_offset:
        return StartAt(leader_start)
    return Retry("the leader's log does not go on from here yet")


def _truncate(offset: int, log: FollowedLog) -> Step:
    if offset < log.log_end_offset:
        return TruncateTo(offset)
    return Retry("the leader's log is another one, and nothing of this one's end is at fault")


def truncation_offset(leader_epoch: int, end_offset: int, fetch_offset: int, log: FollowedLog) -> int:
    """Where this log and the leader's part at the latest, if the leader has written up to `end_offset` in
    `leader_epoch` and nothing else in the epochs that this log has after it.

    After this the leader is asked again: with an epoch that it does not have, it may be further back.
    """
    log_end_offset = log.log_end_offset
    if end_offset == UNKNOWN_OFFSET:
        return fetch_offset
    own_epoch, own_end = log.end_offset_for_epoch(leader_epoch)
    if own_epoch == NO_EPOCH:
        # The leader does not say which epoch, or all of this log's are older.
        return min(end_offset, log_end_offset)
    if own_epoch == leader_epoch:
        return min(own_end, end_offset, log_end_offset)
    return min(own_end, log_end_offset)
