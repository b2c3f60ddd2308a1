"""Who may change a partition's log now, and what begins as soon as he is done."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.log.log_state import LogState


class Locks:
    """Owner of the locks, and of the leader epoch that waits for one of them.

    Taken in this order, and what is behind a comma only by threads that may wait for the disk:

    - `upkeep`: flush, retention, compaction's swap, truncation, closing: one at a time, over all their disk work.
    - `log_end`: an append, over its one write; a roll, a truncation, closing. An event loop never waits for it: an
      append that may not block, and an epoch's start, try it.
    - `LogState.publishing`: over a few assignments, never over the disk.
    """

    def __init__(self, state: LogState) -> None:
        self.upkeep = threading.RLock()
        self.log_end = threading.RLock()
        self.next_epoch = NO_EPOCH
        """An epoch that begins as soon as whoever changes the log's end is done."""
        self._state = state

    @contextlib.contextmanager
    def hold_log_end(self) -> Iterator[None]:
        """Hold `log_end`, after waiting for it: for a thread."""
        self.log_end.acquire()
        try:
            yield
        finally:
            self.release_log_end()

    def release_log_end(self) -> None:
        """Give `log_end` back."""
        self.log_end.release()
        if self.next_epoch != NO_EPOCH:
            self._begin_next_epoch()

    def assign_epoch_start(self, leader_epoch: int) -> None:
        """A new leader epoch begins at the log's end; one older than the newest known changes nothing.

        Never waits: if a thread is appending at this moment, the epoch begins behind what it appends, and appends of
        older epochs are fenced from now on all the same.
        """
        with self._state.publishing:
            self.next_epoch = max(self.next_epoch, leader_epoch)
        self._begin_next_epoch()

    def _begin_next_epoch(self) -> None:
        # Whoever held the lock looks here after giving it back, so that one of the two gets to it.
        while self.next_epoch != NO_EPOCH and self.log_end.acquire(blocking=False):
            try:
                with self._state.publishing:
                    epoch, self.next_epoch = self.next_epoch, NO_EPOCH
                self._state.epochs.assign(epoch, self._state.end[0])
            finally:
                self.log_end.release()
