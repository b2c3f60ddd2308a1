"""The hand-made encoding of fetch results is what protobuf makes of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.links.storage_messages import PartitionFetched
from barnabas.messages.storage_pb2 import (
    AbortedTransaction,
    EpochEndOffset,
    FetchResult,
    FetchResultFrame,
    PartitionFetchResult,
)
from barnabas.rpc.fetch_frames import encode_fetch_results, encode_result

int64 = st.integers(-1, 2**63 - 1)

fields = st.builds(
    PartitionFetchResult,
    error_code=st.integers(-1, 200),
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    aborted_transactions=st.lists(
        st.builds(AbortedTransaction, producer_id=int64, first_offset=int64), max_size=3
    ),
    diverging=st.none() | st.builds(EpochEndOffset, leader_epoch=st.integers(-1, 9), end_offset=int64),
)
answers = st.builds(PartitionFetched, fields, st.binary(max_size=20) | st.binary(min_size=100, max_size=300))
results = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.lists(answers, max_size=4)), max_size=4)


@given(results)
def test_a_frame_reads_back(wanted: list[tuple[int, list[PartitionFetched]]]) -> None:
    encoded = [encode_result(correlation_id, parts) for correlation_id, parts in wanted]
    assert all(sum(map(len, each.pieces)) == each.size for each in encoded)
    expected = FetchResultFrame()
    for correlation_id, parts in wanted:
        result = FetchResult(correlation_id=correlation_id)
        for part in parts:
            result.partitions.add().CopyFrom(part.fields)
            result.partitions[-1].records = part.records
        expected.results.append(result)
    assert FetchResultFrame.FromString(encode_fetch_results(encoded)) == expected
