"""The directory that a partition leaves when it moves to another log directory.

It is named `<topic>-<partition>.<id>.<offset>-moving` from before the partition has its place elsewhere; the id is
that of the log directory which it moves to. So of two directories never both have the partition's name, and who finds
one of this name knows where to look for the partition. The offset is where the log begins, which the checkpoints here
do not say any more: in the name, because a full disk, from which partitions are to move away, takes no file.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.kernel.files import NAME_BYTES_MAX, Files
from barnabas.kernel.kafka_values import LONG_MAX
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import directory_name
from barnabas.log.deleted_directories import gone_name
from barnabas.log.small_files import sync_directory

SUFFIX: Final = "-moving"

_NAME: Final = re.compile(
    rf"^(?P<topic>.+)-(?P<partition>\d+)\.(?P<home>[0-9a-f]{{32}})\.(?P<start>\d+){SUFFIX}$"
)


class LeftDirectory(NamedTuple):
    """A directory with such a name."""

    name: str
    key: PartitionKey
    home_id: uuid.UUID
    """Of the log directory that the partition has moved to, or was about to."""
    log_start_offset: int
    """When it was left."""


def left_name(topic: str, partition: int, home_id: uuid.UUID, log_start_offset: int) -> str:
    """The name of what a partition leaves that moves to the log directory of the id."""
    return f"{directory_name(topic, partition)}.{home_id.hex}.{log_start_offset}{SUFFIX}"


def is_name_too_long(topic: str, partition: int) -> bool:
    """Whether there might be no name for what such a partition leaves: it does not move. Kafka's limit is 20 bytes
    higher, for it has a name for the future replica alone.
    """
    return len(left_name(topic, partition, uuid.UUID(int=0), LONG_MAX)) > NAME_BYTES_MAX


def find_left(names: Iterable[str]) -> list[LeftDirectory]:
    """Those of the names that say that a partition was left there."""
    matches = (_NAME.match(name) for name in sorted(names))
    return [
        LeftDirectory(
            match[0],
            (match["topic"], int(match["partition"])),
            uuid.UUID(hex=match["home"]),
            int(match["start"]),
        )
        for match in matches
        if match is not None
    ]


def remove_left(
    files: Files, directory: str, key: PartitionKey, unique: uuid.UUID, *, sync: bool = False
) -> None:
    """What the partition left goes; with `sync` its name does durably. Renamed first, to a name with `unique` in it, so
    that it does not come back half. Raises OSError.
    """
    doomed = os.path.join(os.path.dirname(directory), gone_name(*key, unique))
    with contextlib.suppress(FileNotFoundError):  # it has lost the name before, perhaps not durably
        files.rename(directory, doomed)
    if sync:
        sync_directory(files, os.path.dirname(directory))
    files.remove_tree(doomed)
