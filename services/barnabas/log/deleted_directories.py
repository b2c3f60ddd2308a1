"""Directories of partitions that are deleted: renamed first, so that none comes back half after a crash.

They are named `<topic>-<partition>.<unique>-delete`, as Kafka names them; nothing else has that name. What is in one
goes at once, on a full disk for the room that the checkpoints need. The directory itself stays until no checkpoint
names the partition any more: without it the next start could not tell that what they speak of was deleted, and is not
missing. Where the name would be too long for that, the topic's part is cut off, and it tells nothing: who has such a
topic, deletes it, loses the power before a disk takes the checkpoints, and makes it again, is told that it is missing.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.kernel.files import NAME_BYTES_MAX, Files
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import cut_name, directory_name, parse_directory_name
from barnabas.log.small_files import is_directory, sync_directory

SUFFIX: Final = "-delete"

GONE_SUFFIX: Final = f"-gone{SUFFIX}"
"""Of what tells nothing of the partition: a move has left it or given it up, it was set aside, or the name is cut."""

_NAME: Final = re.compile(rf"^(?P<place>.+)\.[0-9a-f]{{32}}{SUFFIX}$")


def deleted_name(topic: str, partition: int, unique: uuid.UUID) -> str:
    """The name of the directory of a partition that is deleted."""
    name = f"{directory_name(topic, partition)}.{unique.hex}{SUFFIX}"
    return name if len(name) <= NAME_BYTES_MAX else gone_name(topic, partition, unique)


def gone_name(topic: str, partition: int, unique: uuid.UUID) -> str:
    """The name of a directory that is to go, and tells nothing of the partition."""
    return cut_name(topic, f"-{partition}.{unique.hex}{GONE_SUFFIX}")


class DeletedDirectories:
    """Owner of those in one log directory that wait for its checkpoints."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._waiting: dict[PartitionKey, list[str]] = {}

    def find(self, is_in_checkpoints: Callable[[PartitionKey], bool]) -> None:
        """Remove what a crash has left. `is_in_checkpoints` says whether they name a partition, which was deleted, and
        has them name it no longer: its directory waits for that. Raises OSError.
        """
        for name in self._files.listdir(self._path):
            directory = os.path.join(self._path, name)
            if not name.endswith(SUFFIX) or not is_directory(self._files, directory):
                continue
            match = _NAME.match(name)
            key = parse_directory_name(match["place"]) if match is not None else None
            if key is not None and self._has_to_wait(key, is_in_checkpoints):
                self._waiting.setdefault(key, []).append(directory)
                self._remove_content(key)
            else:
                self._files.remove_tree(directory)

    def _has_to_wait(self, key: PartitionKey, is_in_checkpoints: Callable[[PartitionKey], bool]) -> bool:
        if is_directory(self._files, os.path.join(self._path, directory_name(*key))):
            return False  # what has the name came later, and the checkpoints speak of that
        return key in self._waiting or is_in_checkpoints(key)

    def add(self, key: PartitionKey, unique: uuid.UUID) -> None:
        """The partition's directory is one of them from now on. Raises OSError."""
        directory = os.path.join(self._path, deleted_name(*key, unique))
        self._files.rename(os.path.join(self._path, directory_name(*key)), directory)
        self._waiting.setdefault(key, []).append(directory)

    def note(self, key: PartitionKey, unique: uuid.UUID) -> None:
        """The partition, which has its place elsewhere, is about to be deleted, and checkpoints here may name it yet:
        an empty directory says so. Raises OSError.
        """
        if self._waiting.get(key):
            return
        directory = os.path.join(self._path, deleted_name(*key, unique))
        self._files.makedirs(directory)
        self._waiting.setdefault(key, []).append(directory)
        sync_directory(self._files, self._path)

    def empty(self, key: PartitionKey) -> None:
        """Remove what is in those of the partition, as far as that is possible; the next start does the rest. Raises
        OSError where they may come back under the partition's name: then they stay whole.
        """
        try:
            sync_directory(self._files, self._path)
        except OSError:
            self._waiting.pop(key, None)
            raise
        self._remove_content(key)

    def _remove_content(self, key: PartitionKey) -> None:
        for directory in self._waiting.get(key, ()):
            with contextlib.suppress(OSError):
                for name in self._files.listdir(directory):
                    with contextlib.suppress(OSError):
                        self._files.unlink(os.path.join(directory, name))

    def remove(self, keys: Iterable[PartitionKey]) -> None:
        """No checkpoint on the disk names these partitions as they were."""
        for key in keys:
            for directory in self._waiting.pop(key, ()):
                self._files.remove_tree(directory)
