"""A partition that several log directories have when the node starts: a move to one of them had come to count.

The one whose `moved.properties` has the highest number is the partition. What the others have is as old as the move, or
older, and goes.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import directory_name
from barnabas.log.errors import LogStoreError
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving.future_directory import MoveFacts, parse_future_name, read_facts, remove_facts
from barnabas.log.small_files import sync_directory

logger = get_logger("log.moving")


Partitions = Mapping[PartitionKey, uuid.UUID | None]
"""Of one log directory, by what is in partition.metadata."""


def find_moved(files: Files, path: str, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, MoveFacts]:
    """The partitions of a directory that came there by a move that was not cleared up behind. Raises OSError, and
    LogStoreError for a file that cannot be read.
    """
    found = ((key, read_facts(files, os.path.join(path, directory_name(*key)))) for key in partitions)
    return {key: facts for key, facts in found if facts is not None}


def find_futures(files: Files, path: str) -> dict[str, PartitionKey]:
    """The future replicas in a log directory, by the names of their directories. Raises OSError."""
    found = ((name, parse_future_name(name)) for name in sorted(files.list_directories(path)))
    return {name: key for name, key in found if key is not None}


def settle_moves(
    files: Files,
    found: Mapping[LogDirectory, Partitions],
    moved: Mapping[LogDirectory, Mapping[PartitionKey, MoveFacts]],
    *,
    all_there: bool,
) -> dict[LogDirectory, Partitions]:
    """What is left in each directory once every partition is in one of them alone; `all_there`: none is offline.

    Raises LogStoreError when two hold a partition and no move says which of them counts.
    """
    holders: dict[PartitionKey, list[LogDirectory]] = {}
    for directory, partitions in found.items():
        for key in partitions:
            holders.setdefault(key, []).append(directory)
    gone: dict[LogDirectory, set[PartitionKey]] = {directory: set() for directory in found}
    for key, directories in holders.items():
        facts = {each: moved[each][key] for each in directories if key in moved[each]}
        if len(directories) > 1 and (not facts or len({found[each][key] for each in directories}) > 1):
            first, second = directories[:2]
            raise LogStoreError(
                f"{first.path} and {second.path} both hold {key[0]}-{key[1]}; move one of them away"
            )
        if facts:
            home = max(facts, key=lambda each: facts[each].number)
            others = [each for each in directories if each is not home]
            for other in others:
                gone[other].add(key)
            _settle(files, key, home, others, facts[home], all_there=all_there)
    return {
        directory: {key: topic_id for key, topic_id in partitions.items() if key not in gone[directory]}
        for directory, partitions in found.items()
    }


def _settle(
    files: Files,
    key: PartitionKey,
    home: LogDirectory,
    others: Sequence[LogDirectory],
    facts: MoveFacts,
    *,
    all_there: bool,
) -> None:
    name = directory_name(*key)
    try:
        if key not in home.recovery_points:
            home.adopt(key, facts, closed_properly=False)
        for other in others:
            other.delete_partition(*key)
            sync_directory(files, other.path)
            logger.info("a move between log directories is done", partition=name, log_dir=home.path)
        if all_there:
            remove_facts(files, os.path.join(home.path, name))
    except (KafkaError, OSError) as error:
        # It counts all the same, and the next start comes back to it.
        logger.error("cannot clear up behind a move", partition=name, log_dir=home.path, reason=str(error))
