"""The partitions of all log directories that are set aside; see `log/checkpoints/stray`."""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Mapping

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.partition_metadata import directory_name, read_topic_id
from barnabas.log.checkpoints.stray import FoundStray, StrayFacts, StrayKey
from barnabas.log.errors import LogStoreError, storage_errors
from barnabas.log.log_directory import LogDirectory
from barnabas.log.log_progress import LogProgress, is_unused
from barnabas.log.setting_aside import delete_stray, take_back
from barnabas.log.small_files import exists

log = get_logger("storage.log_directories")


class Strays:
    """Owner of which partitions are set aside, and where. What touches the disk belongs in a thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._held: dict[StrayKey, tuple[LogDirectory, StrayFacts]] = {}
        self._found: set[StrayKey] = set()
        """Those of them that were set aside before this start: elsewhere there may be more of them."""

    def add(self, stray: StrayKey, home: LogDirectory, facts: StrayFacts) -> None:
        """The partition was set aside in a log directory. An earlier copy stays on its disk, and is nobody's before the
        next start.
        """
        self._held[stray] = (home, facts)
        self._found.discard(stray)

    def add_furthest(
        self, found: Mapping[LogDirectory, Mapping[StrayKey, FoundStray]], failed: dict[LogDirectory, str]
    ) -> None:
        """A start found these, set aside in log directories: of two copies the one with more of it counts. A directory
        whose copy of two cannot be read comes into `failed`, with the reason: it may be the one.
        """
        homes: defaultdict[StrayKey, list[LogDirectory]] = defaultdict(list)
        for home, strays in found.items():
            for stray in strays:
                homes[stray].append(home)
        progress: dict[tuple[StrayKey, LogDirectory], LogProgress] = {}
        for stray, those in homes.items():
            for home in those if len(those) > 1 else ():
                try:
                    progress[stray, home] = found[home][stray].progress(self._files)
                except OSError as error:
                    failed[home] = f"{found[home][stray].directory} cannot be read: {error}"
        for stray, those in homes.items():
            furthest = None
            for home in those:
                if home not in failed and (
                    furthest is None or progress[stray, furthest].is_behind(progress[stray, home])
                ):
                    furthest = home
            if furthest is not None:
                self.add(stray, furthest, found[furthest][stray].facts)
                self._found.add(stray)

    def may_be_behind(self, stray: StrayKey) -> bool:
        """Whether there may be more of it elsewhere than what is set aside here, as far as this start could look."""
        return stray in self._found

    @property
    def keys(self) -> list[StrayKey]:
        """Every partition that is set aside."""
        return list(self._held)

    def home_of(self, stray: StrayKey) -> LogDirectory | None:
        """The log directory that it is in; None when it is not set aside."""
        held = self._held.get(stray)
        return None if held is None else held[0]

    def path_of(self, stray: StrayKey) -> str:
        """The path of that; empty when it is not set aside any more."""
        home = self.home_of(stray)
        return "" if home is None else home.path

    def expired(self, grace_ms: int) -> list[StrayKey]:
        """The partitions that were set aside `grace_ms` ago or earlier."""
        return [stray for stray, held in self._held.copy().items() if _is_over(*held, grace_ms)]

    def is_place_free(self, directory: LogDirectory, topic: str, index: int, topic_id: uuid.UUID) -> bool:
        """Whether nothing stands where a stray partition is to come back to. A log of the same partition that never
        had a record is removed, and one of which the power took the topic's id before it had any. One with records, or
        of another topic, stays; the stray one is kept as well. Raises OSError, LogStoreError and KAFKA_STORAGE_ERROR.
        """
        place = os.path.join(directory.path, directory_name(topic, index))
        if not exists(self._files, place):
            return True
        if (topic, index) in directory.logs or read_topic_id(self._files, place) not in (None, topic_id):
            return False
        if not is_unused(self._files, place):
            log.error(
                "a partition has records beside those that were set aside, which are kept",
                partition=f"{topic}-{index}",
                log_dir=directory.path,
            )
            return False
        directory.delete_partition(topic, index)
        return True

    def take_back(self, directory: LogDirectory, topic: str, stray: StrayKey) -> bool:
        """Have it be the partition of `topic` in a directory again, if it is set aside and its place is free; returns
        whether that was so: it may be gone all the same, or be empty. Raises KAFKA_STORAGE_ERROR, and LogStoreError
        rather than have a new log take the stray one's place.
        """
        held = self._held.get(stray)
        if held is None:
            return False
        with storage_errors(directory.path):
            if exists(self._files, os.path.join(directory.path, directory_name(topic, stray.partition))):
                return False
        if held[0] is not directory:
            raise LogStoreError(f"{topic}-{stray.partition} lies in {held[0].path}, set aside")
        is_back = take_back(directory, topic, stray, held[1])
        del self._held[stray]
        if is_back:
            log.info("took a stray partition back", partition=f"{topic}-{stray.partition}")
        return True

    def delete(self, stray: StrayKey, *, grace_ms: int = 0) -> None:
        """Delete a partition that was set aside `grace_ms` ago or earlier; a failing disk is logged."""
        held = self._held.get(stray)
        if held is None or not _is_over(*held, grace_ms):
            return  # a newer copy may have been set aside since it was found to be too old
        directory, facts = held
        name = directory_name(facts.topic, stray.partition)
        try:
            delete_stray(directory, stray, facts)
            # Meanwhile another directory's thread may have set another copy aside.
            if self._held.get(stray) is held:
                del self._held[stray]
            log.info("deleted a stray partition", partition=name)
        except KafkaError as error:
            log.error("cannot delete a stray partition", partition=name, reason=error.message)


def _is_over(home: LogDirectory, facts: StrayFacts, grace_ms: int) -> bool:
    return home.environment.clock.now_ms() - facts.since_ms >= grace_ms
