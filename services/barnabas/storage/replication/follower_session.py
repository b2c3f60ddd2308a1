"""What one follower's stream asks of the partitions that this node leads.

A follower says for each partition where its log ends; that is its *position*, which the leader answers as soon as there
is something to say: records that follow, that the logs part, or an error. Until then the position costs nothing: an
append wakes the session. One frame at a time is made of what there is by then, and the next when that was sent, so a
slow follower holds one frame's bytes and no more.

A higher watermark alone is told a moment later (REPLICA_NEWS_SECONDS), for it mostly goes with the next records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from functools import partial

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.kernel.logs import get_logger
from barnabas.links.storage_messages import ReplicaFetched
from barnabas.messages.storage_pb2 import (
    EpochEndOffset,
    FollowerIdentity,
    ReplicaPosition,
    ReplicaPositionsFrame,
    ReplicaRecords,
)
from barnabas.storage import limits
from barnabas.storage.replica.error_codes import NOT_LEADER
from barnabas.storage.replica.isr_changes import IsrChanges
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas
from barnabas.storage.replica.topic_settings import is_throttled
from barnabas.storage.replication.held_back import HeldBack, now_ms

NOT_TOLD = (-1, -1)
OFFSET_OUT_OF_RANGE = int(ErrorCode.offset_out_of_range)

log = get_logger("storage.replication")


class ReplicationHandler:
    """What all followers' streams share; owner of who follows: one stream a node, the last of its newest process."""

    def __init__(self, replicas: Replicas, isr_changes: IsrChanges) -> None:
        self.replicas = replicas
        self.isr_changes = isr_changes
        self._sessions: dict[int, FollowerSession] = {}

    def begin(self, session: FollowerSession, follower: FollowerIdentity) -> bool:
        """Whether the session counts from now on; an older stream of the same node does not any more.

        What comes late on an older one would say that the follower has less than it has.
        """
        older = self._sessions.get(follower.node_id)
        if older is not None and older.broker_epoch > follower.broker_epoch:
            return False
        self._sessions[follower.node_id] = session
        if older is not None and older is not session:
            older.close()
        return True

    def end(self, session: FollowerSession) -> None:
        """Its stream has ended."""
        if self._sessions.get(session.node_id) is session:
            del self._sessions[session.node_id]

    async def follow(
        self, positions: AsyncIterator[ReplicaPositionsFrame]
    ) -> AsyncGenerator[Sequence[ReplicaFetched]]:
        """What one follower is to hear of its `positions`, until they end."""
        session = FollowerSession(self)
        taking = asyncio.create_task(session.take_all(positions), name="positions of a follower")
        try:
            while (frame := await session.next_frame()) is not None:
                yield frame
        finally:
            taking.cancel()
            session.close()
            self.end(session)
            await asyncio.gather(taking, return_exceptions=True)


class _Asked:
    """One partition of one follower: its position, and what it was told."""

    __slots__ = ("is_being_read", "leader_epoch", "position", "replica", "told")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.position: ReplicaPosition | None = None
        """None when it was answered."""
        self.leader_epoch = NO_EPOCH
        """Of the last position."""
        self.told = NOT_TOLD
        """The high watermark and the log's start that the follower heard of last, and has not dropped."""
        self.is_being_read = False
        """Whether a thread reads for it."""


