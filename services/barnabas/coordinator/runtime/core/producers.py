"""Records that are written under a producer: those of its transactions, and the markers that end them (KIP-98)."""

from __future__ import annotations

from typing import Final, NamedTuple


class Producer(NamedTuple):
    """A producer in one of its epochs."""

    producer_id: int
    producer_epoch: int


class BatchHead(NamedTuple):
    """What the head of a record's batch says; records with different heads share no batch."""

    producer: Producer | None = None
    """Of whose transaction the record is part; None for one that counts as soon as it is in the log."""
    is_control: bool = False
    """Whether the record is the marker that ends the transaction: it has a batch to itself."""


PLAIN: Final = BatchHead()


class LogProducer(NamedTuple):
    """What a log's leader knows of one producer."""

    producer: Producer
    coordinator_epoch: int
    """Of the transaction coordinator that wrote its last marker; -1 when there was none."""
    is_open: bool
    """Whether a transaction of it has begun in this log, and has not ended."""
