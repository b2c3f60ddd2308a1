"""The hand-made encoding of append requests is what protobuf makes of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.links.storage_messages import AppendBatches
from barnabas.messages.storage_pb2 import AppendFrame, AppendRequest, PartitionAppend
from barnabas.rpc.append_frames import encode_append_frame

heads = st.builds(
    AppendRequest,
    acks=st.integers(-1, 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    traceparent=st.sampled_from(["", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"]),
)
partitions = st.builds(
    PartitionAppend,
    topic_id=st.binary(min_size=16, max_size=16),
    partition=st.integers(0, 2**31 - 1),
    leader_epoch=st.integers(-1, 9),
)
records = st.binary(max_size=20) | st.integers(100, 20_000).map(bytes)
requests = st.tuples(
    st.integers(0, 2**64 - 1), heads, st.lists(st.tuples(partitions, records), max_size=4), st.booleans()
)


@given(st.lists(requests, max_size=4))
def test_a_frame_reads_back(
    wanted: list[tuple[int, AppendRequest, list[tuple[PartitionAppend, bytes]], bool]],
) -> None:
    expected = AppendFrame()
    sent: list[AppendRequest | AppendBatches] = []
    for correlation_id, head, parts, beside in wanted:
        whole = AppendRequest()
        whole.CopyFrom(head)
        whole.correlation_id = correlation_id
        batches = AppendBatches(head)
        batches.correlation_id = correlation_id
        for part, data in parts:
            batches.add(part, data)
            whole.partitions.add().CopyFrom(part)
            whole.partitions[-1].records = data
        expected.requests.append(whole)
        sent.append(batches if beside else whole)
    assert AppendFrame.FromString(encode_append_frame(sent)) == expected
