"""What moves between log directories, and deletions, have left when the node starts: every partition gets one place.

Of a partition that was moving, the directory that it moves to counts if it has the partition's name, or if it was set
aside there since, else the one that it leaves. While the former cannot be read, neither is known to count.
"""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import directory_name, read_topic_id
from barnabas.log.checkpoints.stray import FoundStray, StrayFacts, StrayKey
from barnabas.log.errors import LogStoreError
from barnabas.log.log_directory import LogDirectory
from barnabas.log.log_progress import is_unused, log_progress
from barnabas.log.moving.future_directory import FILE_NAME as MOVED_FILE_NAME
from barnabas.log.moving.future_directory import MoveFacts, parse_future_name, read_facts, remove_facts
from barnabas.log.moving.left_directory import LeftDirectory, remove_left
from barnabas.log.setting_aside import set_aside
from barnabas.log.small_files import sync_directory

logger = get_logger("log.moving")


Partitions = Mapping[PartitionKey, uuid.UUID | None]
"""Of one log directory, by what is in partition.metadata."""


class SetAside(NamedTuple):
    """A partition that was set aside because another topic of its name has a directory as well."""

    home: LogDirectory
    stray: StrayKey
    facts: StrayFacts


def find_moved(files: Files, path: str, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, MoveFacts]:
    """The partitions of a directory of which its checkpoints may not say yet what was moved there. Raises OSError, and
    LogStoreError for a file that cannot be read.
    """
    found = ((key, read_facts(files, os.path.join(path, directory_name(*key)))) for key in partitions)
    return {key: facts for key, facts in found if facts is not None}


def find_futures(names: Iterable[str]) -> dict[str, PartitionKey]:
    """The future replicas among the directories of these names, by name."""
    found = ((name, parse_future_name(name)) for name in sorted(names))
    return {name: key for name, key in found if key is not None}


def adopt_moved(files: Files, home: LogDirectory, moved: Mapping[PartitionKey, MoveFacts]) -> None:
    """Have the checkpoints of a directory say what they do not yet of partitions that have moved there."""
    for key, facts in moved.items():
        place = os.path.join(home.path, directory_name(*key))
        try:
            if key not in home.recovery_points:
                home.adopt(key, facts)
                home.write_checkpoints()
            remove_facts(files, place)
        except (KafkaError, OSError) as error:
            # It holds in memory, and the next start comes back to it.
            logger.error("cannot clear up behind a move", log_dir=place, reason=str(error))


