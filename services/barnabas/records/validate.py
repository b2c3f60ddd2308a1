"""What a leader checks of a batch before it appends: everything that the header can tell, and the CRC.

Kafka's leader also walks the records of every batch. Here that walk is only made where the semantics need it
(compacted topics: every record must have a key; topics that refuse old records: each has a time of its own), and to
say which records are to blame when the header shows that some are (KIP-467). Elsewhere a batch whose header and CRC
are right is taken as its client wrote it. What that gives up: a client that frames its own records wrongly, under a
right CRC, is refused by the consumer that decodes it and not by the broker; and the header's newest timestamp is
believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    crc_of_tail,
    parse_header,
)
from barnabas.records.compression import Compression
from barnabas.records.record import Record, decode_records

RECORD_ERRORS_MAX: Final = 10_000
"""Bad records of one batch that are named; a small batch can unfold to millions of them."""

_MAGIC_AT = 16


class RecordError(NamedTuple):
    """A record that is to blame for the refusal of its batch (KIP-467): its place in the batch, from 0, and why."""

    batch_index: int
    message: str


class InvalidRecords(KafkaError):
    """A batch is refused for some of its records: INVALID_TIMESTAMP where a time is among the reasons, as in Kafka,
    else INVALID_RECORD. Clients blame `record_errors` and may send the other records again."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


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
    start, end = position + CRC_START, position + header.batch_length + LOG_OVERHEAD
    tail = buffer[start:end] if isinstance(buffer, bytes) else bytes(memoryview(buffer)[start:end])
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


def plain_batch(records: Buffer, rules: BatchRules, now_ms: int) -> BatchHeader | None:
    """The header of one client's batch that is right in all that the functions below check, but for its CRC.

    None where any of them has to be asked: they say what is wrong, or look at the records. Most batches need neither,
    and one look at the fields together costs a third of asking each.
    """
    if len(records) < HEADER_SIZE:
        return None
    header = parse_header(records)
    base, length, _, magic, _, flags, delta, _, newest, producer, _, sequence, count = header
    size = length + LOG_OVERHEAD
    if (
        magic != MAGIC
        or size != len(records)
        or size > rules.max_message_bytes
        or base
        or count <= 0
        or count != delta + 1
        or flags & (CONTROL_BIT | TIMESTAMP_TYPE_BIT)
        or flags & COMPRESSION_MASK > Compression.ZSTD
        or (producer >= 0 and sequence < 0)
        or rules.is_compacted
        or rules.is_log_append_time
        or now_ms > rules.message_timestamp_before_max_ms
        or newest > now_ms + rules.message_timestamp_after_max_ms
    ):
        return None
    return header


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
    times = _TimeWindow(header, rules, now_ms)
    if rules.is_compacted or times.is_any_record_in_doubt:
        _check_records(buffer, rules, times)
    times.check_header()


class _TimeWindow:
    """When the records of a batch may say that they were made.

    NO_TIMESTAMP is let through, as in Kafka, and any time under LogAppendTime, where the broker's is written.
    """

    def __init__(self, header: BatchHeader, rules: BatchRules, now_ms: int) -> None:
        self._header = header
        self._is_checked = not rules.is_log_append_time
        self._earliest = now_ms - rules.message_timestamp_before_max_ms
        self._latest = now_ms + rules.message_timestamp_after_max_ms

    @property
    def is_any_record_in_doubt(self) -> bool:
        """Whether the header leaves open that a record is outside.

        It tells the newest time, but not the oldest, which few topics bound: without a bound no time is too old.
        """
        if self._header.is_log_append_time:
            return True
        return self._is_checked and (self._earliest > 0 or self._header.max_timestamp > self._latest)

    def complaint(self, timestamp: int) -> str | None:
        """What is wrong with a record of this time, if anything is."""
        if self._header.is_log_append_time:
            return "Producer should not set timestamp type to LogAppendTime"
        if not self._is_checked or timestamp == NO_TIMESTAMP or self._earliest <= timestamp <= self._latest:
            return None
        return (
            f"Timestamp {timestamp} is out of range: it should be within [{self._earliest}, {self._latest}]"
        )

    def check_header(self) -> None:
        """Raise INVALID_TIMESTAMP for a header that claims a newer record than the batch may have."""
        if self._is_checked and self._header.max_timestamp > self._latest:
            raise KafkaError(
                ErrorCode.invalid_timestamp,
                f"the batch's newest timestamp, {self._header.max_timestamp}, is after {self._latest}",
            )


def _check_records(buffer: Buffer, rules: BatchRules, times: _TimeWindow) -> None:
    """Walk the records; raises InvalidRecords when any is bad, and what `decode_records` raises."""
    errors: list[RecordError] = []
    count, is_time_among_them = 0, False
    for index, record in enumerate(decode_records(buffer)):
        complaint = _key_complaint(record, rules)
        if complaint is None:
            complaint = times.complaint(record.timestamp)
            is_time_among_them = is_time_among_them or complaint is not None
        if complaint is not None:
            count += 1
            if count <= RECORD_ERRORS_MAX:
                errors.append(RecordError(index, complaint))
    if is_time_among_them:
        message = "One or more records have been rejected due to invalid timestamp"
        raise InvalidRecords(ErrorCode.invalid_timestamp, message, errors)
    if errors:
        message = f"{count} of the batch's records have been rejected, the first for: {errors[0].message}"
        raise InvalidRecords(ErrorCode.invalid_record, message, errors)


def _key_complaint(record: Record, rules: BatchRules) -> str | None:
    if rules.is_compacted and record.key is None:
        return "Compacted topic cannot accept message without key"
    return None
