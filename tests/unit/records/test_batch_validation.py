"""What a leader refuses, and with which code."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable

import pytest

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records.batch import CRC_START, crc_of_tail
from barnabas.records.record import encode_batch
from barnabas.records.validate import check_client_batch, check_framing, check_size, checked_tail

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
