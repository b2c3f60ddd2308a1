"""What a leader checks of a batch before it appends: everything that the header can tell, and the CRC.

Kafka's leader also walks the records of every batch. Here that walk is only made where the semantics need it
(compacted topics: every record must have a key); elsewhere a batch whose header and CRC are right is taken as its
client wrote it. What that gives up: a client that frames its own records wrongly, under a right CRC, is refused by
the consumer that decodes it and not by the broker. The timestamp window is checked against the header's base (first
record) and max timestamps, not against each record's.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    crc_of_tail,
    parse_header,
)
from barnabas.records.compression import Compression
from barnabas.records.record import decode_records

_MAGIC_AT = 16


class BatchRules(Protocol):
    """The topic settings that decide whether a batch is welcome."""

    @property
    def max_message_bytes(self) -> int: ...
    @property
    def message_timestamp_before_max_ms(self) -> int: ...
    @property
    def message_timestamp_after_max_ms(self) -> int: ...
    @property
    def is_log_append_time(self) -> bool: ...
    @property
    def is_compacted(self) -> bool: ...


def check_framing(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, once its size and magic are known to be possible.

    Raises INVALID_RECORD where no whole batch is there and for the old formats 0 and 1, which Kafka 4 no longer takes
    (KIP-896), CORRUPT_MESSAGE for a size that cannot be and for an unknown magic.
    """
    available = len(buffer) - position
    if available > _MAGIC_AT and buffer[position + _MAGIC_AT] in (0, 1):
        raise KafkaError(
            ErrorCode.invalid_record,
            "message formats 0 and 1 are no longer taken; use a client of Kafka 0.11 or newer",
        )
    if available < HEADER_SIZE:
        raise KafkaError(ErrorCode.invalid_record, "there is no whole record batch, not even its header")
    header = parse_header(buffer, position)
    if header.magic != MAGIC:
        raise KafkaError(ErrorCode.corrupt_message, f"there is no message format {header.magic}")
    size = header.batch_length + LOG_OVERHEAD
    if size < HEADER_SIZE:
        raise KafkaError(
            ErrorCode.corrupt_message, f"the record batch says {size} bytes, fewer than its header has"
        )
    if size > available:
        raise KafkaError(
            ErrorCode.invalid_record, f"the record batch says {size} bytes where {available} bytes follow"
        )
    return header


def checked_tail(buffer: Buffer, header: BatchHeader, position: int = 0) -> bytes:
    """The bytes of the batch from byte 21 on, once their CRC is right; raises CORRUPT_MESSAGE."""
    tail = bytes(memoryview(buffer)[position + CRC_START : position + header.batch_length + LOG_OVERHEAD])
    if crc_of_tail(tail) != header.crc:
        raise KafkaError(
            ErrorCode.corrupt_message,
            f"the record batch's CRC is not {header.crc:#010x}; it changed on its way",
        )
    return tail


def check_size(header: BatchHeader, rules: BatchRules) -> None:
    """max.message.bytes bounds the batch as it is sent, header included."""
    if header.batch_length + LOG_OVERHEAD > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"the record batch has {header.size_in_bytes} bytes; max.message.bytes is {rules.max_message_bytes}",
        )


def check_client_batch(buffer: Buffer, header: BatchHeader, rules: BatchRules, now_ms: int) -> None:
    """The rules for what clients send: one batch, consistent counts, no control records, plausible timestamps."""
    if header.batch_length + LOG_OVERHEAD != len(buffer):
        raise KafkaError(
            ErrorCode.invalid_record, "a produce request holds exactly one record batch per partition"
        )
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.invalid_record, f"a client's batch starts at offset 0, not {header.base_offset}"
        )
    if header.record_count <= 0:
        raise KafkaError(ErrorCode.invalid_record, f"the record batch holds {header.record_count} records")
    if header.record_count != header.last_offset_delta + 1:
        raise KafkaError(
            ErrorCode.invalid_record,
            f"the record batch counts {header.record_count} records but {header.last_offset_delta + 1} offsets",
        )
    if header.is_control:
        raise KafkaError(ErrorCode.invalid_record, "clients may not write control records")
    if header.compression > Compression.ZSTD:
        raise KafkaError(
            ErrorCode.unsupported_compression_type, f"there is no compression codec {header.compression}"
        )
    if header.producer_id > -1 and header.base_sequence < 0:
        raise KafkaError(
            ErrorCode.invalid_record, f"a producer id without a sequence ({header.base_sequence})"
        )
    _check_timestamps(header, rules, now_ms)
    if rules.is_compacted and any(record.key is None for record in decode_records(buffer)):
        raise KafkaError(ErrorCode.invalid_record, "a compacted topic takes no record without a key")


def _check_timestamps(header: BatchHeader, rules: BatchRules, now_ms: int) -> None:
    if rules.is_log_append_time:
        return
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.invalid_timestamp, "producers send create time, not log append time")
    earliest = now_ms - rules.message_timestamp_before_max_ms
    latest = now_ms + rules.message_timestamp_after_max_ms
    # A batch without any timestamp carries -1 in both fields and is let through, as in Kafka.
    too_late = header.max_timestamp > latest
    too_early = header.base_timestamp != NO_TIMESTAMP and header.base_timestamp < earliest
    if too_late or too_early:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            f"timestamps {header.base_timestamp} to {header.max_timestamp} lie outside [{earliest}, {latest}]",
        )
