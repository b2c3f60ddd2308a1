"""A fetch frame walked by hand says what protobuf reads from it, and copies no large records."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from barnabas.links.storage_messages import FetchedResult
from barnabas.messages.storage_pb2 import (
    AbortedTransaction,
    EpochEndOffset,
    FetchResult,
    FetchResultFrame,
    PartitionFetchResult,
)
from barnabas.rpc.fetch_frames import decode_fetch_results
from barnabas.rpc.records_beside import WALKED_BYTES_MIN

int64 = st.integers(-1, 2**63 - 1)
small_records = st.binary(max_size=20)
large_records = st.integers(WALKED_BYTES_MIN, WALKED_BYTES_MIN + 200).map(bytes)

partitions = st.builds(
    PartitionFetchResult,
    error_code=st.integers(-1, 200),
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    records=small_records | large_records,
    aborted_transactions=st.lists(
        st.builds(AbortedTransaction, producer_id=int64, first_offset=int64), max_size=3
    ),
    diverging=st.none() | st.builds(EpochEndOffset, leader_epoch=st.integers(-1, 9), end_offset=int64),
)
results = st.builds(
    FetchResult, correlation_id=st.integers(0, 2**64 - 1), partitions=st.lists(partitions, max_size=4)
)
frames = st.builds(FetchResultFrame, results=st.lists(results, max_size=4))


def put_together(fetched: FetchedResult) -> FetchResult:
    result = FetchResult(correlation_id=fetched.correlation_id)
    for fields, records in fetched.partitions:
        part = result.partitions.add()
        part.CopyFrom(fields)
        part.records = bytes(records)
    return result


@given(frames)
def test_reads_what_protobuf_wrote(frame: FetchResultFrame) -> None:
    decoded = decode_fetch_results(frame.SerializeToString())
    assert FetchResultFrame(results=[put_together(result) for result in decoded]) == frame


def test_large_records_stay_where_they_are() -> None:
    part = PartitionFetchResult(high_watermark=7, records=bytes(WALKED_BYTES_MIN))
    encoded = FetchResultFrame(results=[FetchResult(partitions=[part])]).SerializeToString()
    ((fields, records),) = decode_fetch_results(encoded)[0].partitions
    assert isinstance(records, memoryview)
    assert records.obj is encoded
    assert (fields.high_watermark, fields.records) == (7, b"")


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_read(data: bytes) -> None:
    try:
        decode_fetch_results(data)
    except (ValueError, IndexError, DecodeError):
        return


def test_a_result_that_is_cut_is_refused() -> None:
    part = PartitionFetchResult(records=bytes(WALKED_BYTES_MIN))
    encoded = FetchResultFrame(results=[FetchResult(partitions=[part])]).SerializeToString()
    with pytest.raises(ValueError, match="does not fit"):
        decode_fetch_results(encoded[:-1])
