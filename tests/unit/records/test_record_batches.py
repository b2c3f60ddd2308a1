"""Record batches: header, encoding and decoding, patching, codecs and their limits."""

from __future__ import annotations

import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records import batch as b
from barnabas.records.compression import Compression, compress, decompress
from barnabas.records.control import decode_marker, encode_marker
from barnabas.records.filtered import read_keyed_records
from barnabas.records.record import RecordParts, decode_offsets_and_timestamps, decode_records, encode_batch

NOW = 1_700_000_000_000
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**45),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=200),
        HEADERS,
    ),
    min_size=1,
    max_size=20,
)


@given(records=RECORDS, codec=st.sampled_from(Compression), base=st.integers(0, 2**50))
def test_what_is_encoded_decodes_to_the_same(
    records: list[RecordParts], codec: Compression, base: int
) -> None:
    data = encode_batch(records, base_offset=base, compression=codec)
    header = b.parse_header(data)
    assert b.crc_is_valid(data)
    assert header.size_in_bytes == len(data)
    assert (header.base_offset, header.next_offset) == (base, base + len(records))
    assert header.compression == codec
    decoded = list(decode_records(data))
    assert [(r.timestamp, r.key, r.value, list(r.headers)) for r in decoded] == records
    assert [(r.offset, r.timestamp) for r in decoded] == list(decode_offsets_and_timestamps(data))
    assert [r.offset for r in decoded] == list(range(base, base + len(records)))


@given(records=RECORDS, cut=st.data())
def test_broken_records_never_read_outside(records: list[RecordParts], cut: st.DataObject) -> None:
    data = bytearray(encode_batch(records))
    at = cut.draw(st.integers(b.HEADER_SIZE, len(data) - 1))
    data[at] ^= cut.draw(st.integers(1, 255))
    codes, count = [], len(records)
    try:
        count = len(list(decode_records(data)))
    except KafkaError as error:
        codes.append(error.code)
    assert codes in ([], [ErrorCode.invalid_record])
    assert count == len(records)


def test_golden_bytes_of_a_batch() -> None:
    data = encode_batch([(NOW, b"k", b"v", [("h", None)])], producer_id=5, producer_epoch=1, base_sequence=9)
    expected_body = bytes([22, 0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([2, 2]) + b"h" + bytes([1])
    assert data[b.HEADER_SIZE :] == expected_body
    assert data[16] == 2
    assert struct.unpack_from(">qhi", data, 43) == (5, 1, 9)


def test_patching_leaves_the_crc_right() -> None:
    data = encode_batch([(NOW, b"k", b"v", ())])
    data = b.patched_prefix(b.parse_header(data), 77, 3) + data[b.CRC_START :]
    assert b.crc_is_valid(data)
    assert b.parse_header(data).base_offset == 77
    assert b.parse_header(data).partition_leader_epoch == 3


def test_log_append_time_gives_every_record_the_brokers_time() -> None:
    data = encode_batch([(1, b"a", b"", ()), (2, b"b", b"", ())])
    header = b.parse_header(data)
    tail = b.log_append_time_tail(data, header, NOW)
    stamped = b.patched_prefix(header, 0, 0, b.crc_of_tail(tail)) + tail
    assert b.crc_is_valid(stamped)
    assert [timestamp for _, timestamp in decode_offsets_and_timestamps(stamped)] == [NOW, NOW]


def test_a_batch_that_repeats_a_record_is_not_read_to_its_end() -> None:
    one = bytes([14, 0, 0, 0, 2]) + b"k" + bytes([1, 0])
    body = compress(Compression.ZSTD, one * 1_000)
    tail = struct.pack(">hiqqqhii", Compression.ZSTD, 999, NOW, NOW, -1, -1, -1, 1_000) + body
    data = struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, b.crc_of_tail(tail)) + tail
    read: list[object] = []
    with pytest.raises(KafkaError, match="not greater"):
        read.extend(iter(decode_offsets_and_timestamps(data)))
    assert len(read) == 1
    with pytest.raises(KafkaError, match="not greater"):
        read_keyed_records(data)


def test_iteration_stops_at_a_cut_batch() -> None:
    one, two = encode_batch([(1, None, b"x", ())]), encode_batch([(1, None, b"yy", ())])
    assert [position for position, _ in b.iterate_headers(one + two)] == [0, len(one)]
    assert [position for position, _ in b.iterate_headers(one + two[:-1])] == [0]


@pytest.mark.parametrize("sequence", [0, 5, b.SEQUENCE_MAX - 1, b.SEQUENCE_MAX])
def test_sequences_wrap_at_the_largest_int(sequence: int) -> None:
    later = b.increment_sequence(sequence, 3)
    assert later == (sequence + 3) % 2**31
    assert b.decrement_sequence(later, 3) == sequence


def test_raw_snappy_is_read_too() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"x" * 1000))
    assert decompress(Compression.SNAPPY, raw) == b"x" * 1000
    assert compress(Compression.SNAPPY, b"x" * 1000)[:8] == b"\x82SNAPPY\x00"


def test_lz4_frames_have_independent_blocks() -> None:
    """Java's decoder refuses the others, so what Barnabas encodes must not have them."""
    data = bytes(range(256)) * 1000
    frame = compress(Compression.LZ4, data)
    assert frame[4] & 0x20
    assert bytes(cramjam.lz4.decompress(frame)) == data
    assert decompress(Compression.LZ4, bytes(cramjam.lz4.compress(data))) == data


@pytest.mark.parametrize("codec", [c for c in Compression if c is not Compression.NONE])
def test_a_bomb_is_refused_at_the_limit(codec: Compression) -> None:
    packed = compress(codec, b"\0" * 1_000_000)
    assert len(decompress(codec, packed, 1_000_000)) == 1_000_000
    with pytest.raises(KafkaError) as caught:
        decompress(codec, packed, 999_999)
    assert caught.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", [c for c in Compression if c is not Compression.NONE])
def test_cut_data_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, bytes(range(256)) * 100)
    with pytest.raises(KafkaError) as caught:
        decompress(codec, packed[:-7])
    assert caught.value.code is ErrorCode.corrupt_message


def test_an_unknown_codec_is_named() -> None:
    for call in (compress, decompress):
        with pytest.raises(KafkaError) as caught:
            call(6, b"x")
        assert caught.value.code is ErrorCode.unsupported_compression_type


@pytest.mark.parametrize("committed", [True, False])
def test_markers_round_trip(committed: bool) -> None:
    data = encode_marker(
        committed=committed, producer_id=4, producer_epoch=2, coordinator_epoch=7, timestamp=NOW
    )
    header = b.parse_header(data)
    assert header.is_control
    assert header.is_transactional
    assert decode_marker(data) == (committed, 7, NOW)