class Settling:
    """Owner of what is where while the log directories are opened."""

    def __init__(
        self,
        files: Files,
        found: Mapping[LogDirectory, Partitions],
        strays: Mapping[LogDirectory, Mapping[StrayKey, FoundStray]],
        moved: Mapping[LogDirectory, Mapping[PartitionKey, MoveFacts]],
    ) -> None:
        """What each directory has; `moved` are facts that its checkpoints may lack (`find_moved`)."""
        self._files = files
        self._strays = strays
        self._moved = moved
        self._found = {directory: dict(partitions) for directory, partitions in found.items()}
        self.failed: dict[LogDirectory, str] = {}
        """Directories whose disk refused what had to be done, with the reason."""
        self.unsettled: set[LogDirectory] = set()
        """Directories in which something was left that may be a partition."""
        self.held_back: set[StrayKey] = set()
        """Of which something was left that is not known to count or not: what is set aside of them may be older."""

    @property
    def partitions(self) -> Mapping[LogDirectory, Partitions]:
        """What is left in each directory."""
        return {each: partitions for each, partitions in self._found.items() if each not in self.failed}

    @property
    def strays(self) -> Mapping[LogDirectory, Mapping[StrayKey, FoundStray]]:
        """Those in each directory that may be taken back."""
        return {
            each: {stray: found for stray, found in strays.items() if stray not in self.held_back}
            for each, strays in self._strays.items()
            if each not in self.failed
        }

    # -- what was moving ----------------------------------------------------------------------------------------

    def settle_moves(self, left: Mapping[LogDirectory, Sequence[LeftDirectory]], *, all_there: bool) -> None:
        """Remove what was left by partitions that have come to where they moved, and bring the others back;
        `all_there`: no directory is offline. Raises LogStoreError where a partition was left twice, and is nowhere.
        """
        self._check_left_once(left)
        all_there = all_there and not self.failed
        for former, directories in left.items():
            for each in directories:
                try:
                    self._settle(former, each, all_there=all_there)
                except (OSError, KafkaError) as error:
                    self.failed[former] = f"{os.path.join(former.path, each.name)}: {error}"

    def _check_left_once(self, left: Mapping[LogDirectory, Sequence[LeftDirectory]]) -> None:
        """Nobody moves on before what it left is gone, durably; else the older of two would say what has to be done."""
        places: defaultdict[tuple[PartitionKey, uuid.UUID | None], list[str]] = defaultdict(list)
        for former, directories in left.items():
            for each in directories:
                path = os.path.join(former.path, each.name)
                try:
                    topic_id = read_topic_id(self._files, path)
                    is_found = self._is_found(former, each, topic_id)
                except OSError as error:
                    self.failed[former] = f"{path}: {error}"
                    continue
                if not is_found:
                    places[each.key, topic_id].append(path)
        for (key, _), paths in places.items():
            if len(paths) > 1:
                raise LogStoreError(
                    f"{paths[0]} and {paths[1]} may both be {directory_name(*key)}: move one of them away"
                )

    def _is_found(self, former: LogDirectory, left: LeftDirectory, topic_id: uuid.UUID | None) -> bool:
        """Whether what was left in `former` counts no longer, for a directory has the partition: or has set it aside
        since. What is aside of earlier times may be there as well, and is not as far. Raises OSError.
        """
        key = left.key
        if topic_id is None:
            # The power went before anything of it was durable (`read_topic_id`): whoever has the name counts.
            return any(key in partitions for partitions in self._found.values())
        if any(topic_id == partitions.get(key) for partitions in self._found.values()):
            return True
        stray = StrayKey(topic_id, key[1])
        strays = [(home, those[stray]) for home, those in self._strays.items() if stray in those]
        if not strays:
            return False
        progress = log_progress(self._files, os.path.join(former.path, left.name))
        is_found = False
        for home, each in strays:
            try:
                is_found = is_found or not each.progress(self._files).is_behind(progress)
            except OSError as error:
                self.failed[home] = f"{each.directory} cannot be read: {error}"
        return is_found

    def _settle(self, former: LogDirectory, left: LeftDirectory, *, all_there: bool) -> None:
        path, key = os.path.join(former.path, left.name), left.key
        topic_id = read_topic_id(self._files, path)
        if self._is_found(former, left, topic_id):
            logger.info("a move between log directories is done", log_dir=path)
            try:
                remove_left(self._files, path, key, former.environment.new_id(), sync=True)
            except OSError as error:
                logger.error(
                    "what a move has left stays until the next start", log_dir=path, reason=str(error)
                )
            return
        home = next((each for each in self._found if each.properties.directory_id == left.home_id), None)
        if key in self._found[former] or (home is not None and key in home.recovery_points):
            logger.error("a partition was here, and is neither here nor where it moved to", log_dir=path)
            self._leave_unsettled(former, key, topic_id)
            return
        if not all_there:
            self._leave_unsettled(former, key, topic_id)
            return  # it may be in one that is offline, with more than there was here
        if home is None:
            logger.warning(
                "the log directory that a partition moved to is gone: it is back here", log_dir=path
            )
        # Of its own coming here, where that could not be cleared up: deletions since then it does not know.
        remove_facts(self._files, path)
        sync_directory(self._files, path)
        former.bring_back(key, left.name, left.log_start_offset)
        self._found[former][key] = topic_id

    def _leave_unsettled(self, former: LogDirectory, key: PartitionKey, topic_id: uuid.UUID | None) -> None:
        self.unsettled.add(former)
        if topic_id is not None:
            self.held_back.add(StrayKey(topic_id, key[1]))

    # -- topics of one name -------------------------------------------------------------------------------------

    def separate_topics(self) -> Iterator[SetAside]:
        """Set aside the partitions whose name is that of another topic's elsewhere: whoever knows the ids knows which
        of them was deleted. Raises LogStoreError where the ids do not tell them apart.
        """
        holders: defaultdict[PartitionKey, list[LogDirectory]] = defaultdict(list)
        for directory, partitions in self.partitions.items():
            for key in partitions:
                holders[key].append(directory)
        for key, homes in holders.items():
            if len(homes) > 1:
                yield from self._separate(key, homes)

    def _separate(self, key: PartitionKey, homes: Sequence[LogDirectory]) -> Iterator[SetAside]:
        homes = self._give_way(key, homes)
        if len(homes) < 2:
            return
        ids = {topic_id for each in homes if (topic_id := self._found[each][key]) is not None}
        if len(ids) < len(homes):
            raise LogStoreError(
                f"{homes[0].path} and {homes[1].path} both hold {directory_name(*key)}; move one of them away "
                f"(not one that has {MOVED_FILE_NAME}: it is the newer)"
            )
        for home in homes:
            topic_id = self._found[home].pop(key)
            assert topic_id is not None, "each has its id"
            stray = StrayKey(topic_id, key[1])
            moved = self._moved[home].get(key)
            if moved is not None and key not in home.recovery_points:
                home.adopt(key, moved)  # so that `set_aside` writes it down (`adopt_moved` comes later)
            try:
                facts = set_aside(home, key[0], stray, 0)
            except (KafkaError, LogStoreError) as error:
                self.failed[home] = str(error)
                continue
            if facts is not None:
                logger.warning(
                    "two topics of one name are here: both are set aside until it is known which was deleted",
                    partition=directory_name(*key),
                    log_dir=home.path,
                )
                yield SetAside(home, stray, facts)

    def _give_way(self, key: PartitionKey, homes: Sequence[LogDirectory]) -> list[LogDirectory]:
        """Those of the directories that keep what has the name. What has neither an id nor records goes: the power went
        before anything of it was durable, and with that what had made its place free.
        """
        kept = list(homes)
        for home in [each for each in homes if self._found[each][key] is None]:
            try:
                if len(kept) == 1 or not is_unused(
                    self._files, os.path.join(home.path, directory_name(*key))
                ):
                    continue
                home.delete_partition(*key)
                del self._found[home][key]
            except (OSError, KafkaError) as error:
                self.failed[home] = str(error)
            kept.remove(home)
        return kept
