"""Batches that are about to be appended: what a leader does to them before they are written, as plain data."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import INT_MAX, NO_EPOCH
from barnabas.log.config import LogConfig
from barnabas.log.producers.producer_state import BatchMetadata
from barnabas.log.producers.verification_guards import NO_GUARD
from barnabas.log.segments.segment import AppendedBatch
from barnabas.records.batch import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    crc_of_tail,
    log_append_time_tail,
    patched_prefix,
)
from barnabas.records.control import EndTransactionMarker, decode_marker
from barnabas.records.validate import WalkTime, check_client_batch, check_framing, check_size, checked_tail

if TYPE_CHECKING:
    from barnabas.log.producers.log_producers import LogProducers


class AppendOrigin(enum.Enum):
    """Who wrote the batch, which decides what is checked."""

    CLIENT = "client"
    """A producer: everything is checked, sequence numbers too."""
    COORDINATOR = "coordinator"
    """A coordinator of the cluster, to its own log: control batches are allowed, sequence numbers are not looked at."""
    MARKER = "marker"
    """A coordinator that ends transactions, to a log of clients: markers, and nothing else."""


class AppendInfo(NamedTuple):
    """What became of an append.

    `log_append_time_ms` is -1 unless the topic stamps log append time. For a `duplicate` the offsets are those of
    the batch that was written the first time, nothing was written now, and the time is that of the batch's newest
    record whatever the topic does, as in Kafka.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class PreparedBatch(NamedTuple):
    """A checked batch: its header as the log will have it, and the bytes behind the patched prefix."""

    header: BatchHeader
    tail: bytes
    crc: int
    max_timestamp: int
    marker: EndTransactionMarker | None


class CheckedAppend(NamedTuple):
    """What is to be appended, once all is known of it that needs no look at the log."""

    batches: list[PreparedBatch]
    origin: AppendOrigin
    log_append_time_ms: int


def prepare_leader_batches(
    records: Buffer, config: LogConfig, origin: AppendOrigin, now_ms: int, *, time: WalkTime | None = None
) -> list[PreparedBatch]:
    """Check what is to be appended; a client sends one batch, a coordinator one or more.

    Raises KafkaError with the code that Kafka answers, and LongCheck; see `barnabas.records.validate`.
    """
    prepared: list[PreparedBatch] = []
    position, end = 0, len(records)
    while position < end or not prepared:
        header = check_framing(records, position)
        if (
            origin is not AppendOrigin.MARKER
        ):  # a transaction ends, whatever its topic's max.message.bytes became
            check_size(header, config)
        tail = checked_tail(records, header, position)
        size = header.size_in_bytes
        if header.last_offset_delta < 0:
            raise KafkaError(ErrorCode.invalid_record, "the record batch ends before it begins")
        marker = None
        if origin is AppendOrigin.CLIENT:
            check_client_batch(records, header, config, now_ms, time=time)
        elif header.is_control:
            marker = decode_marker(memoryview(records)[position : position + size])
        if origin is AppendOrigin.MARKER and (marker is None or header.producer_id < 0):
            raise KafkaError(ErrorCode.invalid_record, "coordinators write markers to topics of clients only")
        crc, max_timestamp = header.crc, header.max_timestamp
        if config.is_log_append_time and not header.is_control:
            tail = log_append_time_tail(memoryview(records)[position : position + size], header, now_ms)
            crc, max_timestamp = crc_of_tail(tail), now_ms
        prepared.append(PreparedBatch(header, tail, crc, max_timestamp, marker))
        position += size
    if end > config.segment_bytes:
        raise KafkaError(
            ErrorCode.record_list_too_large, f"{end} bytes do not fit segment.bytes={config.segment_bytes}"
        )
    return prepared


