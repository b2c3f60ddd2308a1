"""Control batches: the transaction markers that a coordinator writes into a log (KIP-98)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records.batch import Buffer
from barnabas.records.record import decode_records, encode_batch

ABORT = 0
COMMIT = 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class EndTransactionMarker(NamedTuple):
    """What a COMMIT or ABORT marker says; `timestamp` in ms."""

    committed: bool
    coordinator_epoch: int
    timestamp: int


def decode_marker(batch: Buffer) -> EndTransactionMarker | None:
    """The marker in a control batch; None for an empty batch (compaction removed it) or another control type."""
    record = next(decode_records(batch), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        return None
    _, kind = _KEY.unpack_from(record.key)
    if kind not in (ABORT, COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise KafkaError(ErrorCode.invalid_record, "a transaction marker has no coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return EndTransactionMarker(kind == COMMIT, coordinator_epoch, record.timestamp)


def encode_marker(
    *, committed: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int
) -> bytes:
    """The control batch that ends a transaction in one partition."""
    key, value = encode_marker_record(committed=committed, coordinator_epoch=coordinator_epoch)
    return encode_batch(
        [(timestamp, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def encode_marker_record(*, committed: bool, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Key and value of the one record in such a batch, for who makes the batch himself."""
    return _KEY.pack(0, COMMIT if committed else ABORT), _VALUE.pack(0, coordinator_epoch)
