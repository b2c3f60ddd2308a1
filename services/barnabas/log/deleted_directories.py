"""Directories of partitions that are deleted: renamed first, so that none comes back half after a crash.

They are named `<topic>-<partition>.<unique>-delete`, as Kafka names them; nothing else has that name. What is in one
goes at once, on a full disk for the room that the checkpoints need. The directory itself stays until no checkpoint
names the partition any more: it is the deletion's mark, without which the next start could not tell that what they
speak of was deleted, and is not missing. An empty one is the mark of a partition that goes elsewhere, or is set aside.
No mark may speak of what takes the name next, for it would hide that that is lost.

Where the name would be too long for that, the topic's part is cut off, and it tells nothing: who has such a topic,
deletes it, loses the power before a disk takes the checkpoints, and makes it again, is told that it is missing.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.kernel.files import NAME_BYTES_MAX, Files
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import cut_name, directory_name, parse_directory_name
from barnabas.log.small_files import exists, sync_directory

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
    """Owner of those in one log directory: which of them speak of partitions, and until when."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._lock = threading.Lock()
        """For the three below, which several threads change; never held over a call to the disk."""
        self._waiting: dict[PartitionKey, list[str]] = {}
        """Those that wait for the checkpoints."""
        self._spent: dict[str, PartitionKey] = {}
        """Those that the checkpoints need no longer, by path, until the disk lets go of them."""
        self._whole: dict[str, PartitionKey] = {}
        """Those that may come back under the partition's name when the power goes: what is in them stays."""

    def clear_up(self, drop_checkpoints: Callable[[PartitionKey], bool]) -> None:
        """Remove what a crash has left. Where the checkpoints name its partition, which `drop_checkpoints` has them do
        no longer (it returns whether they did), the emptied directory waits until they are written. Raises OSError.
        """
        names = set(self._files.list_directories(self._path))
        for name in sorted(names):
            if not name.endswith(SUFFIX):
                continue
            directory = os.path.join(self._path, name)
            match = _NAME.match(name)
            key = parse_directory_name(match["place"]) if match is not None else None
            if key is None:
                self._files.remove_tree(directory)
            # What has the name came later, and the checkpoints speak of that.
            elif directory_name(*key) not in names and (key in self._waiting or drop_checkpoints(key)):
                self._waiting.setdefault(key, []).append(directory)
                self._remove_content(key)
            else:
                self._spent[directory] = key
        self._remove_spent(list(self._spent))

    def speak_of(self, key: PartitionKey) -> bool:
        """Whether one of them waits for the checkpoints to name the partition no longer."""
        return key in self._waiting

    def add(self, key: PartitionKey, unique: uuid.UUID) -> None:
        """The partition's directory is one of them from now on. Raises OSError."""
        directory = os.path.join(self._path, deleted_name(*key, unique))
        self._files.rename(os.path.join(self._path, directory_name(*key)), directory)
        self._wait(key, directory)

    def note(self, key: PartitionKey, unique: uuid.UUID) -> None:
        """Checkpoints here may name the partition for a while that has no directory here: an empty one says that it is
        not missing. Raises OSError.
        """
        if not self.speak_of(key):
            directory = os.path.join(self._path, deleted_name(*key, unique))
            self._files.makedirs(directory)
            self._wait(key, directory)
        sync_directory(self._files, self._path)

    def _wait(self, key: PartitionKey, directory: str) -> None:
        with self._lock:
            self._waiting.setdefault(key, []).append(directory)

    def empty(self, key: PartitionKey) -> None:
        """Remove what is in those of the partition, as far as that is possible; the next start does the rest. Raises
        OSError where they may come back under the partition's name: then they stay whole.
        """
        try:
            sync_directory(self._files, self._path)
        except OSError:
            with self._lock:
                self._whole |= dict.fromkeys(self._waiting.pop(key, ()), key)
            raise
        self._remove_content(key)

    def _remove_content(self, key: PartitionKey) -> None:
        with self._lock:
            directories = tuple(self._waiting.get(key, ()))
        for directory in directories:
            with contextlib.suppress(OSError):
                for name in self._files.listdir(directory):
                    with contextlib.suppress(OSError):
                        self._files.unlink(os.path.join(directory, name))

    def remove(self, keys: Iterable[PartitionKey]) -> None:
        """No checkpoint on the disk names these partitions as they were. What the disk does not let go of now is tried
        again the next time.
        """
        with self._lock:
            for key in keys:
                self._spent |= dict.fromkeys(self._waiting.pop(key, ()), key)
            spent = list(self._spent)
        self._remove_spent(spent)

    def _remove_spent(self, directories: Iterable[str]) -> None:
        for directory in directories:
            self._files.remove_tree(directory)
            with contextlib.suppress(OSError):
                if not exists(self._files, directory):
                    self._let_go(directory)

    def _let_go(self, directory: str) -> None:
        with self._lock:
            self._spent.pop(directory, None)
            self._whole.pop(directory, None)

    def silence(self, key: PartitionKey, new_id: Callable[[], uuid.UUID]) -> None:
        """What has the partition's name from here on may be lost one day, and none of them may hide that: one that
        cannot be removed gets a name that tells nothing. Raises OSError where it cannot get that either.
        """
        with self._lock:
            self._spent |= dict.fromkeys(self._waiting.pop(key, ()), key)
            spent = [directory for directory, each in self._spent.items() if each == key]
        self._remove_spent(spent)
        with self._lock:
            left = [directory for directory, each in (self._spent | self._whole).items() if each == key]
        for directory in left:
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(directory, os.path.join(self._path, gone_name(*key, new_id())))
            self._let_go(directory)
