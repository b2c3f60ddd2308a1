"""The directory that a partition leaves when it moves to another log directory.

It is named `<topic>-<partition>.<id>-moving` from before the partition has its place elsewhere; the id is that of the
log directory which it moves to. So of two directories never both have the partition's name, and who finds one of this
name knows where to look for the partition.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import directory_name
from barnabas.log.small_files import sync_directory

SUFFIX: Final = "-moving"

_NAME: Final = re.compile(rf"^(?P<topic>.+)-(?P<partition>\d+)\.(?P<home>[0-9a-f]{{32}}){SUFFIX}$")


class LeftDirectory(NamedTuple):
    """A directory with such a name."""

    name: str
    key: PartitionKey
    home_id: uuid.UUID
    """Of the log directory that the partition has moved to, or was about to."""


def left_name(topic: str, partition: int, home_id: uuid.UUID) -> str:
    """The name of what a partition leaves that moves to the log directory of the id."""
    return f"{directory_name(topic, partition)}.{home_id.hex}{SUFFIX}"


def find_left(names: Iterable[str]) -> list[LeftDirectory]:
    """Those of the names that say that a partition was left there."""
    matches = (_NAME.match(name) for name in sorted(names))
    return [
        LeftDirectory(match[0], (match["topic"], int(match["partition"])), uuid.UUID(hex=match["home"]))
        for match in matches
        if match is not None
    ]


def remove_left(files: Files, directory: str, unique: uuid.UUID, *, sync: bool = False) -> None:
    """What was left goes; with `sync` its name does durably. Renamed first, to a name with `unique` in it, so that it
    does not come back half. Raises OSError.
    """
    doomed = f"{directory.removesuffix(SUFFIX)}.{unique.hex}-delete"
    with contextlib.suppress(FileNotFoundError):  # it has lost the name before, perhaps not durably
        files.rename(directory, doomed)
    if sync:
        sync_directory(files, os.path.dirname(directory))
    files.remove_tree(doomed)
