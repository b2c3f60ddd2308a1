"""What a leader refuses, and with which code."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable

import pytest

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records import validate
from barnabas.records.batch import CRC_START, crc_of_tail
from barnabas.records.record import encode_batch
from barnabas.records.validate import (
    InvalidRecords,
    check_client_batch,
    check_framing,
    check_size,
    checked_tail,
)

NOW = 1_700_000_000_000
GOOD = encode_batch([(NOW, b"k", b"v", ()), (NOW + 5, b"k", b"w", ())])


@dataclasses.dataclass(frozen=True)
class Rules:
    max_message_bytes: int = 1_000_000
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_after_max_ms: int = 3_600_000
    is_log_append_time: bool = False
    is_compacted: bool = False


def check(data: bytes, rules: Rules) -> None:
    header = check_framing(data)
    check_size(header, rules)
    checked_tail(data, header)
    check_client_batch(data, header, rules, NOW)


def patched(form: str, at: int, *values: int) -> bytes:
    """GOOD with a field changed and the CRC right again."""
    data = bytearray(GOOD)
    struct.pack_into(form, data, at, *values)
    struct.pack_into(">I", data, 17, crc_of_tail(bytes(data[CRC_START:])))
    return bytes(data)


def test_a_good_batch_passes() -> None:
    check(GOOD, Rules())
    check(encode_batch([(-1, None, b"no timestamp", ())]), Rules(message_timestamp_before_max_ms=1))


REFUSED: list[tuple[str, Callable[[], bytes], Rules, ErrorCode]] = [
    ("empty", lambda: b"", Rules(), ErrorCode.invalid_record),
    ("cut", lambda: GOOD[:-1], Rules(), ErrorCode.invalid_record),
    ("crc", lambda: GOOD[:-1] + b"!", Rules(), ErrorCode.corrupt_message),
    ("length", lambda: patched(">i", 8, 40), Rules(), ErrorCode.corrupt_message),
    ("negative length", lambda: patched(">i", 8, -1), Rules(), ErrorCode.corrupt_message),
    ("magic 0", lambda: patched(">b", 16, 0), Rules(), ErrorCode.invalid_record),
    ("magic 1", lambda: patched(">b", 16, 1), Rules(), ErrorCode.invalid_record),
    ("magic 3", lambda: patched(">b", 16, 3), Rules(), ErrorCode.corrupt_message),
    ("two batches", lambda: GOOD + GOOD, Rules(), ErrorCode.invalid_record),
    ("base offset", lambda: patched(">q", 0, 1), Rules(), ErrorCode.invalid_record),
    ("count", lambda: patched(">i", 57, 3), Rules(), ErrorCode.invalid_record),
    ("no records", lambda: patched(">i", 57, 0), Rules(), ErrorCode.invalid_record),
    ("control", lambda: patched(">h", 21, 0x20), Rules(), ErrorCode.invalid_record),
    ("codec", lambda: patched(">h", 21, 5), Rules(), ErrorCode.unsupported_compression_type),
    ("no sequence", lambda: patched(">q", 43, 1), Rules(), ErrorCode.invalid_record),
    ("too large", lambda: GOOD, Rules(max_message_bytes=len(GOOD) - 1), ErrorCode.message_too_large),
    ("append time", lambda: patched(">h", 21, 8), Rules(), ErrorCode.invalid_timestamp),
    ("late", lambda: patched(">q", 35, NOW + 3_600_001), Rules(), ErrorCode.invalid_timestamp),
    (
        "early",
        lambda: patched(">q", 27, NOW - 11),
        Rules(message_timestamp_before_max_ms=10),
        ErrorCode.invalid_timestamp,
    ),
    (
        "keyless",
        lambda: encode_batch([(NOW, b"k", b"", ()), (NOW, None, b"", ())], compression=4),
        Rules(is_compacted=True),
        ErrorCode.invalid_record,
    ),
]


@pytest.mark.parametrize(("data", "rules", "code"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_refused_with_kafkas_code(data: Callable[[], bytes], rules: Rules, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        check(data(), rules)
    assert caught.value.code is code
    assert caught.value.message


def test_log_append_time_ignores_the_clients_timestamps() -> None:
    check(patched(">q", 35, NOW * 2), Rules(is_log_append_time=True))


def refused_records(records: list[tuple[int, bytes | None]], rules: Rules) -> tuple[ErrorCode, list[int]]:
    """The code and the blamed places of a batch of these (timestamp, key)."""
    data = encode_batch([(timestamp, key, b"v", ()) for timestamp, key in records], compression=1)
    with pytest.raises(InvalidRecords) as refused:
        check(data, rules)
    assert all(error.message for error in refused.value.record_errors)
    return refused.value.code, [error.batch_index for error in refused.value.record_errors]


def test_the_records_without_a_key_are_blamed_and_no_others() -> None:
    records = [(NOW, None if index % 10 == 3 else b"k") for index in range(100)]
    found = refused_records(records, Rules(is_compacted=True))
    assert found == (ErrorCode.invalid_record, list(range(3, 100, 10)))


def test_the_records_of_another_time_are_blamed() -> None:
    rules = Rules(message_timestamp_before_max_ms=1_000, message_timestamp_after_max_ms=2_000)
    times = [NOW, NOW - 1_001, NOW - 1_000, -1, NOW + 2_000, NOW + 2_001]
    found = refused_records([(time, b"k") for time in times], rules)
    assert found == (ErrorCode.invalid_timestamp, [1, 5])


def test_an_old_record_in_the_middle_is_found() -> None:
    """The header tells the first and the newest timestamp only."""
    found = refused_records(
        [(NOW, b"k"), (5, b"k"), (NOW, b"k")], Rules(message_timestamp_before_max_ms=1_000)
    )
    assert found == (ErrorCode.invalid_timestamp, [1])


def test_a_time_among_the_reasons_decides_the_code() -> None:
    rules = Rules(is_compacted=True)
    found = refused_records([(NOW, None), (NOW + 3_600_001, b"k"), (NOW, b"k")], rules)
    assert found == (ErrorCode.invalid_timestamp, [0, 1])


def test_no_more_records_are_named_than_the_limit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "RECORD_ERRORS_MAX", 3)
    assert refused_records([(NOW, None)] * 5, Rules(is_compacted=True)) == (
        ErrorCode.invalid_record,
        [0, 1, 2],
    )


def test_under_log_append_time_no_time_is_wrong() -> None:
    rules = Rules(is_log_append_time=True, message_timestamp_before_max_ms=1)
    check(encode_batch([(5, b"k", b"v", ()), (NOW * 2, b"k", b"v", ())]), rules)
