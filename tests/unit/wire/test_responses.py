"""Response encoders: the hand-written ones equal kio's byte by byte; plain bodies fit every version."""

from __future__ import annotations

import datetime
import io
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from barnabas.wire.fetch import FetchedPartition, encode_fetch_response
from barnabas.wire.produce import LeaderEndpoint, ProducedPartition, encode_produce_response
from barnabas.wire.responses import encode_response
from barnabas.wire.schema import response_schema, version_range

EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
TOPIC_ID = uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)

int32s = st.integers(0, 2**31 - 1)
int64s = st.integers(-1, 2**40)
errors = st.sampled_from([int(code) for code in ErrorCode])
messages = st.none() | st.text(max_size=200)
leaders = st.none() | st.tuples(int32s, int32s)
record_errors = st.lists(st.tuples(int32s, messages), max_size=3)
produced = st.builds(
    ProducedPartition, int32s, errors, int64s, int64s, int64s, messages, leaders, record_errors
)
fetched = st.builds(
    FetchedPartition,
    int32s,
    errors,
    int64s,
    int64s,
    int64s,
    st.binary(max_size=300),
    st.none() | st.lists(st.tuples(int64s, int64s), max_size=3),
    st.none() | st.tuples(int32s, int64s),
    leaders,
    int32s,
)
endpoints = st.lists(
    st.builds(LeaderEndpoint, int32s, st.text(max_size=50), int32s, st.none() | st.text(max_size=5)),
    max_size=3,
)


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def known(schema: type[Any], **values: Any) -> Any:
    return schema(**{name: value for name, value in values.items() if name in schema.__dataclass_fields__})


def payload_of(frame: bytes, *, flexible: bool) -> bytes:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    return frame[9:] if flexible else frame[8:]


def append_time(ms: int) -> datetime.datetime | None:
    return None if ms == -1 else EPOCH + ms * datetime.timedelta(milliseconds=1)


def kio_produce(version: int, partitions: list[ProducedPartition], nodes: list[LeaderEndpoint]) -> bytes:
    module: Any = load_payload_module(0, version, EntityType.response)

    def partition(p: ProducedPartition) -> Any:
        leader = None
        if version >= 10 and p.current_leader is not None:
            leader = module.LeaderIdAndEpoch(leader_id=p.current_leader[0], leader_epoch=p.current_leader[1])
        return known(
            module.PartitionProduceResponse,
            index=p.partition,
            error_code=ErrorCode(p.error_code),
            base_offset=p.base_offset,
            log_append_time=append_time(p.log_append_time_ms),
            log_start_offset=p.log_start_offset,
            record_errors=tuple(
                module.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why)
                for index, why in (p.record_errors if version >= 8 else ())
            ),
            error_message=p.error_message,
            **({"current_leader": leader} if leader else {}),
        )

    topic = known(
        module.TopicProduceResponse,
        name="flights",
        topic_id=TOPIC_ID,
        partition_responses=tuple(map(partition, partitions)),
    )
    node_values = {}
    if version >= 10:
        node_values["node_endpoints"] = tuple(module.NodeEndpoint(**n._asdict()) for n in nodes)
    return kio_bytes(
        module.ProduceResponse(responses=(topic,), throttle_time=datetime.timedelta(0), **node_values)
    )


@pytest.mark.parametrize("version", range(3, 14))
@given(partitions=st.lists(produced, max_size=3), nodes=endpoints)
def test_produce_response_equals_kio(
    version: int, partitions: list[ProducedPartition], nodes: list[LeaderEndpoint]
) -> None:
    topic = TOPIC_ID.bytes if version >= 13 else "flights"
    frame = encode_produce_response(version, 77, [(topic, partitions)], nodes)
    assert payload_of(frame, flexible=version >= 9) == kio_produce(version, partitions, nodes)


def kio_fetch(version: int, partitions: list[FetchedPartition]) -> bytes:
    module: Any = load_payload_module(1, version, EntityType.response)

    def partition(p: FetchedPartition) -> Any:
        tags: dict[str, Any] = {}
        if version >= 12 and p.diverging_epoch:
            tags["diverging_epoch"] = module.EpochEndOffset(
                epoch=p.diverging_epoch[0], end_offset=p.diverging_epoch[1]
            )
        if version >= 12 and p.current_leader:
            tags["current_leader"] = module.LeaderIdAndEpoch(
                leader_id=p.current_leader[0], leader_epoch=p.current_leader[1]
            )
        aborted = p.aborted_transactions
        return known(
            module.PartitionData,
            partition_index=p.partition,
            error_code=ErrorCode(p.error_code),
            high_watermark=p.high_watermark,
            last_stable_offset=p.last_stable_offset,
            log_start_offset=p.log_start_offset,
            aborted_transactions=None
            if aborted is None
            else tuple(module.AbortedTransaction(producer_id=a, first_offset=b) for a, b in aborted),
            preferred_read_replica=p.preferred_read_replica,
            records=p.records,
            **tags,
        )

    topic = known(
        module.FetchableTopicResponse,
        topic="flights",
        topic_id=TOPIC_ID,
        partitions=tuple(map(partition, partitions)),
    )
    return kio_bytes(
        known(
            module.FetchResponse,
            throttle_time=datetime.timedelta(0),
            error_code=ErrorCode.none,
            session_id=9,
            responses=(topic,),
        )
    )


@pytest.mark.parametrize("version", range(4, 19))
@given(partitions=st.lists(fetched, max_size=3))
def test_fetch_response_equals_kio(version: int, partitions: list[FetchedPartition]) -> None:
    topic = TOPIC_ID.bytes if version >= 13 else "flights"
    frame = b"".join(encode_fetch_response(version, 77, [(topic, partitions)], session_id=9))
    assert payload_of(frame, flexible=version >= 12) == kio_fetch(version, partitions)


@pytest.mark.parametrize("api_key", api_key_map)
def test_an_empty_body_encodes_and_decodes_in_every_version(api_key: int) -> None:
    low, high = version_range(api_key)
    for version in range(low, high + 1):
        schema = response_schema(api_key, version)
        frame = encode_response(api_key, version, 77, {})
        payload = payload_of(frame, flexible=schema.__flexible__ and api_key != 18)
        _, size = entity_reader(schema)(payload, 0)
        assert size == len(payload)
