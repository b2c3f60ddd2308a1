"""The part of a partition's log that knows its producers, and keeps what it knows beside the segments."""

from __future__ import annotations

from barnabas.kernel.clock import Clock
from barnabas.log.locks import Locks
from barnabas.log.log_state import LogState
from barnabas.log.opening import loader
from barnabas.log.opening.loader import LoadedLog
from barnabas.log.producers import producer_snapshot
from barnabas.log.producers.producer_state import ProducerState
from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.log.producers.verification_guards import VerificationGuards


class LogProducers:
    """Owner of the producer state, of where its newest snapshot stands, of what producers are to send again, and of the
    guards under which their transactions begin.
    """

    def __init__(self, log: LogState, locks: Locks, clock: Clock, loaded: LoadedLog) -> None:
        self.state = loaded.producer_state
        """Another one after a truncation; it changes with the log's end, by whoever holds that lock."""
        self.refused = RefusedSequences(clock.monotonic)
        """What clients are to send again. Whoever gives up appends before they come here adds to it."""
        self.guards = VerificationGuards(clock.monotonic)
        self._log = log
        self._locks = locks
        self._clock = clock
        self._snapshot_offset = loaded.report.snapshot_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where read_committed consumers stop: the first offset that is not decided, at most the high watermark."""
        state = self.state
        state.on_high_watermark(high_watermark)
        unstable = state.first_unstable_offset()
        stable = high_watermark if unstable is None else min(unstable, high_watermark)
        return max(stable, self._log.log_start_offset)

    def expire(self, expiration_ms: int) -> int:
        """Forget producers that were idle for producer.id.expiration.ms; returns how many."""
        self.refused.expire(expiration_ms / 1000)
        self.guards.expire(expiration_ms / 1000)
        with self._locks.hold_log_end():
            return self.state.expire(self._clock.now_ms(), expiration_ms)

    def take_snapshot(self, offset: int, *, sync: bool) -> None:
        """Keep the state, which is that at `offset`, unless a later one is kept. Raises OSError."""
        if offset > self._snapshot_offset:
            entries = list(self.state.producers.values())
            producer_snapshot.write_snapshot(self._log.files, self._log.directory, offset, entries, sync=sync)
            self._snapshot_offset = offset

    def take_over(self, former: ProducerState) -> None:
        """Know what `former` knows, also of batches that retention has taken: it is the state at the same offset."""
        self.state.take_over(former)
        self._snapshot_offset = -1  # one that is there already says less

    def rebuild(self, end_offset: int) -> None:
        """The log was truncated to `end_offset`: the state follows. Raises OSError."""
        self.state, self._snapshot_offset = loader.rebuild_producer_state(
            self._log.files, self._log.directory, list(self._log.segments), end_offset, end_offset
        )

    def remove_snapshots(self) -> None:
        """Remove every snapshot. Raises OSError."""
        log = self._log
        offsets = producer_snapshot.snapshot_offsets(log.files.listdir(log.directory))
        producer_snapshot.remove_snapshots(log.files, log.directory, offsets)

    def clear(self, offset: int) -> None:
        """Know nothing, in a log that begins and ends at `offset` and has no snapshots."""
        self.state.clear(offset)
        self._snapshot_offset = -1
