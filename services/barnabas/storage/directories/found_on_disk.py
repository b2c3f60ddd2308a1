"""What a log directory holds: all of it when the node starts, and of which topic something is."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import directory_name, read_topic_id
from barnabas.log.checkpoints.stray import FoundStray, StrayKey, find_strays
from barnabas.log.errors import storage_errors
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving.future_directory import MoveFacts
from barnabas.log.moving.left_directory import LeftDirectory, find_left
from barnabas.log.moving.settling import Partitions, find_futures, find_moved


class FoundPartition(NamedTuple):
    """A partition directory; no topic id where partition.metadata is missing."""

    topic: str
    partition: int
    topic_id: uuid.UUID | None


class FoundFuture(NamedTuple):
    """The directory `name` of a future replica in the log directory `path`."""

    path: str
    name: str
    topic: str
    partition: int


class FoundOnDisk(NamedTuple):
    """All that is in one log directory."""

    partitions: Partitions
    strays: Mapping[StrayKey, FoundStray]
    moved: Mapping[PartitionKey, MoveFacts]
    futures: Mapping[str, PartitionKey]
    left: Sequence[LeftDirectory]


def find_on_disk(files: Files, directory: LogDirectory) -> FoundOnDisk:
    """Raises OSError, and LogStoreError for a file that cannot be read."""
    path, partitions = directory.path, directory.partitions_on_disk()
    names = files.list_directories(path)
    return FoundOnDisk(
        partitions,
        find_strays(files, path),
        find_moved(files, path, partitions),
        find_futures(names),
        find_left(names),
    )


def topic_there(files: Files, directory: LogDirectory, key: PartitionKey) -> uuid.UUID | None:
    """Of which topic what has the partition's name is; None where nothing has it, or does not say. Raises
    KAFKA_STORAGE_ERROR and LogStoreError.
    """
    log = directory.logs.get(key)
    if log is not None:
        return log.topic_id
    with storage_errors(directory.path):
        return read_topic_id(files, os.path.join(directory.path, directory_name(*key)))
