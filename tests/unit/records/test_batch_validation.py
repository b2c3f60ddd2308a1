"""What a leader refuses, and with which code."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records import validate
from barnabas.records.batch import CRC_START, crc_of_tail
from barnabas.records.compression import compress
from barnabas.records.produced_records import walk_records
from barnabas.records.record import decode_records, encode_batch
from barnabas.records.validate import (
    InvalidRecords,
    check_client_batch,
    check_framing,
    check_size,
    checked_tail,
    plain_batch,
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


def raw_batch(compression: int, count: int, records: bytes) -> bytes:
    """A batch that claims `count` records, whatever `records` are; its CRC is right."""
    body = compress(compression, records)
    tail = struct.pack(">hiqqqhii", compression, count - 1, NOW, NOW, -1, -1, -1, count) + body
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc_of_tail(tail)) + tail


def record(offset: int, key: bytes = b"k") -> bytes:
    """One of fewer than 64 bytes; offset below 64."""
    fields = bytes([0, 0, offset * 2, len(key) * 2]) + key + bytes([1, 0])
    return bytes([len(fields) * 2]) + fields


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("compression", range(5))
def test_a_batch_cannot_claim_more_records_than_it_holds(compression: int, is_compacted: bool) -> None:
    count = 4_000_000 if compression else 3
    batch = raw_batch(compression, count, record(0) * 2)
    rules = Rules(is_compacted=is_compacted)
    assert plain_batch(batch, rules, NOW) is None
    with pytest.raises(KafkaError, match=f"counts {count} records") as refused:
        check(batch, rules)
    assert refused.value.code is ErrorCode.invalid_record


@pytest.mark.parametrize("compression", range(5))
@pytest.mark.parametrize("key", [None, b""])
def test_the_shortest_records_are_not_too_many(compression: int, key: bytes | None) -> None:
    batch = encode_batch([(NOW, key, None, ())] * 20_000, compression=compression)
    check(batch, Rules(is_compacted=key is not None))
    assert plain_batch(batch, Rules(), NOW) is not None


@pytest.mark.parametrize("offsets", [(0, 0), (1, 2), (0, 2), (1, 0)])
def test_the_records_of_a_batch_count_up(offsets: tuple[int, ...]) -> None:
    batch = raw_batch(4, 2, b"".join(record(offset) for offset in offsets))
    with pytest.raises(KafkaError, match="says that its offset is") as refused:
        check(batch, Rules(is_compacted=True))
    assert refused.value.code is ErrorCode.invalid_record


@pytest.mark.parametrize(
    "records",
    [
        record(0),
        record(0) + record(1) + b"!",
        record(0) + record(1)[:-1],
        record(0) + bytes([14]),
        record(0) + bytes([0]) + record(1),
        record(0) + bytes([14, 0, 0, 2, 3, 1, 1, 0]),
        record(0) + bytes([14, 0, 0, 2, 40, 1, 1, 0]),
        record(0) + bytes([12, 0, 0, 2, 1, 4, 0]),
    ],
)
def test_malformed_records_where_they_are_walked(records: bytes) -> None:
    with pytest.raises(KafkaError, match="malformed") as refused:
        check(raw_batch(4, 2, records), Rules(is_compacted=True))
    assert refused.value.code is ErrorCode.invalid_record


@given(st.binary(max_size=60), st.integers(1, 4))
def test_whatever_the_records_are_the_walk_ends_as_decoding_them_does(records: bytes, count: int) -> None:
    batch = raw_batch(4, count, records)
    try:
        expected = [(r.offset, r.timestamp, r.key is not None) for r in decode_records(batch)]
    except KafkaError:
        return
    header = check_framing(batch)
    if [offset for offset, _, _ in expected] == list(range(count)):
        assert list(walk_records(header, records)) == [(time, has_key) for _, time, has_key in expected]
    else:
        with pytest.raises(KafkaError, match="says that its offset is"):
            list(walk_records(header, records))


class Time:
    """A WalkTime that grants what it is told to."""

    def __init__(self, *, is_left: bool = True) -> None:
        self.is_left = is_left
        self.is_running = False
        self.walks = 0

    def begin(self) -> bool:
        self.is_running = self.is_left
        return self.is_left

    def end(self) -> None:
        assert self.is_running
        self.is_running = False
        self.walks += 1


def test_what_takes_long_is_not_checked_where_others_wait() -> None:
    rules, time = Rules(is_compacted=True), Time()
    many = encode_batch([(NOW, b"k", None, ())] * (validate.QUICK_RECORDS_MAX + 1))
    wide = encode_batch([(NOW, b"k", bytes(validate.QUICK_UNFOLDED_BYTES_MAX), ())], compression=4)
    for batch in (many, wide):
        header = check_framing(batch)
        with pytest.raises(validate.LongCheck):
            check_client_batch(batch, header, rules, NOW, time=time)
        check_client_batch(batch, header, rules, NOW)
    assert (time.walks, time.is_running) == (1, False), "what was unfolded for nothing took its time"
    few = encode_batch([(NOW, b"k", None, ())] * validate.QUICK_RECORDS_MAX)
    check_client_batch(few, check_framing(few), rules, NOW, time=time)
    assert (time.walks, time.is_running) == (2, False)


@pytest.mark.parametrize("key", [b"k", None])
def test_no_time_is_left_for_a_walk(key: bytes | None) -> None:
    rules, batch = Rules(is_compacted=True), encode_batch([(NOW, key, b"v", ())])
    with pytest.raises(validate.LongCheck):
        check_client_batch(batch, check_framing(batch), rules, NOW, time=Time(is_left=False))
    check_client_batch(batch, check_framing(batch), Rules(), NOW, time=Time(is_left=False))


def test_a_walk_that_finds_something_took_its_time_too() -> None:
    batch, time = encode_batch([(NOW, None, b"v", ())]), Time()
    with pytest.raises(InvalidRecords):
        check_client_batch(batch, check_framing(batch), Rules(is_compacted=True), NOW, time=time)
    assert (time.walks, time.is_running) == (1, False)


@pytest.mark.parametrize(
    ("batch", "rules", "is_needed"),
    [
        (GOOD, Rules(), False),
        (GOOD, Rules(is_compacted=True), True),
        (GOOD, Rules(message_timestamp_before_max_ms=1_000), True),
        (encode_batch([(NOW + 3_600_001, b"k", b"v", ())]), Rules(), True),
        (encode_batch([(NOW + 3_600_001, b"k", b"v", ())]), Rules(is_log_append_time=True), False),
        (GOOD[:60], Rules(is_compacted=True), False),
    ],
)
def test_which_records_have_to_be_looked_at(batch: bytes, rules: Rules, is_needed: bool) -> None:
    assert validate.needs_walk(batch, rules, NOW) == is_needed
    if not is_needed and len(batch) > 60:
        check_client_batch(batch, check_framing(batch), rules, NOW, time=Time(is_left=False))


def test_a_batch_unfolds_to_no_more_than_its_topic_s_limit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "UNFOLDED_BYTES_MAX", 1_000)
    batch = encode_batch([(NOW, b"k", bytes(2_000), ())], compression=4)
    check(batch, Rules(is_compacted=True, max_message_bytes=600))
    with pytest.raises(KafkaError, match="unfolds to more than 1200 bytes") as refused:
        check(batch, Rules(is_compacted=True, max_message_bytes=300))
    assert refused.value.code is ErrorCode.message_too_large


def test_a_batch_has_no_more_records_than_can_be_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "WALKED_RECORDS_MAX", 100)
    batch = encode_batch([(NOW, b"k", b"", ())] * 101, compression=4)
    check(batch, Rules(max_message_bytes=700))
    check(batch, Rules(is_compacted=True, max_message_bytes=707))
    with pytest.raises(KafkaError, match="holds 101 records; 100 are the most") as refused:
        check(batch, Rules(is_compacted=True, max_message_bytes=700))
    assert refused.value.code is ErrorCode.message_too_large


def test_under_log_append_time_no_time_is_wrong() -> None:
    rules = Rules(is_log_append_time=True, message_timestamp_before_max_ms=1)
    check(encode_batch([(5, b"k", b"v", ()), (NOW * 2, b"k", b"v", ())]), rules)
