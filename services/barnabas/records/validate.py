"""What a leader checks of a batch before it appends: everything that the header can tell, and the CRC.

Kafka's leader also walks the records of every batch. Here that walk is only made where the semantics need it
(compacted topics: every record must have a key; topics that refuse old records: each has a time of its own), and to
say which records are to blame when the header shows that some are (KIP-467). It looks at no more than that needs, and a
batch has bounds there: who sends a small one must not keep all others waiting. Elsewhere a batch whose header and CRC
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
from barnabas.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    Compression,
    UnfoldsTooFar,
    decompressed_view,
)
from barnabas.records.produced_records import RECORD_BYTES_MIN, is_crowded, walk_records

RECORD_ERRORS_MAX: Final = 10_000
"""Bad records of one batch that are named; a small batch can unfold to millions of them."""

QUICK_RECORDS_MAX: Final = 4_000
QUICK_UNFOLDED_BYTES_MAX: Final = 2 * 1024 * 1024
"""What is walked, and unfolded for it, where others wait for the walk: a few milliseconds' work each."""

WALKED_RECORDS_MAX: Final = 150_000
UNFOLDED_BYTES_MAX: Final = 64 * 1024 * 1024
UNFOLDED_TIMES_MAX: Final = 4
"""What a batch may hold where its records are walked, for the walk keeps other appends waiting: so much, or with a
large max.message.bytes as many records as fit it without compression, and so many times its bytes. A producer that is
told MESSAGE_TOO_LARGE divides the batch and sends it again."""

_MAGIC_AT = 16


class LongCheck(Exception):
    """What was asked for takes longer than the caller has time."""


class WalkTime(Protocol):
    """The time that a thread for which others wait has for walks over records."""

    def begin(self) -> bool:
        """Whether there is time for a short walk; it begins now, and `end` follows."""
        ...

    def end(self) -> None:
        """The walk is over."""
        ...


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
        or (count * RECORD_BYTES_MIN > size - HEADER_SIZE and is_crowded(header))
        or rules.is_compacted
        or rules.is_log_append_time
        or now_ms > rules.message_timestamp_before_max_ms
        or newest > now_ms + rules.message_timestamp_after_max_ms
    ):
        return None
    return header


def check_client_batch(
    buffer: Buffer, header: BatchHeader, rules: BatchRules, now_ms: int, *, time: WalkTime | None = None
) -> None:
    """The rules for what clients send: one batch, consistent counts, no control records, plausible timestamps.

    Where `time` is given, raises LongCheck when the records have to be walked and it leaves none, or the walk may take
    more than a few milliseconds.
    """
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
    if is_crowded(header):
        raise KafkaError(
            ErrorCode.invalid_record,
            f"the record batch counts {header.record_count} records, more than {header.size_in_bytes} bytes can hold",
        )
    if header.producer_id > -1 and header.base_sequence < 0:
        raise KafkaError(
            ErrorCode.invalid_record, f"a producer id without a sequence ({header.base_sequence})"
        )
    times = _TimeWindow(header, rules, now_ms)
    if rules.is_compacted or times.is_any_record_in_doubt:
        if time is None:
            _check_records(buffer, header, rules, times, is_quick=False)
        else:
            if header.record_count > QUICK_RECORDS_MAX or not time.begin():
                raise LongCheck
            try:
                _check_records(buffer, header, rules, times, is_quick=True)
            finally:
                time.end()
    times.check_header()


def needs_walk(records: Buffer, rules: BatchRules, now_ms: int) -> bool:
    """Whether the records of what a client sent have to be looked at, as far as its header can be believed."""
    if len(records) < HEADER_SIZE:
        return False
    return rules.is_compacted or _TimeWindow(parse_header(records), rules, now_ms).is_any_record_in_doubt


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


def _check_records(
    buffer: Buffer, header: BatchHeader, rules: BatchRules, times: _TimeWindow, *, is_quick: bool
) -> None:
    """Walk the records; raises InvalidRecords when any is bad, and what `walk_records` and `_unfold` raise."""
    errors: list[RecordError] = []
    count, is_time_among_them = 0, False
    data = _unfold(buffer, header, rules, is_quick=is_quick)
    for index, (timestamp, has_key) in enumerate(walk_records(header, data)):
        complaint = None if has_key else _key_complaint(rules)
        if complaint is None:
            complaint = times.complaint(timestamp)
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


def _unfold(buffer: Buffer, header: BatchHeader, rules: BatchRules, *, is_quick: bool) -> Buffer:
    """The uncompressed records; raises MESSAGE_TOO_LARGE for too many of them, or of their bytes.

    With `is_quick` LongCheck where unfolding them takes long.
    """
    records_max = max(WALKED_RECORDS_MAX, rules.max_message_bytes // RECORD_BYTES_MIN)
    if header.record_count > records_max:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"the record batch holds {header.record_count} records; {records_max} are the most for this topic",
        )
    unfolded_max = max(UNFOLDED_BYTES_MAX, UNFOLDED_TIMES_MAX * rules.max_message_bytes)
    if is_quick:
        unfolded_max = QUICK_UNFOLDED_BYTES_MAX
    body = memoryview(buffer)[HEADER_SIZE:]
    try:
        return decompressed_view(header.compression, body, min(unfolded_max, DECOMPRESSED_BYTES_MAX))
    except UnfoldsTooFar as error:
        if is_quick:
            raise LongCheck from None
        raise KafkaError(ErrorCode.message_too_large, error.message) from error


def _key_complaint(rules: BatchRules) -> str | None:
    """What is wrong with a record without a key, if anything is."""
    return "Compacted topic cannot accept message without key" if rules.is_compacted else None
