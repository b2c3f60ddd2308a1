"""What is done to the logs from time to time: retention, checkpoints, forgetting idle producers and strays; once, at
start, a sync of what recovery checked.

Each log directory has a schedule and a thread of its own, which takes a bounded number of partitions at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from barnabas.kernel.clock import Clock
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.partition_log import PartitionLog
from barnabas.storage import limits
from barnabas.storage.config import StorageConfig
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.replica.replicas import Replicas

PARTITIONS_AT_ONCE: Final = 64
"""Partitions that one turn in the thread looks at, before the event loop may stop it."""

ResultT = TypeVar("ResultT")
Work = Callable[[PartitionLog, int], int]
"""(log, high watermark) -> how many things were done."""

log = get_logger("storage.upkeep")


class Upkeep:
    """Owns the schedules; each of their tasks may also be called by itself, for all directories."""

    def __init__(
        self,
        config: StorageConfig,
        replicas: Replicas,
        directories: LogDirectories,
        lanes: Mapping[str, DirectoryLane],
        clock: Clock,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._clock = clock
        self._of_each = [_DirectoryUpkeep(replicas, directories, lane) for lane in lanes.values()]

    async def run(self) -> None:
        """Do everything on schedule until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                self._repeat(limits.STRAY_CHECK_MS, self._replicas.expire_strays), name="strays"
            )
            for each in self._of_each:
                tasks.create_task(self._run_for(each), name="upkeep")

    async def _run_for(self, each: _DirectoryUpkeep) -> None:
        config = self._config
        await each.flush_recovered()
        schedule: list[tuple[int, Callable[[], Awaitable[object]]]] = [
            (config.log_retention_check_interval_ms, each.apply_retention),
            (config.log_flush_offset_checkpoint_interval_ms, each.write_checkpoints),
            (config.replica_high_watermark_checkpoint_interval_ms, each.write_high_watermarks),
            (config.producer_id_expiration_check_interval_ms, each.expire_producers),
        ]
        async with asyncio.TaskGroup() as tasks:
            for interval_ms, work in schedule:
                tasks.create_task(self._repeat(interval_ms, work), name="upkeep")

    async def _repeat(self, interval_ms: int, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self._clock.sleep(interval_ms / 1000)
            await work()

    async def flush_recovered(self) -> int:
        """Move the recovery points of the logs that a crash made recovery check; returns how many there were.

        So another crash does not check them again. They were not synced one by one before the node was ready: there
        may be thousands.
        """
        return sum(await asyncio.gather(*(each.flush_recovered() for each in self._of_each)))

    async def apply_retention(self) -> int:
        """Delete segments past their retention; returns how many."""
        return sum(await asyncio.gather(*(each.apply_retention() for each in self._of_each)))

    async def expire_producers(self) -> int:
        """Forget idle producers; returns how many."""
        return sum(await asyncio.gather(*(each.expire_producers() for each in self._of_each)))

    async def write_checkpoints(self) -> None:
        """Write recovery points and log start offsets."""
        await asyncio.gather(*(each.write_checkpoints() for each in self._of_each))

    async def write_high_watermarks(self) -> None:
        """Write high watermarks, with the other checkpoints, if any moved."""
        await asyncio.gather(*(each.write_high_watermarks() for each in self._of_each))


class _DirectoryUpkeep:
    """The same for one log directory."""

    def __init__(self, replicas: Replicas, directories: LogDirectories, lane: DirectoryLane) -> None:
        self._replicas = replicas
        self._directories = directories
        self._lane = lane

    async def flush_recovered(self) -> int:
        if not any(_is_recovered(opened) for opened, _ in self._logs()):
            return 0
        await self._in_thread(partial(self._directories.sync_file_system, self._lane.path))
        count = await self._for_all(_flush_recovered)
        await self.write_checkpoints()
        log.info("synced the partitions that were recovered", log_dir=self._lane.path, partitions=count)
        return count

    async def apply_retention(self) -> int:
        return await self._for_all(_delete_old_segments)

    async def expire_producers(self) -> int:
        expiration_ms = self._replicas.broker_value("producer.id.expiration.ms")
        assert isinstance(expiration_ms, int)
        return await self._for_all(lambda opened, _: opened.expire_producers(expiration_ms))

    async def write_checkpoints(self) -> None:
        await self._in_thread(partial(self._directories.write_checkpoints, self._lane.path))

    async def write_high_watermarks(self) -> None:
        lane = self._lane
        if not lane.has_new_high_watermarks:
            return
        lane.has_new_high_watermarks = False  # before: what moves while they are written is written next time
        high_watermarks, are_written = self._replicas.high_watermarks(lane), False
        write = partial(self._directories.write_checkpoints, lane.path, high_watermarks)
        try:
            are_written = await self._in_thread(write)
        finally:
            if not are_written:
                lane.has_new_high_watermarks = True

    def _logs(self) -> list[tuple[PartitionLog, int]]:
        """Every open log of the directory, with its high watermark."""
        return [
            (replica.log, replica.high_watermark)
            for replica in self._replicas.by_partition.values()
            if replica.log is not None and replica.lane is self._lane
        ]

    async def _for_all(self, work: Work) -> int:
        """`work` for every open partition of the directory; the sum of its results."""
        logs = self._logs()
        total = 0
        for start in range(0, len(logs), PARTITIONS_AT_ONCE):
            total += await self._in_thread(
                partial(_do_each, self._lane, work, logs[start : start + PARTITIONS_AT_ONCE])
            )
        return total

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._lane.upkeep, work)


def _do_each(lane: DirectoryLane, work: Work, logs: Sequence[tuple[PartitionLog, int]]) -> int:
    total = 0
    for opened, high_watermark in logs:
        try:
            total += work(opened, high_watermark)
        except KafkaError as error:
            # Also a partition that was deleted meanwhile.
            lane.lines.warning("upkeep of a partition failed", log=opened.directory, reason=error.message)
    return total


def _is_recovered(opened: PartitionLog) -> bool:
    is_unflushed = opened.recovery_report.segments_checked > 0 and opened.unflushed_records > 0
    return is_unflushed or opened.has_doubtful_indexes


def _flush_recovered(opened: PartitionLog, _: int) -> int:
    if opened.is_closed or not _is_recovered(opened):
        return 0
    opened.flush()
    return 1


def _delete_old_segments(opened: PartitionLog, high_watermark: int) -> int:
    count = opened.delete_old_segments(high_watermark)
    if count:
        log.info("deleted segments past their retention", log=opened.directory, segments=count)
    return count
