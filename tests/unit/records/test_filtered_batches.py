"""Batches with records taken out: what stays is what it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.records.batch import BatchHeader, crc_is_valid, parse_header
from barnabas.records.filtered import empty_batch, read_keyed_records, rebuild_batch
from barnabas.records.record import decode_records, encode_batch

RECORD = st.tuples(
    st.integers(0, 2**41),
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
)


def fixed(header: BatchHeader) -> BatchHeader:
    """The fields that no filtering changes."""
    return header._replace(
        batch_length=0, crc=0, record_count=0, attributes=0, base_timestamp=0, max_timestamp=0
    )


@given(
    records=st.lists(RECORD, min_size=1, max_size=12),
    codec=st.integers(0, 4),
    log_append_time=st.booleans(),
    horizon=st.none() | st.integers(0, 2**42),
    data=st.data(),
)
def test_the_retained_records_are_unchanged(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: int,
    log_append_time: bool,
    horizon: int | None,
    data: st.DataObject,
) -> None:
    batch = encode_batch(
        records,
        base_offset=70,
        compression=codec,
        producer_id=4,
        producer_epoch=2,
        base_sequence=9,
        log_append_time=log_append_time,
        partition_leader_epoch=3,
    )
    header = parse_header(batch)
    body, keyed = read_keyed_records(batch)
    decoded = list(decode_records(batch))
    assert [(r.offset, r.timestamp, r.key, r.has_value) for r in keyed] == [
        (r.offset, r.timestamp, r.key, r.value is not None) for r in decoded
    ]
    kept = sorted(data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1)))
    rebuilt = rebuild_batch(header, body, [keyed[number] for number in kept], horizon)
    new = parse_header(rebuilt)
    assert crc_is_valid(rebuilt)
    assert len(rebuilt) == new.size_in_bytes
    assert fixed(new) == fixed(header)
    assert (new.compression, new.record_count, new.has_delete_horizon) == (
        codec,
        len(kept),
        horizon is not None,
    )
    assert new.max_timestamp == max(decoded[number].timestamp for number in kept)
    assert list(decode_records(rebuilt)) == [decoded[number] for number in kept]
    if horizon is not None:
        assert new.base_timestamp == horizon
        again = rebuild_batch(new, *read_keyed_records(rebuilt), None)
        assert parse_header(again).base_timestamp == horizon
        assert list(decode_records(again)) == list(decode_records(rebuilt))


def test_an_empty_batch_keeps_the_producers_place() -> None:
    batch = encode_batch(
        [(5, b"k", b"v", ())] * 3, base_offset=9, compression=4, producer_id=1, base_sequence=6
    )
    header = parse_header(batch)
    empty = empty_batch(header)
    new = parse_header(empty)
    assert crc_is_valid(empty)
    assert (len(empty), new.record_count, new.compression) == (61, 0, 0)
    assert (new.last_offset, new.last_sequence, new.max_timestamp) == (11, 8, 5)
    assert list(decode_records(empty)) == []
    assert read_keyed_records(empty)[1] == []
