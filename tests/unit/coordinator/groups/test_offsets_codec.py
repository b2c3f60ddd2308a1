"""The bytes of __consumer_offsets, which Kafka's own tools must be able to read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.groups.codec import (
    UnreadableRecord,
    decode_batch,
    decode_record,
    encode_record,
    head_of,
)
from barnabas.coordinator.groups.core.records import (
    GroupLogRecord,
    GroupRecord,
    MarkerRecord,
    OffsetAndMetadata,
    OffsetRecord,
    StoredGroup,
    StoredMember,
)
from barnabas.coordinator.runtime.core.producers import PLAIN, BatchHead, Producer
from barnabas.records.batch import crc_of_tail
from barnabas.records.control import encode_marker
from barnabas.records.record import encode_batch

GROUP_KEY = bytes.fromhex("0002 0001 67")
OFFSET_KEY = bytes.fromhex("0001 0001 67 0001 74 00000007")
MEMBER = StoredMember("m-1", "i", "c", "/h", 300_000, 45_000, b"\x01\x02", b"\x03")

GOLDEN: list[tuple[GroupLogRecord, bytes, str | None]] = [
    (
        OffsetRecord("g", "t", 7, OffsetAndMetadata(5, 2, "x", 9)),
        OFFSET_KEY,
        "0004 0000000000000005 00000002 02 78 0000000000000009 00",
    ),
    (
        OffsetRecord("g", "t", 7, OffsetAndMetadata(5, 2, "x", 9, topic_id=bytes(range(16)))),
        OFFSET_KEY,
        "0004 0000000000000005 00000002 02 78 0000000000000009 01 00 10 000102030405060708090a0b0c0d0e0f",
    ),
    (
        OffsetRecord("g", "t", 7, OffsetAndMetadata(5, -1, "", 9, 10)),
        OFFSET_KEY,
        "0001 0000000000000005 0000 0000000000000009 000000000000000a",
    ),
    (OffsetRecord("g", "t", 7, None), OFFSET_KEY, None),
    (
        GroupRecord("g", StoredGroup("consumer", 3, "range", "m-1", 256, (MEMBER,))),
        GROUP_KEY,
        "0003 0008 636f6e73756d6572 00000003 0005 72616e6765 0003 6d2d31 0000000000000100 00000001"
        "0003 6d2d31 0001 69 0001 63 0002 2f68 000493e0 0000afc8 00000002 0102 00000001 03",
    ),
    (
        GroupRecord("g", StoredGroup("", 0, None, None, -1)),
        GROUP_KEY,
        "0003 0000 00000000 ffff ffff ffffffffffffffff 00000000",
    ),
    (GroupRecord("g", None), GROUP_KEY, None),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_written_bytes(record: GroupLogRecord, key: bytes, value: str | None) -> None:
    expected = None if value is None else bytes.fromhex(value)
    assert encode_record(record) == (key, expected)
    assert decode_record(key, expected) == record


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 0000000000000005 0001 78 0000000000000009", OffsetAndMetadata(5, -1, "x", 9)),
        ("0002 0000000000000005 0001 78 0000000000000009", OffsetAndMetadata(5, -1, "x", 9)),
        ("0003 0000000000000005 00000002 0001 78 0000000000000009", OffsetAndMetadata(5, 2, "x", 9)),
        (
            "0004 0000000000000005 00000002 02 78 0000000000000009 01 00 10" + "11" * 16,
            OffsetAndMetadata(5, 2, "x", 9, topic_id=b"\x11" * 16),
        ),
    ],
)
def test_other_versions_of_offsets_are_read(value: str, expected: OffsetAndMetadata) -> None:
    for key in (OFFSET_KEY, b"\x00\x00" + OFFSET_KEY[2:]):
        assert decode_record(key, bytes.fromhex(value)) == OffsetRecord("g", "t", 7, expected)


@pytest.mark.parametrize(
    ("value", "timestamp", "instance", "rebalance_timeout"),
    [
        (
            "0000 0001 63 00000003 0001 72 0001 6d 00000001"
            "0001 6d 0001 63 0001 68 0000afc8 00000001 01 00000001 02",
            -1,
            None,
            45_000,
        ),
        (
            "0001 0001 63 00000003 0001 72 0001 6d 00000001"
            "0001 6d 0001 63 0001 68 ffffffff 0000afc8 00000001 01 00000001 02",
            -1,
            None,
            45_000,
        ),
        (
            "0002 0001 63 00000003 0001 72 0001 6d 0000000000000100 00000001"
            "0001 6d 0001 63 0001 68 000493e0 0000afc8 00000001 01 00000001 02",
            256,
            None,
            300_000,
        ),
        (
            "0004 02 63 00000003 02 72 02 6d 0000000000000100 02"
            "02 6d 02 69 02 63 02 68 000493e0 0000afc8 02 01 02 02 00 00",
            256,
            "i",
            300_000,
        ),
    ],
)
def test_other_versions_of_groups_are_read(
    value: str, timestamp: int, instance: str | None, rebalance_timeout: int
) -> None:
    member = StoredMember("m", instance, "c", "h", rebalance_timeout, 45_000, b"\x01", b"\x02")
    expected = StoredGroup("c", 3, "r", "m", timestamp, (member,))
    assert decode_record(GROUP_KEY, bytes.fromhex(value)) == GroupRecord("g", expected)


@pytest.mark.parametrize("key", [None, b"", b"\x00", bytes.fromhex("000b 0001 67"), bytes.fromhex("7fff")])
def test_unknown_kinds_of_keys_are_left_alone(key: bytes | None) -> None:
    assert decode_record(key, b"anything") is None


@pytest.mark.parametrize("value", ["", "00", "0009", "0003 00", "0004 0000000000000005 00000002 02 ff"])
def test_values_that_cannot_be_read_are_an_error(value: str) -> None:
    for key in (OFFSET_KEY, GROUP_KEY):
        with pytest.raises(UnreadableRecord):
            decode_record(key, bytes.fromhex(value))


names = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
timestamps = st.integers(0, 2**60)
int32 = st.integers(0, 2**31 - 1)
members = st.builds(
    StoredMember,
    names,
    st.none() | names,
    names,
    names,
    int32,
    int32,
    st.binary(max_size=9),
    st.binary(max_size=9),
)
records = st.builds(
    OffsetRecord,
    names,
    names,
    int32,
    st.none() | st.builds(OffsetAndMetadata, timestamps, int32, names, timestamps),
) | st.builds(
    GroupRecord,
    names,
    st.none()
    | st.builds(
        StoredGroup,
        names,
        int32,
        st.none() | names,
        st.none() | names,
        timestamps,
        st.lists(members, max_size=3).map(tuple),
    ),
)


@given(st.lists(records, min_size=1, max_size=5))
def test_what_is_written_is_read_back(written: list[GroupLogRecord]) -> None:
    batch = encode_batch([(1, *encode_record(record), ()) for record in written])
    assert list(decode_batch(memoryview(batch))) == written


P = Producer(7, 3)
PENDING = OffsetRecord("g", "t", 7, OffsetAndMetadata(5, 2, "x", 9), P)


def test_offsets_of_a_transaction_are_the_same_bytes_in_a_batch_of_its_producer() -> None:
    assert encode_record(PENDING) == (OFFSET_KEY, bytes.fromhex(str(GOLDEN[0][2])))
    assert head_of(PENDING) == BatchHead(P)
    batch = encode_batch(
        [(1, *encode_record(PENDING), ())], producer_id=7, producer_epoch=3, transactional=True
    )
    assert list(decode_batch(memoryview(batch))) == [PENDING]
    # Who is idempotent only writes outside of transactions.
    idempotent = encode_batch([(1, *encode_record(PENDING), ())], producer_id=7, producer_epoch=3)
    assert list(decode_batch(memoryview(idempotent))) == [GOLDEN[0][0]]


@pytest.mark.parametrize(("committed", "kind"), [(True, "0001"), (False, "0000")])
def test_markers(committed: bool, kind: str) -> None:
    marker = MarkerRecord(P, committed, 258)
    assert encode_record(marker) == (bytes.fromhex(f"0000 {kind}"), bytes.fromhex("0000 00000102"))
    assert head_of(marker) == BatchHead(P, is_control=True)
    batch = encode_marker(
        committed=committed, producer_id=7, producer_epoch=3, coordinator_epoch=258, timestamp=1
    )
    assert list(decode_batch(memoryview(batch))) == [marker]


def test_control_batches_that_end_nothing_are_left_alone() -> None:
    """Another kind of control record, and one that compaction has emptied."""
    other = encode_batch(
        [(1, bytes.fromhex("0000 0002"), b"", ())], producer_id=7, producer_epoch=3, control=True
    )
    assert list(decode_batch(memoryview(other))) == []
    emptied = bytearray(encode_batch([(1, None, None, ())], control=True, transactional=True)[:61])
    emptied[8:12] = (61 - 12).to_bytes(4, "big")
    emptied[57:61] = bytes(4)
    emptied[17:21] = crc_of_tail(bytes(emptied[21:])).to_bytes(4, "big")
    assert list(decode_batch(memoryview(bytes(emptied)))) == []


def test_everything_else_is_written_outside_of_transactions() -> None:
    assert {head_of(record) for record, _, _ in GOLDEN} == {PLAIN}
