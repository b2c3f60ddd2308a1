"""A frame of replicated records says what protobuf reads from it, both ways, and copies no large records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.links.storage_messages import ReplicaFetched
from barnabas.messages.storage_pb2 import EpochEndOffset, ReplicaRecords, ReplicaRecordsFrame
from barnabas.rpc.records_beside import WALKED_BYTES_MIN
from barnabas.rpc.replication_frames import decode_replica_records, encode_replica_records

int64 = st.integers(-1, 2**63 - 1)
fields = st.builds(
    ReplicaRecords,
    topic_id=st.binary(min_size=16, max_size=16),
    partition=st.integers(0, 100),
    leader_epoch=st.integers(-1, 9),
    fetch_offset=int64,
    error_code=st.integers(-1, 200),
    high_watermark=int64,
    log_start_offset=int64,
    log_end_offset=int64,
    diverging=st.none() | st.builds(EpochEndOffset, leader_epoch=st.integers(-1, 9), end_offset=int64),
)
records = st.binary(max_size=20) | st.integers(WALKED_BYTES_MIN, WALKED_BYTES_MIN + 200).map(bytes)
fetched = st.lists(st.builds(ReplicaFetched, fields, records), max_size=4)


def put_together(partitions: list[ReplicaFetched]) -> ReplicaRecordsFrame:
    frame = ReplicaRecordsFrame()
    for part, data in partitions:
        added = frame.partitions.add()
        added.CopyFrom(part)
        added.records = bytes(data)
    return frame


@given(fetched)
def test_protobuf_reads_what_was_written(partitions: list[ReplicaFetched]) -> None:
    assert ReplicaRecordsFrame.FromString(encode_replica_records(partitions)) == put_together(partitions)


@given(fetched)
def test_reads_what_protobuf_wrote(partitions: list[ReplicaFetched]) -> None:
    frame = put_together(partitions)
    assert put_together(decode_replica_records(frame.SerializeToString())) == frame


def test_large_records_stay_where_they_are() -> None:
    encoded = encode_replica_records([ReplicaFetched(ReplicaRecords(partition=3), bytes(WALKED_BYTES_MIN))])
    ((part, data),) = decode_replica_records(encoded)
    assert isinstance(data, memoryview)
    assert data.obj is encoded
    assert (part.partition, part.records) == (3, b"")