class FollowerSession:
    """Owner of the positions of one follower's stream."""

    def __init__(self, handler: ReplicationHandler) -> None:
        self._handler = handler
        self._replicas = handler.replicas
        self._isr_changes = handler.isr_changes
        self._follower = FollowerIdentity(node_id=-1, broker_epoch=-1)
        self._asked: dict[tuple[bytes, int], _Asked] = {}
        self._ready: dict[_Asked, None] = {}
        """Positions behind which there are records."""
        self._news: dict[_Asked, None] = {}
        """Those that have only other news."""
        self._news_timer: asyncio.TimerHandle | None = None
        self._said: deque[ReplicaFetched] = deque()
        """Answers that wait to be sent."""
        self._reading: set[asyncio.Task[None]] = set()
        self._throttled_reads: set[asyncio.Task[None]] = set()
        """Of these, those of throttled replicas: how much they find is not known yet."""
        self._wake = asyncio.Event()
        self._is_over = False
        self._quota = handler.replicas.quotas.leader
        self._held = HeldBack(self._quota, self._release)
        """Of the ready ones those that are throttled and have to wait (KIP-73); they hold up nobody else."""

    @property
    def node_id(self) -> int:
        """The follower's; -1 before it has said who it is."""
        return self._follower.node_id

    @property
    def broker_epoch(self) -> int:
        """The follower's; -1 before it has said who it is."""
        return self._follower.broker_epoch

    # -- the follower's end -------------------------------------------------------------------------------------

    async def take_all(self, frames: AsyncIterator[ReplicaPositionsFrame]) -> None:
        """Take positions until there are no more; the session is then over."""
        try:
            async for frame in frames:
                if frame.HasField("follower"):
                    self._follower = frame.follower
                    if not self._handler.begin(self, frame.follower):
                        return
                if self._is_over or self.node_id < 0:
                    return
                for position in frame.positions:
                    self._take(position)
        finally:
            self._is_over = True
            self._wake.set()

    def _take(self, position: ReplicaPosition) -> None:
        key = (position.topic_id, position.partition)
        replica = self._replicas.find(*key)
        if replica is None:
            self._forget(key)
            self._say(position, self._replicas.absence(*key))
            return
        asked = self._asked.get(key)
        if asked is None or asked.replica is not replica:
            self._forget(key)
            asked = self._asked[key] = _Asked(replica)
            replica.followers[self] = None
        asked.position = position
        if position.leader_epoch != asked.leader_epoch:
            # What was said under another one, the follower drops if it hears of the new one first.
            asked.leader_epoch, asked.told = position.leader_epoch, NOT_TOLD
        if self._refuse(asked):
            return
        node, epoch = self._follower.node_id, self._follower.broker_epoch
        held = range(position.log_start_offset, position.fetch_offset)
        eligible, disk_refuses = self._isr_changes.eligible, position.disk_refuses
        if not replica.on_replicated(node, held, epoch, eligible, disk_refuses):
            self._refuse_with(asked, NOT_LEADER)
            return
        self._isr_changes.look_at(replica)
        if disk_refuses:
            self._isr_changes.look_for_refusing_disks(replica)
        assert replica.log is not None, "a leader has its log"
        if position.fetch_offset < replica.log.log_end_offset:
            self.on_growth(replica)
        elif position.log_start_offset < replica.log.log_start_offset and asked.told != self._news_of(
            replica
        ):
            self._tell(asked, position)  # it does not get in sync before
        elif asked.told != self._news_of(replica):
            self.on_news(replica)

    def _refuse(self, asked: _Asked) -> bool:
        """Answer a position that the leader's log cannot go on from."""
        replica, position = asked.replica, asked.position
        assert position is not None, "it is in force"
        error = replica.check_epoch(position.leader_epoch)
        if error:
            self._refuse_with(asked, error)
            return True
        opened = replica.log
        assert opened is not None, "a leader has its log"
        offset, start, end = position.fetch_offset, opened.log_start_offset, opened.log_end_offset
        if end < replica.end_offset:
            # It was cut a moment ago: `on_change` follows once it is known that it may be led with.
            return False
        if position.last_fetched_epoch != NO_EPOCH:
            epoch, end_offset = opened.end_offset_for_epoch(position.last_fetched_epoch)
            if epoch != NO_EPOCH and (epoch < position.last_fetched_epoch or end_offset < offset):
                answer = self._answer(asked, position)
                answer.diverging.CopyFrom(EpochEndOffset(leader_epoch=epoch, end_offset=end_offset))
                asked.told = NOT_TOLD  # of this answer it believes nothing else
                self._put(asked, ReplicaFetched(answer))
                return True
            if epoch == NO_EPOCH:
                self._refuse_with(asked, OFFSET_OUT_OF_RANGE, start, end)
                return True
        if not start <= offset <= end:
            self._refuse_with(asked, OFFSET_OUT_OF_RANGE, start, end)
            return True
        return False

    # -- what the leader's replicas say -------------------------------------------------------------------------

    def on_growth(self, replica: Replica) -> None:
        """Something was appended to the replica."""
        asked = self._asked.get((replica.topic_id, replica.index))
        if asked is not None and asked not in self._held:
            self._release(asked)

    def _release(self, asked: _Asked) -> None:
        if asked.position is not None and not asked.is_being_read:
            self._ready[asked] = None
            self._wake.set()

    def on_news(self, replica: Replica) -> None:
        """Its high watermark moved, or the start of its log."""
        asked = self._asked.get((replica.topic_id, replica.index))
        if asked is not None and asked.position is not None and asked not in self._ready:
            self._news[asked] = None
            if self._news_timer is None:
                loop = asyncio.get_running_loop()
                self._news_timer = loop.call_later(limits.REPLICA_NEWS_SECONDS, self._tell_news)

    def on_change(self, replica: Replica) -> None:
        """It leads no longer, or under another epoch, or is gone."""
        asked = self._asked.get((replica.topic_id, replica.index))
        if asked is not None and asked.position is not None:
            self._refuse(asked)

    def _tell_news(self) -> None:
        self._news_timer = None
        news, self._news = self._news, {}
        for asked in news:
            position = asked.position
            if position is not None and asked.told != self._news_of(asked.replica):
                self._tell(asked, position)

    def _tell(self, asked: _Asked, position: ReplicaPosition) -> None:
        self._said.append(ReplicaFetched(self._answer(asked, position)))
        self._wake.set()

    # -- what is said -------------------------------------------------------------------------------------------

    async def next_frame(self) -> Sequence[ReplicaFetched] | None:
        """What there is to say by now, once there is something; None when the session is over."""
        while not self._is_over:
            frame = self._frame()
            if frame:
                return frame
            await self._wake.wait()
            self._wake.clear()
        return None

    def _frame(self) -> list[ReplicaFetched]:
        frame: list[ReplicaFetched] = []
        left = self._follower.response_bytes_max
        while left > 0 and (self._said or self._ready):
            if self._said:
                fetched: ReplicaFetched | None = self._said.popleft()
            else:
                asked = next(iter(self._ready))
                del self._ready[asked]
                bytes_max = min(left, self._follower.partition_bytes_max)
                if self._is_throttled(asked.replica) and not self._is_waited_for(asked.replica):
                    if self._held.is_exceeded or self._throttled_reads:
                        self._held.hold(asked)
                        continue
                    bytes_max = int(min(bytes_max, self._quota.bound))
                fetched = self._read(asked, bytes_max)
            if fetched is not None:
                frame.append(fetched)
                left -= len(fetched.records)
        return frame

    def _is_throttled(self, replica: Replica) -> bool:
        return is_throttled(replica.settings.leader_throttled, replica.index)

    def _is_waited_for(self, replica: Replica) -> bool:
        """Whether it would hold up producers to hold the follower back: it is in sync, or about to be."""
        return replica.leader is not None and replica.leader.waits_for(self.node_id)

    def _read(self, asked: _Asked, max_bytes: int) -> ReplicaFetched | None:
        """The records behind a position; None when there are none after all, or a thread has to read them."""
        position, replica = asked.position, asked.replica
        if position is None or replica.log is None:
            return None
        try:
            records = _read_records(replica, position.fetch_offset, max_bytes, nowait=True)
        except BlockingIOError:
            asked.is_being_read = True
            task = asyncio.create_task(self._read_cold(asked, position, max_bytes), name="cold replica read")
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
            if self._is_throttled(replica):
                self._throttled_reads.add(task)
                task.add_done_callback(self._throttled_reads.discard)
            return None
        except (KafkaError, OSError) as error:
            return self._failed(asked, position, error)
        return self._fetched(asked, position, records)

    async def _read_cold(self, asked: _Asked, position: ReplicaPosition, max_bytes: int) -> None:
        """Read in a thread what is not in memory. What became of the position meanwhile is looked at again."""
        replica = asked.replica
        assert replica.lane is not None, "a log has its lane"
        read = partial(_read_records, replica, position.fetch_offset, max_bytes, nowait=False)
        fetched: ReplicaFetched | None
        try:
            records = await replica.lane.run(replica.lane.read, read)
        except (KafkaError, OSError) as error:
            asked.is_being_read = False
            if asked.position is position:
                self._put(asked, self._failed(asked, position, error))
            return
        asked.is_being_read = False
        if asked.position is not position:
            self.on_growth(replica)  # a newer one, which nobody was told of while this was read
        elif not self._refuse(asked):
            fetched = self._fetched(asked, position, records)
            if fetched is not None:
                self._put(asked, fetched)

    def _fetched(
        self, asked: _Asked, position: ReplicaPosition, records: bytes | memoryview
    ) -> ReplicaFetched | None:
        if not records:
            # Truncated or trimmed since: whoever did it says what follows. What moved meanwhile was to go with them.
            self.on_news(asked.replica)
            return None
        fetched = ReplicaFetched(self._answer(asked, position), records)
        asked.position = None
        self._news.pop(asked, None)
        counts = self._replicas.counts
        counts.replicated_bytes_out += len(records)
        if self._is_throttled(asked.replica):
            self._quota.record(len(records), now_ms())
        counts.reassigned_bytes_out += (
            len(records) if self.node_id in asked.replica.record.adding_replicas else 0
        )
        return fetched

    def _failed(
        self, asked: _Asked, position: ReplicaPosition, error: KafkaError | OSError
    ) -> ReplicaFetched:
        code = error.code if isinstance(error, KafkaError) else ErrorCode.kafka_storage_error
        if code != ErrorCode.offset_out_of_range:
            assert asked.replica.lane is not None, "a log has its lane"
            asked.replica.lane.lines.error(
                "cannot read for a follower", partition=asked.replica.name, reason=str(error)
            )
        opened = asked.replica.log
        assert opened is not None, "it was read from"
        asked.position = None
        return _refusal(position, int(code), opened.log_start_offset, opened.log_end_offset)

    def _refuse_with(self, asked: _Asked, error_code: int, start: int = -1, end: int = -1) -> None:
        position = asked.position
        assert position is not None, "it is in force"
        self._put(asked, _refusal(position, error_code, start, end))

    def _say(self, position: ReplicaPosition, error_code: int) -> None:
        self._said.append(_refusal(position, error_code))
        self._wake.set()

    def _put(self, asked: _Asked, fetched: ReplicaFetched) -> None:
        """An answer after which the position is in force no longer."""
        asked.position = None
        self._ready.pop(asked, None)
        self._news.pop(asked, None)
        self._said.append(fetched)
        self._wake.set()

    def _answer(self, asked: _Asked, position: ReplicaPosition) -> ReplicaRecords:
        replica = asked.replica
        assert replica.log is not None, "a leader has its log"
        asked.told = high_watermark, start = self._news_of(replica)
        return ReplicaRecords(
            topic_id=position.topic_id,
            partition=position.partition,
            leader_epoch=position.leader_epoch,
            fetch_offset=position.fetch_offset,
            high_watermark=high_watermark,
            log_start_offset=start,
            log_end_offset=replica.log.log_end_offset,
        )

    def _news_of(self, replica: Replica) -> tuple[int, int]:
        assert replica.log is not None, "a leader has its log"
        return replica.high_watermark, replica.log.log_start_offset

    # -- its end ------------------------------------------------------------------------------------------------

    def _forget(self, key: tuple[bytes, int]) -> None:
        asked = self._asked.pop(key, None)
        if asked is not None:
            asked.position = None
            asked.replica.followers.pop(self, None)
            self._ready.pop(asked, None)
            self._news.pop(asked, None)

    def close(self) -> None:
        """The follower is gone: nobody is woken for it, and nobody counts on what it would have fetched."""
        self._is_over = True
        self._held.close()
        if self._news_timer is not None:
            self._news_timer.cancel()
        for task in self._reading:
            task.cancel()
        gone = [asked.replica for asked in self._asked.values()]
        for key in list(self._asked):
            self._forget(key)
        for replica in gone:
            replica.on_follower_gone(self.node_id)
        self._wake.set()


def _read_records(replica: Replica, offset: int, max_bytes: int, *, nowait: bool) -> bytes | memoryview:
    """Batches from `offset` on; none at the log's end. Raises BlockingIOError under `nowait`, KafkaError, OSError."""
    opened = replica.log
    assert opened is not None, "a leader has its log"
    found = opened.locate(
        offset, max_bytes, upper_bound_offset=opened.log_end_offset, min_one_batch=True, nowait=nowait
    )
    return b"" if found is None else found.read(nowait=nowait)


def _refusal(position: ReplicaPosition, error_code: int, start: int = -1, end: int = -1) -> ReplicaFetched:
    return ReplicaFetched(
        ReplicaRecords(
            topic_id=position.topic_id,
            partition=position.partition,
            leader_epoch=position.leader_epoch,
            fetch_offset=position.fetch_offset,
            error_code=error_code,
            high_watermark=-1,
            log_start_offset=start,
            log_end_offset=end,
        )
    )