def check_producers(
    producers: LogProducers,
    checked: CheckedAppend,
    leader_epoch: int,
    *,
    guard: int = NO_GUARD,
    transaction_version: int = 0,
) -> BatchMetadata | None:
    """Idempotence and transactions: the batch that this append repeats, or None when it may be written.

    `guard` is the one under which the transaction's coordinator was asked about a client's batch, `transaction_version`
    the one of the transaction that a marker ends. Raises KafkaError as `ProducerState.check` and `check_marker`,
    `VerificationGuards.check`, and, where the state knows nothing, `RefusedSequences.check` do.
    """
    state = producers.state
    for batch in checked.batches:
        header = batch.header
        if header.producer_id < 0:
            continue
        if batch.marker is not None:
            state.check_marker(header, batch.marker, transaction_version)
            continue
        if checked.origin is not AppendOrigin.CLIENT:
            state.check(header, check_sequence=False)
            continue
        repeated = check_client_producer(producers, header, leader_epoch, guard)
        if repeated is not None:
            return repeated
    return None


def check_client_producer(
    producers: LogProducers, header: BatchHeader, leader_epoch: int, guard: int = NO_GUARD
) -> BatchMetadata | None:
    """As `check_producers`, of one batch that a producer with an id sent."""
    state = producers.state
    entry = state.producers.get(header.producer_id)
    if entry is not None and (repeated := entry.duplicate_of(header)) is not None:
        return repeated
    if header.attributes & TRANSACTIONAL_BIT and (
        entry is None or not entry.is_in_transaction(header.producer_epoch)
    ):
        if entry is not None:
            entry.check_epoch(header.producer_epoch)
        producers.guards.check(header, guard, leader_epoch, is_known=entry is not None)
    if entry is None:
        producers.refused.check(header)
    else:
        state.check(header, check_sequence=True)
    return None


def assign_offsets(
    prepared: list[PreparedBatch], first_offset: int, leader_epoch: int
) -> tuple[list[bytes], list[AppendedBatch], int]:
    """(parts to write, what the indexes need, bytes): offsets from `first_offset` on, nothing is copied."""
    parts: list[bytes] = []
    batches: list[AppendedBatch] = []
    length = 0
    for batch in prepared:
        header = batch.header
        parts.append(patched_prefix(header, first_offset, leader_epoch, batch.crc))
        parts.append(batch.tail)
        last_offset = first_offset + header.last_offset_delta
        size = header.batch_length + 12
        batches.append(AppendedBatch(first_offset, last_offset, batch.max_timestamp, size))
        first_offset = last_offset + 1
        length += size
    return parts, batches, length


def check_continues(prepared: list[PreparedBatch], expected: int, epoch: int) -> None:
    """Whether a leader's batches continue a log that ends at `expected` with a record of leader epoch `epoch`.

    Raises OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, or CORRUPT_MESSAGE for offsets that fit no segment.
    """
    for batch in prepared:
        header = batch.header
        if header.base_offset < expected:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"offset {header.base_offset} does not continue a log that ends at {expected}",
            )
        if header.last_offset - prepared[0].header.base_offset > INT_MAX:
            raise KafkaError(ErrorCode.corrupt_message, f"offset {header.last_offset} is too far ahead")
        if NO_EPOCH < header.partition_leader_epoch < epoch:
            raise KafkaError(
                ErrorCode.fenced_leader_epoch,
                f"offset {header.base_offset} is of leader epoch {header.partition_leader_epoch}, "
                f"the one before it of {epoch}",
            )
        expected = header.next_offset
        epoch = max(epoch, header.partition_leader_epoch)


def prepare_follower_batches(
    records: Buffer, leader_epoch: int
) -> tuple[list[PreparedBatch], list[AppendedBatch], int]:
    """Check what a leader sent: (batches, what the indexes need, bytes of the whole batches). It ends before a batch of
    a later leader epoch.
    """
    prepared: list[PreparedBatch] = []
    batches: list[AppendedBatch] = []
    position, end = 0, len(records)
    while end - position >= 12:
        size = int.from_bytes(records[position + 8 : position + 12], "big", signed=True) + 12
        if position + size > end:
            break
        header = check_framing(records, position)
        if header.partition_leader_epoch > leader_epoch:
            break
        checked_tail(records, header, position)
        marker = decode_marker(memoryview(records)[position:]) if header.is_control else None
        prepared.append(PreparedBatch(header, b"", header.crc, header.max_timestamp, marker))
        batches.append(AppendedBatch(header.base_offset, header.last_offset, header.max_timestamp, size))
        position += size
    return prepared, batches, position
