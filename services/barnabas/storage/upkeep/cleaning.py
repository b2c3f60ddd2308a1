"""When compacted topics are compacted: one thread a log directory, the dirtiest log first (Kafka's log cleaner).

A thread gives way to the event loop after every batch; together they keep to log.cleaner.io.max.bytes.per.second.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

from barnabas.kernel.clock import Clock, machine_seconds
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.cleaning import cleaner
from barnabas.log.cleaning.cleanable import LogToClean, measure
from barnabas.log.cleaning.cleaned_segment import CleanedCounts
from barnabas.log.cleaning.cleaner import CleaningAbortedError
from barnabas.log.partition_log import PartitionLog
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas

log = get_logger("storage.cleaning")


Candidate = tuple[PartitionKey, PartitionLog, int]
"""(partition, its log, its high watermark)."""


class CleanerSettings(NamedTuple):
    """What the cluster's settings say at the moment: ms, and for each directory bytes of the key map and bytes a
    second.
    """

    backoff_ms: int
    buffer_bytes: int
    bytes_per_second: float


class Cleaning:
    """Owner of the schedule, of the partitions that cannot be cleaned, and of the counts that metrics show."""

    def __init__(
        self,
        replicas: Replicas,
        directories: LogDirectories,
        lanes: Mapping[str, DirectoryLane],
        clock: Clock,
    ) -> None:
        self.uncleanable: dict[PartitionKey, PartitionLog] = {}
        """Partitions whose cleaning failed, left alone until their log is opened anew."""
        self._dirty_ratios = dict.fromkeys(lanes, 0.0)
        self.runs = 0
        self.last_run_ms = clock.now_ms()
        self.last_counts = CleanedCounts()
        self.last_seconds = 0.0
        self._replicas = replicas
        self._directories = directories
        self._lanes = lanes
        self._clock = clock
        self._stopping = threading.Event()

    @property
    def dirty_ratio_max(self) -> float:
        """The uncompacted share of the dirtiest log when it was last looked for."""
        return max(self._dirty_ratios.values(), default=0.0)

    async def run(self) -> None:
        """Clean while there is something to clean, then rest for log.cleaner.backoff.ms; until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for lane in self._lanes.values():
                    tasks.create_task(self._run_for(lane), name="log-cleaner")
        finally:
            # The threads end at their next batch; what they have not swapped in is forgotten.
            self._stopping.set()

    async def _run_for(self, lane: DirectoryLane) -> None:
        while True:
            await self._clock.sleep(self._settings().backoff_ms / 1000)
            while await self.clean_dirtiest_of(lane):
                pass

    async def clean_dirtiest(self) -> bool:
        """Clean the log of each directory that needs it most; False when none does, or it could not be cleaned."""
        return any(await asyncio.gather(*(self.clean_dirtiest_of(lane) for lane in self._lanes.values())))

    async def clean_dirtiest_of(self, lane: DirectoryLane) -> bool:
        """The same for one directory."""
        self._forget_uncleanable()
        candidates: list[Candidate] = [
            ((replica.topic, replica.index), replica.log, replica.high_watermark)
            for replica in self._cleanable()
            if replica.log is not None and replica.lane is lane
        ]
        self.last_run_ms = self._clock.now_ms()
        if not candidates:
            self._dirty_ratios[lane.path] = 0.0
            return False
        settings = self._settings()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(lane.cleaner, self._clean_one, lane, candidates, settings)

    def _settings(self) -> CleanerSettings:
        def value(name: str) -> float:
            found = self._replicas.broker_value(name)
            assert isinstance(found, int | float)
            return found

        return CleanerSettings(
            max(int(value("log.cleaner.backoff.ms")), limits.CLEANING_BACKOFF_MS_MIN),
            int(value("log.cleaner.dedupe.buffer.size")) // len(self._lanes),
            max(value("log.cleaner.io.max.bytes.per.second") / len(self._lanes), 1.0),
        )

    def _cleanable(self) -> Iterator[Replica]:
        for replica in self._replicas.by_partition.values():
            # The settings first: few topics are compacted, and all partitions are asked. The log takes new ones in turn
            # with its appends: until then it has the former ones, by which too much might go.
            if not replica.settings.log.is_compacted or replica.log is None:
                continue
            is_free = not replica.is_offline and not self._replicas.moves.is_moving(replica)
            if is_free and replica.log.config == replica.settings.log:
                yield replica

    def _forget_uncleanable(self) -> None:
        if not self.uncleanable:
            return
        current = {(each.topic, each.index): each.log for each in self._cleanable()}
        self.uncleanable = {
            key: failed for key, failed in self.uncleanable.items() if current.get(key) is failed
        }

    # -- in the thread ------------------------------------------------------------------------------------------

    def _clean_one(
        self, lane: DirectoryLane, candidates: Sequence[Candidate], settings: CleanerSettings
    ) -> bool:
        now_ms = self._clock.now_ms()
        measured: list[tuple[PartitionKey, LogToClean]] = []
        for key, opened, high_watermark in candidates:
            if key in self.uncleanable or opened.is_closed:
                continue
            try:
                measured.append((key, measure(opened, high_watermark, now_ms)))
            except Exception as error:
                self._on_failed(key, opened, error)
        self._dirty_ratios[lane.path] = max((to_clean.dirty_ratio for _, to_clean in measured), default=0.0)
        due = [pair for pair in measured if pair[1].is_due]
        if not due:
            return False
        key, to_clean = max(due, key=lambda pair: pair[1].dirty_ratio)
        return self._clean(lane, key, to_clean, settings)

    def _clean(
        self, lane: DirectoryLane, key: PartitionKey, to_clean: LogToClean, settings: CleanerSettings
    ) -> bool:
        began = perf_counter()
        pace = _Pace(settings.bytes_per_second, self._stopping)
        try:
            # Compaction leaves gaps between segments; recovery has to know that these are none that a crash made.
            to_clean.log.first_dirty_offset = to_clean.first_dirty_offset
            self._directories.write_cleaner_checkpoint(lane.path)
            counts = cleaner.clean(to_clean, self._clock.now_ms(), pace, buffer_bytes=settings.buffer_bytes)
            self._directories.write_cleaner_checkpoint(lane.path)
        except CleaningAbortedError as error:
            log.info("compaction was broken off", reason=str(error))
            return False
        except Exception as error:
            self._on_failed(key, to_clean.log, error)
            return not self._stopping.is_set()
        self.runs += 1
        self.last_counts = counts
        self.last_seconds = perf_counter() - began
        log.info(
            "compacted a log",
            log=to_clean.log.directory,
            bytes_before=counts.bytes_read,
            bytes_after=counts.bytes_written,
            records_before=counts.records_read,
            records_after=counts.records_written,
        )
        # A log that did not move on would be the dirtiest for ever.
        return to_clean.log.first_dirty_offset > to_clean.first_dirty_offset

    def _on_failed(self, key: PartitionKey, opened: PartitionLog, error: Exception) -> None:
        """One line, and the partition is left alone; a log that was closed or deleted meanwhile is no failure."""
        if opened.is_closed:
            return
        self.uncleanable[key] = opened
        reason = error.message if isinstance(error, KafkaError) else repr(error)
        log.error("a log cannot be compacted and is left as it is", log=opened.directory, reason=reason)


class _Pace:
    """Called for every batch in the cleaner's thread."""

    def __init__(self, bytes_per_second: float, stopping: threading.Event) -> None:
        self._bytes_per_second = bytes_per_second
        self._stopping = stopping
        self._began = machine_seconds()  # whatever the clock says: it is the disk that is spared
        self._bytes = 0

    def __call__(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        # Lets a thread that waits for the interpreter run, the event loop above all.
        time.sleep(0)
        while not self._stopping.is_set():
            ahead = self._bytes / self._bytes_per_second - (machine_seconds() - self._began)
            if ahead < limits.CLEANING_PAUSE_SECONDS_MIN:
                return
            self._stopping.wait(min(ahead, limits.CLEANING_PAUSE_SECONDS_MAX))
        raise CleaningAbortedError("the node stops")
