"""What of a log is on disk, as far as flush.messages and flush.ms ask, and who waits for that."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.kernel.kafka_values import LONG_MAX
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.replica.group_commit import GroupCommit
from barnabas.storage.replica.offset_waiters import OffsetWaiters, OnDecided
from barnabas.storage.replica.unawaited_flushes import UnawaitedFlushes


class Durability:
    """Owner of the syncs of one open log, and of the appends under acks=1 that wait for one.

    On the event loop, `on_synced` is called when more is durable, and `on_failed(error)` when a sync failed: then
    nothing that waits may be acknowledged, and the log may not hold what it was told.
    """

    __slots__ = ("_is_stopped", "_log", "_on_failed", "_on_synced", "_unawaited", "_waiting", "commit")

    def __init__(
        self,
        name: str,
        opened: PartitionLog,
        lane: DirectoryLane,
        *,
        on_synced: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`name` is the partition's; syncs run in the threads of its `lane`."""
        self._log = opened
        self._on_synced = on_synced
        self._on_failed = on_failed
        self.commit = GroupCommit(opened, lane.flush, self._on_commit, self._on_commit_failed)
        self._unawaited = UnawaitedFlushes(name, opened, lane, on_failed)
        self._waiting = OffsetWaiters()
        self._is_stopped = False

    def acknowledgeable(self, end_offset: int) -> int:
        """Up to where the log, which ends at `end_offset`, may count as written: while a sync that flush.messages
        asked for is running, up to what is known to be durable.
        """
        return min(end_offset, self._log.recovery_point) if self.commit.is_pending else end_offset

    def on_append(self, config: LogConfig) -> None:
        """Something was appended under these settings."""
        flush_ms = config.flush_ms
        if config.flush_messages < LONG_MAX and self._log.unflushed_records >= config.flush_messages:
            self.commit.request()
            flush_ms = LONG_MAX
        self._unawaited.on_append(flush_ms)

    def wait(self, offset: int, on_decided: OnDecided) -> bool:
        """Have `on_decided` called once what is before `offset` is durable; False if no sync is to be waited for."""
        if not self.commit.is_waiting_for(offset):
            return False
        self._waiting.add(offset, on_decided)
        return True

    def fail(self, error_code: int) -> None:
        """Nobody is to wait any longer."""
        self._waiting.fail(error_code)

    def end(self, offset: int) -> None:
        """What is before `offset` is durable by other means, and the log goes on as another one."""
        self.stop()
        self._waiting.release(offset)

    def stop(self) -> None:
        """The log is served no longer: what becomes of its syncs is nobody's business."""
        self._is_stopped = True
        self._unawaited.stop()

    def _on_commit(self, offset: int) -> None:
        self._waiting.release(offset)
        self._on_synced()

    def _on_commit_failed(self, error: BaseException) -> None:
        if not self._is_stopped:
            self._on_failed(error)
