"""All log directories of a node as one: opened together, a new partition goes where the fewest are.

Everything here touches the disk and belongs in a thread.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.config import LogConfig
from barnabas.log.errors import LogStoreError
from barnabas.log.flush_times import FlushTimes
from barnabas.log.log_directory import LogDirectory
from barnabas.log.meta_properties import read_meta_properties
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segment_file import sync_file_system
from barnabas.log.stray import StrayFacts, StrayKey

log = get_logger("storage.log_directories")

PartitionKey = tuple[str, int]
"""(topic, partition): what a directory and a checkpoint line are named for."""


class FoundPartition(NamedTuple):
    """A partition directory; no topic id where partition.metadata is missing."""

    topic: str
    partition: int
    topic_id: uuid.UUID | None


def find_cluster_id(paths: Sequence[str]) -> str:
    """The cluster that the directories belong to; empty when all are new. Raises LogStoreError."""
    for path in paths:
        properties = read_meta_properties(path)
        if properties is not None:
            return properties.cluster_id
    return ""


class LogDirectories:
    """Owner of the node's open log directories."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        flush_times: FlushTimes,
        *,
        producer_id_expiration_ms: int,
    ) -> None:
        self.flush_times = flush_times
        """Those of all their logs."""
        self._directories = list(directories)
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._places: dict[PartitionKey, LogDirectory] = {}
        self._strays: dict[StrayKey, tuple[LogDirectory, StrayFacts]] = {}
        self.found: list[FoundPartition] = []
        """The partitions that were on disk when the directories were opened."""

    @classmethod
    def open(
        cls,
        paths: Sequence[str],
        cluster_id: str,
        node_id: int,
        environment: Environment,
        *,
        producer_id_expiration_ms: int,
    ) -> LogDirectories:
        """Open all of them, or none. Raises LogStoreError."""
        with contextlib.ExitStack() as stack:
            opened, flush_times = [], FlushTimes()
            for path in paths:
                directory = LogDirectory.open(path, cluster_id, node_id, environment, flush_times=flush_times)
                stack.callback(directory.abandon)
                opened.append(directory)
            directories = cls(opened, flush_times, producer_id_expiration_ms=producer_id_expiration_ms)
            directories.found = directories._find_partitions()
            directories.find_strays()
            stack.pop_all()
        return directories

    def _find_partitions(self) -> list[FoundPartition]:
        """Every partition on disk. Raises LogStoreError when two directories hold the same one."""
        found = []
        for directory in self._directories:
            for key, topic_id in directory.partitions_on_disk().items():
                other = self._places.setdefault(key, directory)
                if other is not directory:
                    raise LogStoreError(
                        f"{other.path} and {directory.path} both hold {key[0]}-{key[1]}; move one of them away"
                    )
                found.append(FoundPartition(*key, topic_id))
        return found

    def find_strays(self) -> None:
        """Find the partitions that were set aside."""
        for directory in self._directories:
            for stray, facts in directory.strays().items():
                self._strays.setdefault(stray, (directory, facts))

    @property
    def strays(self) -> list[StrayKey]:
        """Every partition that is set aside."""
        return list(self._strays)

    def expired_strays(self, grace_ms: int) -> list[StrayKey]:
        """The partitions that were set aside `grace_ms` ago or earlier."""
        held = self._strays.copy().items()
        return [stray for stray, (directory, facts) in held if directory.is_over(facts, grace_ms)]

    @property
    def paths(self) -> list[str]:
        return [directory.path for directory in self._directories]

    def open_partition(
        self, topic: str, index: int, topic_id: uuid.UUID, config: LogConfig
    ) -> tuple[PartitionLog, int]:
        """The partition's log, opened or created, and its high watermark as it was last written down.

        Raises LogStoreError and KafkaError(KAFKA_STORAGE_ERROR).
        """
        key = (topic, index)
        self._take_back(topic, StrayKey(topic_id, index))
        directory = self._places.get(key) or min(self._directories, key=lambda each: len(each.logs))
        opened = directory.open_partition(
            topic, index, topic_id, config, producer_id_expiration_ms=self._producer_id_expiration_ms
        )
        self._places[key] = directory
        return opened, directory.high_watermarks.get(key, 0)

    def delete_partition(self, topic: str, index: int) -> None:
        """Remove a partition from disk; one that is not there is no error."""
        directory = self._places.pop((topic, index), None)
        if directory is None:
            return
        try:
            directory.delete_partition(topic, index)
        except KafkaError as error:
            log.error("cannot delete a partition", partition=f"{topic}-{index}", reason=error.message)

    def sync_file_systems(self) -> None:
        """Make durable in one pass what recovery left for later; the sync of each log then says whether it is."""
        for directory in self._directories:
            try:
                sync_file_system(directory.path)
            except OSError as error:
                log.error("a file system cannot be synced", log_dir=directory.path, reason=str(error))

    def set_aside(self, topic: str, index: int, topic_id: uuid.UUID, high_watermark: int) -> None:
        """Keep a partition that nobody knows any more as a stray one; a failing disk is logged."""
        directory = self._places.pop((topic, index), None)
        if directory is None:
            return
        stray = StrayKey(topic_id, index)
        try:
            facts = directory.set_aside(topic, stray, high_watermark)
        except KafkaError as error:
            log.error("cannot set a partition aside", partition=f"{topic}-{index}", reason=error.message)
            return
        if facts is not None:
            self._strays[stray] = (directory, facts)

    def delete_strays(self, strays: Iterable[StrayKey]) -> None:
        """Delete partitions that were set aside; a failing disk is logged."""
        for stray in strays:
            held = self._strays.pop(stray, None)
            if held is None:
                continue
            directory, facts = held
            try:
                directory.delete_stray(stray, facts)
                log.info("deleted a stray partition", partition=f"{facts.topic}-{stray.partition}")
            except KafkaError as error:
                log.error(
                    "cannot delete a stray partition",
                    partition=f"{facts.topic}-{stray.partition}",
                    reason=error.message,
                )

    def _take_back(self, topic: str, stray: StrayKey) -> None:
        """Raises KAFKA_STORAGE_ERROR."""
        held = self._strays.get(stray)
        if held is None or (topic, stray.partition) in self._places:
            return
        directory, facts = held
        directory.take_back(topic, stray, facts)
        del self._strays[stray]
        self._places[topic, stray.partition] = directory
        log.info("took a stray partition back", partition=f"{topic}-{stray.partition}")

    def write_checkpoints(self, high_watermarks: Mapping[PartitionKey, int] | None = None) -> None:
        """Write recovery points, log start offsets and, if given, high watermarks; a failing disk is logged."""
        for directory in self._directories:
            try:
                directory.write_checkpoints(self._own(directory, high_watermarks))
            except KafkaError as error:
                log.error("cannot write checkpoints", log_dir=directory.path, reason=error.message)

    def write_cleaner_checkpoints(self) -> None:
        """Write how far each log is compacted, where that has changed; a failing disk is logged."""
        for directory in self._directories:
            try:
                directory.write_cleaner_checkpoint()
            except KafkaError as error:
                log.error("cannot write checkpoints", log_dir=directory.path, reason=error.message)

    def path_of(self, key: PartitionKey) -> str:
        """The log directory that holds a partition; empty when none does."""
        directory = self._places.get(key)
        return "" if directory is None else directory.path

    def close(self, high_watermarks: Mapping[PartitionKey, int]) -> None:
        """Make everything durable and mark a clean shutdown, directory by directory."""
        for directory in self._directories:
            try:
                directory.close(self._own(directory, high_watermarks))
            except KafkaError as error:
                log.error("the next start recovers this", log_dir=directory.path, reason=error.message)

    def abandon(self) -> None:
        """Let go of everything as a crash would."""
        for directory in self._directories:
            directory.abandon()

    def _own(
        self, directory: LogDirectory, high_watermarks: Mapping[PartitionKey, int] | None
    ) -> dict[PartitionKey, int] | None:
        if high_watermarks is None:
            return None
        return {key: offset for key, offset in high_watermarks.items() if self._places.get(key) is directory}
