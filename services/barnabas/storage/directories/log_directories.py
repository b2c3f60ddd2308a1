"""All log directories of a node as one: opened together, a new partition goes where the fewest are.

One that its disk does not let us read at start is offline until the next, as in Kafka: nobody knows what is in it. So a
partition that is found nowhere else, and may be older than this process, is offline with it: begun anew elsewhere it
would be empty, and hide what was acknowledged.

Everything here touches the disk and belongs in a thread.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections import Counter
from collections.abc import Collection, Container, Mapping, Sequence

from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.clean_shutdown import UNKNOWN_BROKER_EPOCH, CleanShutdown
from barnabas.log.checkpoints.partition_metadata import directory_name
from barnabas.log.checkpoints.stray import StrayKey
from barnabas.log.config import LogConfig
from barnabas.log.errors import LogStoreError, storage_errors
from barnabas.log.flush_times import FlushTimes
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving.settling import Settling, adopt_moved
from barnabas.log.partition_log import PartitionLog
from barnabas.log.setting_aside import set_aside
from barnabas.log.small_files import exists, sync_file_system
from barnabas.storage.directories.cluster_id import is_disk_failure
from barnabas.storage.directories.errors import DirectoryOffline, LogLost
from barnabas.storage.directories.found_on_disk import (
    FoundFuture,
    FoundOnDisk,
    FoundPartition,
    find_on_disk,
    topic_there,
)
from barnabas.storage.directories.missing_partitions import MissingPartitions
from barnabas.storage.directories.strays import Strays

log = get_logger("storage.log_directories")


class LogDirectories:
    """Owner of the node's open log directories."""

    def __init__(
        self,
        files: Files,
        directories: Sequence[LogDirectory],
        flush_times: FlushTimes,
        lines: RareLines,
        *,
        producer_id_expiration_ms: int,
    ) -> None:
        self.flush_times = flush_times
        """Those of all their logs."""
        self._files = files
        self._lines = lines
        self._directories = list(directories)
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._by_path = {directory.path: directory for directory in self._directories}
        self._lock = threading.Lock()
        """For the four below; never held over a call to the disk."""
        self._places: dict[PartitionKey, LogDirectory] = {}
        self._taken: Counter[str] = Counter()
        """Places by path."""
        self._claims: Counter[PartitionKey] = Counter()
        self._topics: dict[PartitionKey, uuid.UUID] = {}
        """Of each name the topic that had it: that is not new when it comes again to the metadata."""
        self._missing = MissingPartitions(files)
        self.strays = Strays(files)
        self._unsettled: set[str] = set()
        """Directories that may hold a partition by a name that is not its own."""
        self._undeleted: dict[PartitionKey, set[uuid.UUID]] = {}
        """The topics whose partition of that name was to be deleted, and is not yet."""
        self.found: list[FoundPartition] = []
        """The partitions that were on disk when the directories were opened."""
        self.futures: list[FoundFuture] = []
        """The future replicas that were there then."""
        self.offline: set[str] = set()
        """The paths of those that could not be read then."""

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
        """Open all that their disks let us read, or none. Raises LogStoreError, also where no disk does."""
        with contextlib.ExitStack() as stack:
            opened, failed, flush_times = [], dict[str, str](), FlushTimes()
            for path in paths:
                try:
                    directory = LogDirectory.open(
                        path, cluster_id, node_id, environment, flush_times=flush_times
                    )
                except LogStoreError as error:
                    if not is_disk_failure(error):
                        raise
                    failed[path] = str(error)
                    continue
                stack.callback(directory.abandon)
                opened.append(directory)
            directories = cls(
                environment.files,
                opened,
                flush_times,
                RareLines(log, environment.clock.monotonic),
                producer_id_expiration_ms=producer_id_expiration_ms,
            )
            found = {}
            for directory in opened:
                try:
                    found[directory] = find_on_disk(environment.files, directory)
                except OSError as error:
                    failed[directory.path] = f"{directory.path} cannot be read: {error}"
            failed |= directories._add_found(found, all_there=not failed)
            directories._leave_out(failed)
            directories._find_missing()
            stack.pop_all()
        return directories

    def _add_found(self, found: Mapping[LogDirectory, FoundOnDisk], *, all_there: bool) -> dict[str, str]:
        """What is in the directories; returns those whose disk refuses what has to be done first, with the reason.
        Raises LogStoreError when two hold a partition.
        """
        settling = Settling(
            self._files,
            {each: on_disk.partitions for each, on_disk in found.items()},
            {each: on_disk.strays for each, on_disk in found.items()},
            {each: on_disk.moved for each, on_disk in found.items()},
        )
        settling.settle_moves({each: on_disk.left for each, on_disk in found.items()}, all_there=all_there)
        aside = list(settling.separate_topics())
        self.strays.add_furthest(settling.strays, settling.failed)
        for directory, partitions in settling.partitions.items():
            on_disk = found[directory]
            # Not before: a start that is refused takes nothing away from whoever has to say what counts.
            moved = {key: facts for key, facts in on_disk.moved.items() if key in partitions}
            adopt_moved(self._files, directory, moved)
            for key, topic_id in partitions.items():
                self._put(key, directory)
                self.found.append(FoundPartition(*key, topic_id))
            self.futures += [FoundFuture(directory.path, name, *key) for name, key in on_disk.futures.items()]
        for home, stray, facts in aside:
            if home not in settling.failed:
                self.strays.add(stray, home, facts)
            for each in settling.partitions:  # it may have been there
                each.forget_elsewhere((facts.topic, stray.partition))
        self._unsettled = {each.path for each in settling.unsettled}
        return {each.path: reason for each, reason in settling.failed.items()}

    def _leave_out(self, failed: Mapping[str, str]) -> None:
        """Go on without these directories, each of which failed for a reason. Raises LogStoreError if none is left."""
        self.offline = set(failed)
        left_out = [each for each in self._directories if each.path in failed]
        self._directories = [each for each in self._directories if each.path not in failed]
        if not self._directories:
            raise LogStoreError(f"no log directory can be used: {'; '.join(failed.values())}")
        for directory in left_out:
            del self._by_path[directory.path]
            directory.abandon()
        for path, reason in failed.items():
            log.error("a log directory is offline until the next start", log_dir=path, reason=reason)

    def _find_missing(self) -> None:
        """What checkpoints name with records, and nothing lies anywhere of."""
        for directory in self._directories:
            directory.forget_missing(self._places)
            self._missing.add(directory.kept_for_missing, directory)

    @property
    def ids(self) -> list[bytes]:
        """The ids of the log directories that could be opened, in ascending order."""
        return sorted(directory.properties.directory_id.bytes for directory in self._directories)

    @property
    def previous(self) -> CleanShutdown:
        """What the process before this start said when it stopped: nothing unless all of its log directories could be
        opened, were closed properly, and say the same (KIP-966).
        """
        said = {directory.closed for directory in self._directories}
        first = said.pop()
        return CleanShutdown() if self.offline or said or first is None else first

    @property
    def previous_broker_epoch(self) -> int | None:
        """Under which broker epoch the node was stopped before this start; None where that is not known."""
        epoch = self.previous.broker_epoch
        return None if epoch == UNKNOWN_BROKER_EPOCH else epoch

    def marker(self, broker_epoch: int, targets: Container[str]) -> CleanShutdown:
        """What is to be said when the node stops that is registered under this epoch; something may come yet to the
        directories of the paths `targets`.
        """
        held = {self.strays.path_of(stray) for stray in self.strays.keys}
        empty = {
            each.properties.directory_id
            for each in self._directories
            if not self._taken[each.path]
            and not each.kept_for_missing
            and each.path not in targets
            and each.path not in held | self._unsettled
        }
        here = {each.properties.directory_id for each in self._directories}
        broker_epoch = broker_epoch if self._missing.are_named(self._directories) else UNKNOWN_BROKER_EPOCH
        return CleanShutdown(broker_epoch, frozenset(empty | (self.previous.empty_log_directories - here)))

    @property
    def paths(self) -> list[str]:
        return [directory.path for directory in self._directories]

    def claim(
        self,
        topic: str,
        index: int,
        topic_id: uuid.UUID,
        *,
        is_new: bool,
        avoid: Collection[str] = (),
        cordoned: Collection[str] = (),
        preferred: str = "",
    ) -> str:
        """The path of the directory that holds the partition, perhaps as a stray one.

        One that is missing goes to where it was, one that none holds to the `preferred` one, else where the fewest are,
        if possible not into one of `avoid`, still less one that is `cordoned`. But any whose place is not known goes to
        one that is offline, if any is, unless `is_new` says that nothing of it can be there: of what a start found set
        aside elsewhere there may be more. It stays there until it moves, or each claim is released. May be called on an
        event loop.
        """
        key = (topic, index)
        with self._lock:
            self._claims[key] += 1
            stray = StrayKey(topic_id, index)
            stray_home = self.strays.home_of(stray)
            is_new = is_new and self._topics.get(key) != topic_id and stray_home is None
            if is_new:
                self._missing.expect_new(key)
            else:
                self._topics[key] = topic_id
            if key not in self._places:
                if self.offline and not is_new and (stray_home is None or self.strays.may_be_behind(stray)):
                    return min(self.offline)
                best = self._by_path.get(preferred) or min(
                    self._directories,
                    key=lambda each: (each.path in cordoned, each.path in avoid, self._taken[each.path]),
                )
                self._put(key, self._missing.home_of(key) or stray_home or best)
            return self._places[key].path

    def release(self, topic: str, index: int) -> None:
        """A claim ends; without another one the place is free once the partition is deleted."""
        key = (topic, index)
        with self._lock:
            self._claims[key] -= 1
            if not self._claims[key]:
                del self._claims[key]
                self._missing.expect_no_longer(key)

    def relocate(self, key: PartitionKey, path: str) -> None:
        """A partition has moved to another directory, and has its claims there."""
        with self._lock:
            self._taken[self._places[key].path] -= 1
            self._put(key, self._by_path[path])

    def at(self, path: str) -> LogDirectory:
        """The open directory of the path: for whoever moves partitions."""
        return self._by_path[path]

    def forget_unclaimed(self) -> None:
        """The metadata are known: what is missing of partitions that they do not give to this node nobody asks for."""
        with self._lock:
            self._missing.keep_only(self._claims)

    def _free(self, key: PartitionKey) -> None:
        """What was at the place is gone."""
        with self._lock:
            if key not in self._claims:  # else it was created again meanwhile, in the same place
                self._taken[self._places.pop(key).path] -= 1

    def _put(self, key: PartitionKey, directory: LogDirectory) -> None:
        self._places[key] = directory
        self._taken[directory.path] += 1

    def find_home(
        self, path: str, topic: str, index: int, topic_id: uuid.UUID, *, may_begin_anew: bool = True
    ) -> str:
        """The path of the directory that the partition, which was given `path` by `claim`, is to be opened in.

        That is where it lies as a stray one, if it does. Its name may have had its place elsewhere when it was claimed:
        another topic of the same name was there, and is gone by now, or goes now, where the disk has refused that. In
        the thread of `path`. Raises as `open_partition`, when it cannot be opened anywhere now.
        """
        if path in self.offline:
            return path
        directory = self._by_path[path]
        if (topic, index) in self._undeleted:
            self._delete(directory, (topic, index))
        home = self.strays.home_of(StrayKey(topic_id, index))
        if home is None:
            return path
        # What is set aside may be older than what is missing, and what is brought back comes to where it was.
        self._miss(directory, (topic, index), may_begin_anew=may_begin_anew)
        with storage_errors(path):
            if not self.strays.is_place_free(directory, topic, index, topic_id) or home is directory:
                return path
            if exists(self._files, os.path.join(home.path, directory_name(topic, index))):
                raise LogStoreError(
                    f"{topic}-{index} cannot be taken back: its name is in use in {home.path}"
                )
        with self._lock:
            self._taken[directory.path] -= 1
            self._put((topic, index), home)
        return home.path

    def open_partition(
        self,
        path: str,
        topic: str,
        index: int,
        topic_id: uuid.UUID,
        config: LogConfig,
        *,
        may_begin_anew: bool = True,
    ) -> tuple[PartitionLog, int]:
        """The log of a partition whose home is `path`, opened or created, and its high watermark as it was last written
        down. One that is missing is created only if it `may_begin_anew`.

        Raises LogStoreError and KafkaError(KAFKA_STORAGE_ERROR), DirectoryOffline and LogLost among these.
        """
        if path in self.offline:
            raise DirectoryOffline(path)
        directory = self._by_path[path]
        self._miss(directory, (topic, index), may_begin_anew=may_begin_anew)
        if self.strays.take_back(directory, topic, StrayKey(topic_id, index)):
            self._miss(directory, (topic, index), may_begin_anew=may_begin_anew)
        opened = directory.open_partition(
            topic, index, topic_id, config, producer_id_expiration_ms=self._producer_id_expiration_ms
        )
        self._missing.forget((topic, index))
        with self._lock:
            self._topics[topic, index] = topic_id
        return opened, directory.high_watermarks.get((topic, index), 0)

    def _miss(self, directory: LogDirectory, key: PartitionKey, *, may_begin_anew: bool) -> None:
        """Raises LogLost for a partition that is missing, if it may not begin anew."""
        if self._missing.look_for(directory, key):
            if not may_begin_anew:
                raise LogLost(directory_name(*key))
            self._missing.begin_anew(key)

    def _miss_gone(self, directory: LogDirectory, key: PartitionKey, high_watermark: int) -> None:
        """Note a partition as missing that loses its place, and was gone from there: in its next one nobody would."""
        if not self._missing.look_for(directory, key) and high_watermark:
            self._missing.add([key], directory)  # it vanished before anything was written down of it

    def delete_partition(self, topic: str, index: int, topic_id: uuid.UUID) -> None:
        """Remove a topic's partition from disk; one that is not there is no error, a failing disk is logged."""
        key = (topic, index)
        directory = self._places.get(key)
        if directory is None:
            return
        self._undeleted.setdefault(key, set()).add(topic_id)
        try:
            self._delete(directory, key)
        except (KafkaError, LogStoreError) as error:
            # It keeps its place, or it would be in two once it has another.
            log.error("cannot delete a partition", partition=f"{topic}-{index}", reason=str(error))

    def _delete(self, directory: LogDirectory, key: PartitionKey) -> None:
        """Delete what has the name, unless it is another topic's than was said: that is still to be set aside."""
        if is_said := topic_there(self._files, directory, key) in (None, *self._undeleted[key]):
            self._forget_elsewhere(directory, key)
            directory.delete_partition(*key)
        said = self._undeleted.pop(key)
        if is_said:
            self._missing.forget(key)
            self._free(key)
            with self._lock:
                if self._topics.get(key) in said:  # else the next topic of the name has come
                    del self._topics[key]

    def _forget_elsewhere(self, directory: LogDirectory, key: PartitionKey) -> None:
        """Before a partition gives up its place in a directory: it may have been in another one before."""
        for each in self._directories:
            if each is not directory:
                each.forget_elsewhere(key)

    def sync_file_system(self, path: str) -> None:
        """Make durable in one pass what recovery left for later; the sync of each log then says whether it is."""
        try:
            sync_file_system(self._files, path)
        except OSError as error:
            log.error("a file system cannot be synced", log_dir=path, reason=str(error))

    def set_aside(self, topic: str, index: int, topic_id: uuid.UUID, high_watermark: int) -> None:
        """Keep a partition that nobody knows any more as a stray one; a failing disk is logged."""
        directory = self._places.get((topic, index))
        if directory is None:
            return
        stray = StrayKey(topic_id, index)
        try:
            if topic_there(self._files, directory, (topic, index)) not in (None, topic_id):
                return
            self._forget_elsewhere(directory, (topic, index))
            facts = set_aside(directory, topic, stray, high_watermark)
            if facts is None:
                self._miss_gone(directory, (topic, index), high_watermark)
        except (KafkaError, LogStoreError) as error:
            log.error("cannot set a partition aside", partition=f"{topic}-{index}", reason=str(error))
            return
        if facts is not None:  # first: a directory that is let go of must not look empty
            self.strays.add(stray, directory, facts)
        self._free((topic, index))

    def write_checkpoints(self, path: str, high_watermarks: Mapping[PartitionKey, int] | None = None) -> bool:
        """Write one directory's checkpoints, with its part of `high_watermarks`; a failing disk is logged.

        Returns whether they are written: of a directory that is offline there is nothing to write.
        """
        directory = self._by_path.get(path)
        if directory is None:
            return True
        try:
            directory.forget_missing(directory.kept_for_missing - self._missing.keys)
            directory.write_checkpoints(self._own(directory, high_watermarks))
        except KafkaError as error:
            self._lines.error("cannot write checkpoints", path, log_dir=path, reason=error.message)
            return False
        return True

    def write_cleaner_checkpoint(self, path: str) -> None:
        """Write how far a directory's logs are compacted, where that has changed; a failing disk is logged."""
        try:
            self._by_path[path].write_cleaner_checkpoint()
        except KafkaError as error:
            self._lines.error("cannot write checkpoints", path, log_dir=path, reason=error.message)

    def path_of(self, key: PartitionKey) -> str:
        """The log directory that holds a partition; empty when none does."""
        directory = self._places.get(key)
        return "" if directory is None else directory.path

    def close(
        self, high_watermarks: Mapping[PartitionKey, int], *, broker_epoch: int = UNKNOWN_BROKER_EPOCH
    ) -> None:
        """Make everything durable and mark a clean shutdown under `broker_epoch`, directory by directory."""
        marker = self.marker(broker_epoch, ())
        for path in self._by_path:
            self.close_one(path, high_watermarks, marker)

    def close_one(
        self, path: str, high_watermarks: Mapping[PartitionKey, int], marker: CleanShutdown
    ) -> None:
        """The same for one directory; what fails is logged."""
        directory = self._by_path.get(path)
        if directory is None:
            return  # it is offline
        try:
            directory.forget_missing(directory.kept_for_missing - self._missing.keys)
            directory.close(self._own(directory, high_watermarks), marker=marker)
        except KafkaError as error:
            log.error("the next start recovers this", log_dir=path, reason=error.message)

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
