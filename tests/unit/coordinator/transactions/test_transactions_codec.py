"""The bytes of __transaction_state, which Kafka's own tools must be able to read."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transaction_driver import partitions

from barnabas.coordinator.runtime.kind import UnreadableRecord
from barnabas.coordinator.transactions.codec import (
    UnknownVersion,
    decode_batch,
    decode_record,
    encode_record,
)
from barnabas.coordinator.transactions.core.records import TransactionRecord, record_bytes
from barnabas.coordinator.transactions.core.states import STATE_IDS, TransactionState
from barnabas.coordinator.transactions.core.transaction import TopicPartition, Transaction
from barnabas.records.record import encode_batch

KEY = bytes.fromhex("0000 0002 6964")
"""Record type 0, then the id "id" with its length as int16."""

EMPTY = Transaction(9, 1, 60_000, TransactionState.EMPTY, 256, previous_producer_id=9)
ONGOING = Transaction(
    9,
    1,
    60_000,
    TransactionState.ONGOING,
    257,
    start_ms=256,
    partitions=partitions("t-0", "t-2", "a-1"),
    previous_producer_id=9,
    client_version=2,
)
ROTATING = Transaction(
    9,
    32_767,
    60_000,
    TransactionState.PREPARE_COMMIT,
    258,
    start_ms=256,
    partitions=partitions("t-0"),
    previous_producer_id=9,
    next_producer_id=10,
    client_version=2,
)
COMPLETE = Transaction(
    10, 0, 60_000, TransactionState.COMPLETE_COMMIT, 259, start_ms=256, previous_producer_id=9
)

# Of a value: version, producer id, epoch, timeout, state, partitions, last update, start; then the tagged fields.
GOLDEN: list[tuple[str, Transaction | None, int, str | None]] = [
    (
        "v0: no partitions are null in Empty, and nothing but the fields of version 0",
        EMPTY,
        0,
        "0000 0000000000000009 0001 0000ea60 00 ffffffff 0000000000000100 ffffffffffffffff",
    ),
    (
        "v0: arrays and strings have their lengths in four and two bytes",
        Transaction(
            9, 1, 60_000, TransactionState.ONGOING, 257, start_ms=256, partitions=partitions("t-0", "t-2")
        ),
        0,
        "0000 0000000000000009 0001 0000ea60 01 00000001 0001 74 00000002 00000000 00000002"
        "0000000000000101 0000000000000100",
    ),
    (
        "v0: what is complete has an empty array, not null",
        COMPLETE,
        0,
        "0000 000000000000000a 0000 0000ea60 04 00000000 0000000000000103 0000000000000100",
    ),
    (
        "v1: null is 0; one tagged field, number 0, of 8 bytes",
        EMPTY,
        1,
        "0001 0000000000000009 0001 0000ea60 00 00 0000000000000100 ffffffffffffffff"
        "01 00 08 0000000000000009",
    ),
    (
        "v1: lengths plus one in a varint; each topic ends with its count of tagged fields; tags 0 and 2",
        ONGOING,
        2,
        "0001 0000000000000009 0001 0000ea60 01 03 02 61 02 00000001 00 02 74 03 00000000 00000002 00"
        "0000000000000101 0000000000000100 02 00 08 0000000000000009 02 02 0002",
    ),
    (
        "v1: tags 0, 1 and 2 in order",
        ROTATING,
        2,
        "0001 0000000000000009 7fff 0000ea60 02 02 02 74 02 00000000 00"
        "0000000000000102 0000000000000100"
        "03 00 08 0000000000000009 01 08 000000000000000a 02 02 0002",
    ),
    (
        "v1: an empty array is 1",
        COMPLETE,
        2,
        "0001 000000000000000a 0000 0000ea60 04 01 0000000000000103 0000000000000100"
        "01 00 08 0000000000000009",
    ),
    ("a tombstone", None, 2, None),
]


@pytest.mark.parametrize(
    ("transaction", "level", "value"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN]
)
def test_written_bytes(transaction: Transaction | None, level: int, value: str | None) -> None:
    expected = None if value is None else bytes.fromhex(value)
    assert encode_record(TransactionRecord("id", transaction), level) == (KEY, expected)


@pytest.mark.parametrize(
    ("transaction", "level", "value"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN]
)
def test_written_bytes_are_read(transaction: Transaction | None, level: int, value: str | None) -> None:
    read = decode_record(KEY, None if value is None else bytes.fromhex(value))
    assert read.transactional_id == "id"
    assert encode_record(read, level) == encode_record(TransactionRecord("id", transaction), level)


def test_what_began_under_version_2_is_written_whole_after_a_downgrade() -> None:
    for transaction in (ONGOING, ROTATING):
        record = TransactionRecord("id", transaction)
        assert encode_record(record, 0) == encode_record(record, 2)
        assert decode_record(*encode_record(record, 0)) == record


def test_version_0_leaves_out_the_id_before() -> None:
    read = decode_record(*encode_record(TransactionRecord("id", COMPLETE), 0)).value
    assert read is not None
    assert read.previous_producer_id == -1


def test_fields_that_are_not_known_are_left_out() -> None:
    """Tag 3 is Kafka's NextProducerEpoch, which nothing uses; tag 9 is of the future."""
    value = (
        "0001 0000000000000009 0001 0000ea60 00 00 0000000000000100 ffffffffffffffff"
        "03 00 08 0000000000000009 03 02 0004 09 03 aabbcc"
    )
    assert decode_record(KEY, bytes.fromhex(value)) == TransactionRecord("id", EMPTY)


