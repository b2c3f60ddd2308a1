"""Partitions that are gone from where the node had them, and that nobody said are deleted.

Checkpoints name one with records that has no log, or one vanished after a start had found it, with records or not.
Begun anew it would be empty, and whoever led with that would have the others drop what they have.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence, Set

from barnabas.kernel.files import Files
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import directory_name
from barnabas.log.errors import storage_errors
from barnabas.log.log_directory import LogDirectory
from barnabas.log.log_progress import log_progress

log = get_logger("storage.log_directories")


class MissingPartitions:
    """Owner of which partitions of all log directories are missing, until they are open, deleted, or not asked for.

    Only `look_for` touches the disk; the others may be called on an event loop.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        """For the three below; never held over a call to the disk."""
        self._missing: dict[PartitionKey, LogDirectory] = {}
        """Where each was."""
        self._begun: set[PartitionKey] = set()
        """Those of them that were begun anew, and are not open yet."""
        self._new: set[PartitionKey] = set()
        """Those of which nothing can have been here, until they are open: what vanished had their name before."""

    @property
    def keys(self) -> Set[PartitionKey]:
        """Those that are known to be missing."""
        with self._lock:
            return set(self._missing)

    def are_named(self, directories: Sequence[LogDirectory]) -> bool:
        """Whether checkpoints name each, so that the next start looks for it: of others only this process knows."""
        return all(any(each.promised(key) for each in directories) for key in self.keys)

    def home_of(self, key: PartitionKey) -> LogDirectory | None:
        """The log directory that a missing one is gone from, where it may be brought back; None for one that is not
        missing.
        """
        with self._lock:
            return self._missing.get(key)

    def add(self, keys: Iterable[PartitionKey], home: LogDirectory) -> None:
        """They are gone from a log directory. Of two that say so of one, the one counts that had more of it."""
        for key in sorted(keys):
            log.error("a partition's directory is gone", partition=directory_name(*key), log_dir=home.path)
            with self._lock:
                known = self._missing.setdefault(key, home)
                if known.promised(key) < home.promised(key):
                    self._missing[key] = home

    def expect_new(self, key: PartitionKey) -> None:
        """A new topic has the name."""
        with self._lock:
            self._missing.pop(key, None)
            self._begun.discard(key)
            self._new.add(key)

    def expect_no_longer(self, key: PartitionKey) -> None:
        """Nobody asks for the new one any more."""
        with self._lock:
            self._new.discard(key)

    def forget(self, key: PartitionKey) -> None:
        """The partition is open, or deleted."""
        with self._lock:
            self._missing.pop(key, None)
            self._begun.discard(key)
            self._new.discard(key)

    def keep_only(self, keys: Iterable[PartitionKey]) -> None:
        """Nobody asks for the others."""
        with self._lock:
            self._missing = {key: self._missing[key] for key in self._missing.keys() & keys}
            self._begun.intersection_update(keys)

    def begin_anew(self, key: PartitionKey) -> None:
        """A missing one is about to be created: an attempt that fails may leave an empty log."""
        with self._lock:
            self._begun.add(key)

    def look_for(self, home: LogDirectory, key: PartitionKey) -> bool:
        """Note the partition, whose place is `home`, as missing if it has vanished; returns whether it is missing. Once
        noted it is so until it is open, or its log is back: as far as the checkpoints say that it was, and with records
        if it was begun anew in vain. For a thread. Raises KAFKA_STORAGE_ERROR.
        """
        with self._lock:
            is_new, former, is_begun = key in self._new, self._missing.get(key), key in self._begun
        if is_new:
            return False
        if former is None:
            if is_missing := home.has_vanished(key):
                self.add([key], home)
            return is_missing
        with storage_errors(home.path):
            lies_here = log_progress(self._files, os.path.join(home.path, directory_name(*key)))
        return lies_here.end_offset < max(former.promised(key), is_begun)
