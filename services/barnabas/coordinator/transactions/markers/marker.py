"""What ends one producer's transaction in a partition."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.coordinator.transactions.core.shard import EndedTransaction
from barnabas.records.control import encode_marker


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker, the same for all partitions of its transaction."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    """In whose name it is written: a partition refuses one below that of the producer's last marker."""
    transaction_version: int
    """2 when each transaction has its own epoch, else 0 (KIP-1228)."""

    def as_batch(self, now_ms: int) -> bytes:
        """The control batch that is it, at `now_ms` since the epoch."""
        return encode_marker(
            committed=self.committed,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
            timestamp=now_ms,
        )


def marker_of(ended: EndedTransaction, coordinator_epoch: int) -> Marker:
    """What the partitions of `ended` are told by the owner, under that epoch, of its partition of the log."""
    return Marker(
        ended.producer_id,
        ended.producer_epoch,
        ended.committed,
        coordinator_epoch,
        ended.transaction_version,
    )
