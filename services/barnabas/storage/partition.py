"""One replica of one partition: who may write and read it, and up to where.

A partition is opened in a thread; until then appends wait for it in order. Everything else happens on the event
loop, so that no two appends meet and the high watermark moves in one place: `_advance_high_watermark`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.append import AppendInfo, AppendOrigin
from barnabas.log.config import LONG_MAX
from barnabas.log.partition_log import PartitionLog
from barnabas.rpc.v1.metadata_pb2 import PartitionRecord
from barnabas.storage import limits
from barnabas.storage.coordinator_claim import CoordinatorClaim
from barnabas.storage.counts import TopicCounts
from barnabas.storage.group_commit import GroupCommit
from barnabas.storage.offset_waiters import OffsetWaiters, OnDecided
from barnabas.storage.topic_settings import TopicSettings

if TYPE_CHECKING:
    from barnabas.storage.delayed_fetch import DelayedFetch, FetchPurgatory

NO_EPOCH: Final = -1
ALL_REPLICAS: Final = -1
"""acks=all."""
NOT_LEADER: Final = int(ErrorCode.not_leader_or_follower)
FENCED_EPOCH: Final = int(ErrorCode.fenced_leader_epoch)
UNKNOWN_EPOCH: Final = int(ErrorCode.unknown_leader_epoch)

log = get_logger("storage.partition")


class Partition:
    """Owner of one replica: its log, its part in the cluster, its high watermark, and those who wait on it.

    `log` is None until it is open. `counts` are those of its topic on this node.
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
        flush_executor: Executor,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.internal = internal
        self.log: PartitionLog | None = None
        self.record = PartitionRecord(leader=-1, leader_epoch=NO_EPOCH)
        self.settings = settings
        self.is_leader = False
        self.leader_epoch = NO_EPOCH
        self.high_watermark = 0
        self.error = NOT_LEADER
        """Kafka's error code for all who come while the partition is not led by this node; 0 while it is."""
        self.is_offline = False
        """Whether the disk failed where what it holds is no longer known."""
        self.watchers: dict[DelayedFetch, int] = {}
        """Waiting fetches and the offset that each wants."""
        self.counts = counts
        self._node_id = node_id
        self._purgatory = purgatory
        self._flush_executor = flush_executor
        self._commit: GroupCommit | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flushes_finished = False
        self._for_high_watermark = OffsetWaiters()
        self._for_sync = OffsetWaiters()
        self._parked: deque[Callable[[], None]] | None = deque()
        self._parked_bytes = 0
        self._unseen_bytes = 0
        self._storage_failed = False

    def __repr__(self) -> str:
        return f"<Partition {self.name}>"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed consumers stop; at most the high watermark."""
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

    def on_open(self, opened: PartitionLog, high_watermark: int) -> None:
        """The log is open; `high_watermark` is the one written down before the last stop."""
        self.log = opened
        self._commit = GroupCommit(opened, self._flush_executor, self._on_synced, self._go_offline)
        self.high_watermark = min(max(high_watermark, opened.log_start_offset), opened.log_end_offset)
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
        if leads:
            try:
                self.log.assign_epoch_start(record.leader_epoch)
            except KafkaError as error:
                self._go_offline(error)
                return
            self._advance_high_watermark()
        else:
            self._fail_waiters(NOT_LEADER)
        # Whoever waits under the old epoch is to learn of the new one.
        self._complete_watchers()

    def update_settings(self, settings: TopicSettings) -> None:
        """Obey other settings from now on."""
        if settings is not self.settings:
            self.settings = settings
            if self.log is not None:
                self.log.update_config(settings.log)

    def on_removed(self) -> None:
        """The partition is no longer here: its topic was deleted, or it moved to other nodes."""
        self.is_leader = False
        self.error = int(ErrorCode.unknown_topic_or_partition)
        self._unpark()
        self._fail_waiters(self.error)
        self._complete_watchers()
        if self._flush_timer is not None:
            self._flush_timer.cancel()

    def _go_offline(self, error: BaseException) -> None:
        """A sync failed, or an epoch's start: nothing is served until the next start has recovered the log."""
        log.error("partition is offline: its disk failed", partition=self.name, reason=str(error))
        self.is_offline = True
        self.is_leader = False
        self.error = int(ErrorCode.kafka_storage_error)
        self._fail_waiters(self.error)
        self._complete_watchers()

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

    def append(
        self, records: bytes, leader_epoch: int, acks: int, *, claim: CoordinatorClaim | None = None
    ) -> AppendInfo:
        """Append whole record batches as the leader; `wait` then says when they may be acknowledged.

        `claim` is what a coordinator says of itself, None for clients. Raises KafkaError: the codes of `check_epoch`
        and of the claim's checks, what the log refuses, INVALID_TOPIC_EXCEPTION for a client's records to an internal
        topic, NOT_ENOUGH_REPLICAS under acks=all.
        """
        self.counts.appends += 1
        try:
            return self._append(records, leader_epoch, acks, claim)
        except KafkaError as refused:
            self.counts.on_refused_append(int(refused.code), len(records))
            raise

    def _append(
        self, records: bytes, leader_epoch: int, acks: int, claim: CoordinatorClaim | None
    ) -> AppendInfo:
        error = self.check_epoch(leader_epoch)
        if error:
            raise KafkaError(ErrorCode(error), self._epoch_advice(error, leader_epoch))
        if claim is not None:
            claim.check_owner(self.record, internal=self.internal)
        elif self.internal:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"clients may not write to {self.topic}")
        if acks == ALL_REPLICAS:
            self._check_in_sync_replicas()
        assert self.log is not None, "a leader has its log"
        origin = AppendOrigin.CLIENT
        if claim is not None:
            # One step with the append: nothing may come between them.
            claim.check_log_end(self.log.log_end_offset)
            origin = AppendOrigin.COORDINATOR
        try:
            info = self.log.append_as_leader(records, self.leader_epoch, origin=origin)
        except KafkaError as refused:
            self._on_refused(refused)
            raise
        if not info.duplicate:
            self._on_appended(info.last_offset - info.first_offset + 1, len(records))
        return info

    def _epoch_advice(self, error: int, leader_epoch: int) -> str:
        if error in (FENCED_EPOCH, UNKNOWN_EPOCH):
            return f"leader epoch {leader_epoch} was given, {self.leader_epoch} is current"
        return ""

    def _check_in_sync_replicas(self) -> None:
        record = self.record
        # A topic with fewer replicas than the setting asks for needs all of them.
        needed = min(self.settings.min_insync_replicas, len(record.replicas))
        if len(record.isr) < needed:
            raise KafkaError(
                ErrorCode.not_enough_replicas, f"{len(record.isr)} replicas are in sync, {needed} are needed"
            )

    def _on_refused(self, refused: KafkaError) -> None:
        if refused.code == ErrorCode.kafka_storage_error and not self._storage_failed:
            self._storage_failed = True
            log.error("cannot append: the disk refuses", partition=self.name, reason=refused.message)

    def _on_appended(self, messages: int, size_bytes: int) -> None:
        self.counts.messages_in += messages
        self.counts.bytes_in += size_bytes
        self._unseen_bytes += size_bytes
        if self._storage_failed:
            self._storage_failed = False
            log.info("the disk takes appends again", partition=self.name)
        assert self.log is not None
        assert self._commit is not None
        config = self.settings.log
        if config.flush_messages < LONG_MAX and self.log.unflushed_records >= config.flush_messages:
            self._commit.request()
        elif config.flush_ms < LONG_MAX and self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(config.flush_ms / 1000, self._flush_in_time)
        if self.log.is_finished_segment_unflushed and not self._flushes_finished:
            self._flush_finished_segment()
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
        """Move the high watermark to where every in-sync replica is, and tell those who wait for it.

        The only place that moves it. This replica is the only one, so that is its own log end; while a sync that
        flush.messages asked for is running, it is what is known to be durable.
        """
        assert self.log is not None
        commit = self._commit
        replicated = self.log.log_end_offset
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

    def _flush_in_time(self) -> None:
        """flush.ms is over."""
        self._flush_timer = None
        if self.log is not None and self.log.unflushed_records and not self.is_offline:
            future = asyncio.get_running_loop().run_in_executor(self._flush_executor, self.log.flush)
            future.add_done_callback(self._on_flushed)

    def _flush_finished_segment(self) -> None:
        """A segment was rolled: on disk, it need not be checked after a crash. Nobody waits for it."""
        assert self.log is not None
        self._flushes_finished = True
        future = asyncio.get_running_loop().run_in_executor(self._flush_executor, self.log.flush_finished)
        future.add_done_callback(self._on_finished_segment_flushed)

    def _on_finished_segment_flushed(self, future: asyncio.Future[int]) -> None:
        self._flushes_finished = False
        error = None if future.cancelled() else future.exception()
        if self.log is None or self.is_offline or future.cancelled():
            return
        if error is None:
            if self.log.is_finished_segment_unflushed:
                self._flush_finished_segment()  # another was rolled meanwhile
        elif self.log.is_trusted:
            log.warning("a finished segment is not on disk yet", partition=self.name, reason=str(error))
        else:
            self._go_offline(error)

    def _on_flushed(self, future: asyncio.Future[int]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._go_offline(error)
