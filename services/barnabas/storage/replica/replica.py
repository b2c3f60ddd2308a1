"""One replica of one partition: its life, its part in the cluster, and up to where it may be read.

A replica is opened in a thread; until then appends wait for it in order. Then it follows the controller's record of its
partition: it leads (`LeaderState`), or it does not. Appends are `Appending`'s, syncs `Durability`'s; both tell the
replica on the event loop, so that the high watermark moves in one place: `_move_high_watermark`.

A replica whose log cannot be opened is offline until it can: `FailedOpenings` has it tried again. It ends when the disk
fails it, and is offline until the next start has recovered its log; or it is removed from this node.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from barnabas.kernel.clock import Clock
from barnabas.kernel.kafka_values import ALL_REPLICAS, LONG_MAX, NO_EPOCH
from barnabas.kernel.logs import get_logger
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import NO_LEADER
from barnabas.storage import limits
from barnabas.storage.counts import TopicCounts
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.lane_queue import LaneQueue
from barnabas.storage.fetching.delayed_fetch import FetchPurgatory, WaitingFetch
from barnabas.storage.replica.appending import Appending
from barnabas.storage.replica.durability import Durability
from barnabas.storage.replica.error_codes import (
    FENCED_EPOCH,
    NOT_LEADER,
    REMOVED,
    STORAGE_ERROR,
    UNKNOWN_EPOCH,
)
from barnabas.storage.replica.followed import Followed
from barnabas.storage.replica.follower_listener import FollowerListener
from barnabas.storage.replica.following import DAMAGED, Following
from barnabas.storage.replica.leader_state import LeaderState, Proposal
from barnabas.storage.replica.offset_waiters import OffsetWaiters, OnDecided
from barnabas.storage.replica.pending_deletions import PendingDeletions
from barnabas.storage.replica.replica_reports import ReplicaReports
from barnabas.storage.replica.topic_settings import TopicSettings
from barnabas.storage.replica.unseen_bytes import UnseenBytes

log = get_logger("storage.replica")


class Replica:
    """Owner of one replica: its part in the cluster, its high watermark, and those who wait on it.

    `log` is None until it is open. `counts` are those of its topic on this node. `refused` is what clients were told to
    send again before the replica was here.
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
        clock: Clock,
        refused: RefusedSequences,
        followed: Followed,
        reports: ReplicaReports,
    ) -> None:
        self.topic, self.topic_id, self.index, self.internal = topic, topic_id, index, internal
        self.log: PartitionLog | None = None
        self.lane: DirectoryLane | None = None
        """The way to the disk of the log directory that holds the log."""
        self.queue: LaneQueue | None = None
        """What it has in that lane, or will have in another one."""
        self.record = PartitionRecord(leader=-1, leader_epoch=NO_EPOCH)
        self.settings = settings
        self.leader: LeaderState | None = None
        """Another one whenever it has not led for a while, however short; None while it does not lead."""
        self.leader_epoch = NO_EPOCH
        self.newer_epoch = NO_EPOCH
        """What the log has seen, where that is newer than the metadata's: nothing is appended then (`NewerEpochs`)."""
        self.high_watermark = 0
        self.error = NOT_LEADER
        """Kafka's error code for all who come while the partition is not led by this node; 0 while it is."""
        self.is_offline = False
        """Whether the log could not be opened, or the disk failed where what it holds is no longer known."""
        self.watchers: dict[WaitingFetch, int] = {}
        """Waiting fetches and the offset that each wants."""
        self.followers: dict[FollowerListener, None] = {}
        """The streams of those who follow it."""
        self.counts = counts
        self.appending = Appending(self, refused)
        self.deletions = PendingDeletions(self)
        self.following = Following(self, followed)
        self._reports = reports
        self._node_id, self._purgatory, self._clock = node_id, purgatory, clock
        self.opening_since = clock.monotonic()  # or waiting to be opened
        self._durability: Durability | None = None
        self._for_high_watermark = OffsetWaiters()
        self._parked: deque[Callable[[], None]] | None = deque()
        self._parked_bytes = 0
        self.end_offset = 0
        """The log's end as the event loop knows it: an append in the writer thread may have moved it already."""
        self._unseen = UnseenBytes()

    def __repr__(self) -> str:
        return f"<Replica {self.name}>"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_being_added(self) -> bool:
        return self._node_id in self.record.adding_replicas

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    @property
    def is_high_watermark_known(self) -> bool:
        """Whether the leader knows as much of the high watermark as any before it: it has come to its epoch's start."""
        return self.leader is None or self.high_watermark >= self.leader.epoch_start

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed consumers stop; at most the high watermark. For any thread."""
        assert self.log is not None, f"{self.name} has no log yet"
        return self.log.last_stable_offset(self.high_watermark)

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
        self.is_offline, self.error = False, NOT_LEADER
        self.queue = LaneQueue(lane)
        self._take(opened, lane, self.queue)
        self.end_offset = opened.log_end_offset
        self.high_watermark = min(max(high_watermark, opened.log_start_offset), opened.log_end_offset)
        if self.high_watermark < self.end_offset:
            self._unseen.add(self.high_watermark, self.end_offset, opened.size)
        self.follow(self.record)
        self._unpark()
        self._reports.look_at(self)

    def _take(self, opened: PartitionLog, lane: DirectoryLane, queue: LaneQueue) -> None:
        """The log is `opened` from now on, in the directory of `lane`."""
        self.log, self.lane = opened, lane
        lane.has_new_high_watermarks = True
        self.appending.open(opened, lane, queue)
        self.following.open(opened, lane, queue)
        self._durability = Durability(
            self.name, opened, lane, on_synced=self._on_synced, on_failed=self.go_offline
        )
        tell, loop = partial(self._on_distrusted, opened), asyncio.get_running_loop()
        opened.call_when_distrusted(lambda error: loop.call_soon_threadsafe(tell, error))
        opened.update_config(self.settings.log)

    def on_moved(self, opened: PartitionLog, lane: DirectoryLane) -> None:
        """The log has moved to the directory of `lane`: it is all there, and durable. Its queue is held meanwhile."""
        former, durability, queue = self.log, self._durability, self.queue
        assert former is not None and durability is not None and queue is not None, "it has a log"  # noqa: PT018
        self._take(opened, lane, queue)
        opened.maybe_increment_log_start_offset(former.log_start_offset)  # it may have moved meanwhile
        durability.end(opened.log_end_offset)
        self._on_synced()
        self._reports.look_at(self)  # this disk may take what the other one refused

    def _on_distrusted(self, opened: PartitionLog, error: BaseException) -> None:
        if opened is self.log:
            self.go_offline(error)

    def on_open_failed(self) -> None:
        """The log cannot be opened now: the partition is offline."""
        self.is_offline, self.error = True, STORAGE_ERROR
        self._unpark()
        self._reports.look_at(self)

    def _unpark(self) -> None:
        parked, self._parked, self._parked_bytes = self._parked, None, 0
        for action in parked or ():
            action()

    def on_removed(self) -> None:
        """The partition is no longer here: its topic was deleted, or it moved to other nodes."""
        if self.lane is not None:
            self.lane.has_new_high_watermarks = True
        self._end(REMOVED)
        self._unpark()

    def go_offline(self, error: BaseException) -> None:
        """A sync or a truncation failed: nothing is served until the next start has recovered the log."""
        if self.is_offline or self.error == REMOVED:
            return
        log.error("partition is offline: its disk failed", partition=self.name, reason=str(error))
        self.is_offline = True
        self._end(STORAGE_ERROR)
        self._reports.look_at(self)

    def _end(self, error_code: int) -> None:
        self.following.stop()
        self.leader = None
        self.error = error_code
        if self._durability is not None:
            self._durability.stop()
        self._fail_appends(error_code)
        self._complete_watchers()

    # -- its part in the cluster --------------------------------------------------------------------------------

    def follow(self, record: PartitionRecord) -> None:
        """Take the part that the controller's `record` gives to this replica."""
        if record.leader == self._node_id and self.record.isr:
            self.counts.on_isr_change(len(self.record.isr), len(record.isr))
        self.record = record
        self._reports.look_at(self)
        if self.log is None or self.is_offline:
            return
        leads = record.leader == self._node_id
        if leads and self.leader is not None and record.leader_epoch == self.leader_epoch:
            self.leader.on_record(record)
            self.advance_high_watermark()
        elif leads:
            self._lead(record)
        elif self.leader is not None or record.leader_epoch != self.leader_epoch:
            self._stand_down(record)

    def _lead(self, record: PartitionRecord) -> None:
        """A leader epoch of this replica begins."""
        self.following.stop()
        now_ms, end_offset, needed = _loop_ms(), self.end_offset, self.settings.min_insync_replicas
        if self.following.lacks_any(end_offset):
            self.go_offline(DAMAGED)
            return
        if self.leader is not None:
            self.leader.begin_epoch(record, log_end_offset=end_offset, now_ms=now_ms)
        else:
            self.leader = LeaderState(
                self._node_id, record, log_end_offset=end_offset, min_insync_replicas=needed, now_ms=now_ms
            )
        self.error = 0
        if self._take_epoch(record.leader_epoch) < record.leader_epoch:
            self.appending.begin_epoch(record.leader_epoch)
        self.sync_end()
        self.advance_high_watermark()
        # Whoever waits under the old epoch is to learn of the new one.
        self._complete_watchers()

    def _stand_down(self, record: PartitionRecord) -> None:
        """Another replica leads, or none."""
        self.following.stop()
        self.leader = None
        self.error = NOT_LEADER
        self._take_epoch(record.leader_epoch)
        self._fail_appends(NOT_LEADER)
        if record.leader != NO_LEADER and self.newer_epoch == NO_EPOCH:
            self.following.begin(record.leader, record.leader_epoch)
        self._complete_watchers()

    def _take_epoch(self, leader_epoch: int) -> int:
        """The leader epoch is this from now on; returns the newest that the log has seen."""
        assert self.log is not None, "it follows with its log"
        seen = self.log.latest().leader_epoch
        self.leader_epoch = leader_epoch
        self.newer_epoch = seen if seen > leader_epoch else NO_EPOCH
        return seen

    def update_settings(self, settings: TopicSettings) -> None:
        """Obey other settings from now on."""
        if settings is not self.settings:
            self.settings = settings
            self.appending.update_config(settings.log)
            if self.leader is not None:
                self.leader.set_min_insync_replicas(settings.min_insync_replicas)
                self.advance_high_watermark()

    def check_epoch(self, leader_epoch: int, *, from_follower: bool = False) -> int:
        """Kafka's error code for a sender that knows `leader_epoch` (-1: does not say), 0 when it may go on.

        `from_follower`: for a consumer, whom a follower serves up to its own high watermark (KIP-392).
        """
        if self.error and not (from_follower and self.error == NOT_LEADER and self.log is not None):
            return self.error
        if leader_epoch == self.leader_epoch or leader_epoch == NO_EPOCH:
            return 0
        return FENCED_EPOCH if leader_epoch < self.leader_epoch else UNKNOWN_EPOCH

    # -- following ----------------------------------------------------------------------------------------------

    @property
    def is_end_written(self) -> bool:
        """Whether all of the log counts as written: no sync that flush.messages asked for is to be waited for."""
        durability = self._durability
        return durability is not None and durability.acknowledgeable(self.end_offset) == self.end_offset

    def sync_end(self) -> None:
        """The log's end is about to count, here or for its leader: after a crash it may not be on the disk."""
        if self._durability is not None:
            self._durability.on_append(self.settings.log)

    def on_truncating(self, offset: int) -> int:
        """Nothing from `offset` on counts from now on, whoever leads; returns the end that the log is to lose."""
        former, self.end_offset = self.end_offset, min(self.end_offset, offset)
        if self.high_watermark > offset:
            self._move_high_watermark(offset, 0)
        return former

    def on_not_truncated(self, end_offset: int) -> None:
        """It keeps its end; what was appended since by who has come to lead is told of later."""
        self.end_offset = end_offset
        self.advance_high_watermark()

    def on_truncated(self, end_offset: int) -> None:
        """The log ends here, and may begin here, too; the only case in which the high watermark goes back."""
        assert self.log is not None, "it was truncated"
        self.end_offset = end_offset
        self._unseen.cut(end_offset)
        if self.leader is not None:
            self.leader.on_truncated(end_offset)
        high_watermark = min(max(self.high_watermark, self.log.log_start_offset), end_offset)
        if high_watermark != self.high_watermark:
            self._move_high_watermark(high_watermark, 0)
        self._complete_watchers()
        for follower in list(self.followers):
            follower.on_change(self)  # meanwhile ends were not compared, and
            follower.on_growth(self)  # nothing could be read

    # -- its followers ------------------------------------------------------------------------------------------

    def on_replicated(
        self, node: int, held: range, broker_epoch: int, eligible: Mapping[int, int], disk_refuses: bool
    ) -> bool:
        """The log of the follower `node` has the offsets `held`; False if it is none, or not any more."""
        assert self.log is not None, "who follows it was refused before it had its log"
        if self.leader is None or not self.leader.on_fetch(
            *(node, held.stop),
            log_start_offset=held.start,
            leader_start_offset=self.log.log_start_offset,
            log_end_offset=self.end_offset,
            broker_epoch=broker_epoch,
            eligible=eligible,
            now_ms=_loop_ms(),
            disk_refuses=disk_refuses,
        ):
            return False
        self.advance_high_watermark()
        self.deletions.look(eligible)
        return True

    def on_log_start_moved(self) -> None:
        """Records were deleted: followers are to delete them, too."""
        for follower in self.followers:
            follower.on_news(self)

    def on_follower_gone(self, node: int) -> None:
        """The stream of the follower has ended; it may have another one already."""
        if self.leader is not None and not any(each.node_id == node for each in self.followers):
            self.leader.on_gone(node)

    def wider_isr(self, eligible: Mapping[int, int]) -> Proposal | None:
        """What the controller is to be asked for if a follower has come to be in sync."""
        return None if self.leader is None else self.leader.expand_by_any(self.high_watermark, eligible)

    def narrower_isr(self, lag_ms_max: float, eligible: Mapping[int, int]) -> Proposal | None:
        """What the controller is to be asked for if followers have lagged too long; for now and then."""
        if self.leader is None or self.leader.note_caught_up(self.end_offset, _loop_ms()):
            return None
        proposal = self.leader.shrink(
            log_end_offset=self.end_offset, lag_ms_max=lag_ms_max, eligible=eligible, now_ms=_loop_ms()
        )
        self.advance_high_watermark()
        return proposal

    def on_proposal_refused(self, proposal: Proposal) -> None:
        """The controller does not change the ISR as it was asked."""
        if self.leader is not None:
            self.leader.on_refused(proposal)
            self.advance_high_watermark()

    # -- acknowledging ------------------------------------------------------------------------------------------

    @property
    def acknowledges_at_once(self) -> bool:
        """Whether what is appended next is acknowledged as soon as it is in the log, under any acks."""
        leader, durability = self.leader, self._durability
        return (
            leader is not None
            and leader.is_alone
            and durability is not None
            and not durability.commit.is_pending
            and self.settings.log.flush_messages >= LONG_MAX
        )

    def wait(self, offset: int, acks: int, on_decided: OnDecided) -> bool:
        """Have `on_decided` called once records before `offset` may be acknowledged; False if they may at once."""
        if acks == ALL_REPLICAS:
            if self.high_watermark >= offset:
                return False
            self._for_high_watermark.add(offset, on_decided)
            return True
        return acks != 0 and self._durability is not None and self._durability.wait(offset, on_decided)

    def _fail_appends(self, error_code: int) -> None:
        """What has not begun is taken back, what waits to be acknowledged is not; nor do deletions wait any longer."""
        self.appending.withdraw_all(error_code)
        self.deletions.fail(error_code)
        self._for_high_watermark.fail(error_code)
        if self._durability is not None:
            self._durability.fail(error_code)

    # -- the high watermark -------------------------------------------------------------------------------------

    def on_appended(self, end_offset: int, size_bytes: int) -> None:
        """The log ends at `end_offset`, `size_bytes` later than before."""
        start_offset, self.end_offset = self.end_offset, end_offset
        if self.is_offline:
            return
        leader, durability = self.leader, self._durability
        assert durability is not None, "a log has its durability"
        durability.on_append(self.settings.log)
        for follower in self.followers:
            follower.on_growth(self)
        if (
            self.high_watermark == start_offset
            and leader is not None
            and leader.is_alone
            and durability.acknowledgeable(end_offset) == end_offset
        ):
            # Readers saw all there was and see at once what is appended: it is never among the unseen.
            self._move_high_watermark(end_offset, size_bytes)
            return
        self._unseen.add(start_offset, end_offset, size_bytes)
        self.advance_high_watermark()

    def _on_synced(self) -> None:
        self.advance_high_watermark()
        self.following.on_synced()

    def advance_high_watermark(self, at_least: int = 0) -> None:
        """Move it to where all are who have to be, a follower's to where its leader says, and `at_least` there."""
        leader, durability = self.leader, self._durability
        if durability is None:
            return
        if leader is None:
            offset = min(self.following.high_watermark, self.end_offset)
        else:
            offset = durability.acknowledgeable(self.end_offset)
            if not leader.is_alone:
                offset = leader.replicated(offset)
        offset = max(offset, at_least)
        if offset > self.high_watermark:
            self._move_high_watermark(offset, self._unseen.take(offset))

    def _move_high_watermark(self, offset: int, size_bytes: int) -> None:
        """Tell those who wait for it; its readers see `size_bytes` more. The only place that moves it."""
        assert self.lane is not None, "its log is open"
        self.high_watermark, self.lane.has_new_high_watermarks = offset, True
        if self._for_high_watermark:
            self._for_high_watermark.release(offset)
        if self.watchers:
            self._purgatory.on_growth(self, size_bytes)
        for follower in self.followers:
            follower.on_news(self)

    def _complete_watchers(self) -> None:
        for follower in list(self.followers):
            follower.on_change(self)
        for fetch in list(self.watchers):
            fetch.complete()


def _loop_ms() -> float:
    """Peers' time: that of the event loop, which no user's clock moves."""
    return asyncio.get_running_loop().time() * 1000