@pytest.mark.parametrize(
    ("key", "value", "version"),
    [
        ("0001 0002 6964", "0000", "key version 1"),
        ("7fff", None, "key version 32767"),
        (KEY.hex(), "0002 00", "value version 2"),
        (KEY.hex(), "ffff 00", "value version -1"),
    ],
)
def test_versions_that_are_not_known_are_left_alone(key: str, value: str | None, version: str) -> None:
    with pytest.raises(UnknownVersion, match=version):
        decode_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_a_batch_is_read_but_for_what_is_not_known() -> None:
    known = TransactionRecord("id", ONGOING)
    batch = encode_batch(
        [
            (1, KEY, bytes.fromhex("0002 00"), ()),
            (1, *encode_record(known, 2), ()),
            (1, bytes.fromhex("0001 00"), None, ()),
            (1, KEY, None, ()),
        ]
    )
    assert list(decode_batch(memoryview(batch))) == [known, TransactionRecord("id", None)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", None),
        (b"\x00", None),
        (bytes.fromhex("0000 0005 6964"), None),
        (bytes.fromhex("0000 0001 ff"), None),
        (KEY, b""),
        (KEY, b"\x00"),
        (KEY, bytes.fromhex("0000 0000000000000009 0001")),
        # Kafka never writes the states 6 and 7; 8 is none.
        (
            KEY,
            bytes.fromhex(
                "0000 0000000000000009 0001 0000ea60 06 ffffffff 0000000000000100 ffffffffffffffff"
            ),
        ),
        (
            KEY,
            bytes.fromhex(
                "0000 0000000000000009 0001 0000ea60 08 ffffffff 0000000000000100 ffffffffffffffff"
            ),
        ),
    ],
)
def test_what_cannot_be_read_is_an_error(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UnreadableRecord):
        decode_record(key, value)


@pytest.mark.parametrize(
    "partitions_on",
    [
        "0000 0000000000000009 0001 0000ea60 01 7fffffff",
        "0000 0000000000000009 0001 0000ea60 01 00000001 0001 74 7fffffff",
        "0001 0000000000000009 0001 0000ea60 01 ffffffff0f",
        "0001 0000000000000009 0001 0000ea60 01 02 02 74 ffffffff0f",
        "0001 0000000000000009 0001 0000ea60 01 02 ffffffff0f",
        "0001 0000000000000009 0001 0000ea60 01 ffffffffffff0f",
        "0001 0000000000000009 0001 0000ea60 00 00 0000000000000100 ffffffffffffffff ffffffff0f",
        "0001 0000000000000009 0001 0000ea60 00 00 0000000000000100 ffffffffffffffff 01 00 ffffffff0f",
        "0001 0000000000000009 0001 0000ea60 00 00 0000000000000100 ffffffffffffffff 01 00 02 0001",
    ],
)
def test_lengths_that_are_only_claimed_are_an_error(partitions_on: str) -> None:
    with pytest.raises(UnreadableRecord):
        decode_record(KEY, bytes.fromhex(partitions_on))


def test_damaged_batches_are_an_error() -> None:
    batch = bytearray(encode_batch([(1, KEY, None, ())]))
    batch[-1] ^= 1
    with pytest.raises(UnreadableRecord):
        list(decode_batch(memoryview(bytes(batch))))


names = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int16 = st.integers(-(2**15), 2**15 - 1)
records = st.builds(
    TransactionRecord,
    names,
    st.none()
    | st.builds(
        Transaction,
        producer_id=int64,
        producer_epoch=int16,
        timeout_ms=int32,
        state=st.sampled_from([state for state in STATE_IDS if state is not TransactionState.EMPTY]),
        last_update_ms=int64,
        start_ms=int64,
        partitions=st.frozensets(st.builds(TopicPartition, names, int32), max_size=6),
        previous_producer_id=int64,
        next_producer_id=int64,
        client_version=st.integers(0, 2),
    ),
)


@given(st.lists(records, min_size=1, max_size=5))
def test_what_is_written_is_read_back(written: list[TransactionRecord]) -> None:
    batch = encode_batch([(1, *encode_record(record, 2), ()) for record in written])
    assert list(decode_batch(memoryview(batch))) == written


@given(records, st.integers(0, 2))
def test_records_are_never_larger_than_was_said(record: TransactionRecord, level: int) -> None:
    key, value = encode_record(record, level)
    transaction = record.value
    said = record_bytes(
        record.transactional_id, frozenset() if transaction is None else transaction.partitions
    )
    assert len(key) + len(value or b"") <= said


@given(records, st.integers(0, 1), st.data())
def test_whatever_the_bytes_are_they_are_read_or_refused(
    record: TransactionRecord, level: int, data: st.DataObject
) -> None:
    key, value = encode_record(record, level)
    value = value or b""
    at = data.draw(st.integers(0, len(value)))
    value = value[:at] + data.draw(st.binary(max_size=4)) + value[at + data.draw(st.integers(0, 4)) :]
    with contextlib.suppress(UnreadableRecord, UnknownVersion):
        decode_record(key, value)
