"""What the one pass reads of a Produce request is what the general way reads, or it says None."""

from __future__ import annotations

import datetime
import io
import struct
import sys
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_writer

from barnabas.wire.plain_produce import PlainProduce, encode_plain_answer, read_plain_produce
from barnabas.wire.produce import ProducedPartition, encode_produce_response
from barnabas.wire.requests import MalformedRequest, read_body, read_header

PRODUCE = 0
VERSIONS = range(3, 14)
PLAIN_VERSIONS = range(9, 14)
IDS_FROM = 13

records = st.sampled_from([1, 126, 127, 128, 300, 16_383, 16_384, 70_000]).map(lambda size: b"r" * size)
names = st.sampled_from(["t", "topic", "é" * 60, "n" * 126, "n" * 127, "n" * 200])


def frame_of(
    version: int,
    topic_data: list[tuple[str, list[tuple[int, bytes | None]]]],
    *,
    client_id: bytes | None = b"client",
    transactional_id: str | None = None,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> bytes:
    """A Produce request as kio writes it."""
    schema = load_request_schema(PRODUCE, version)
    body = io.BytesIO()
    entity_writer(schema)(
        body,
        schema(
            transactional_id=transactional_id,
            acks=acks,
            timeout=datetime.timedelta(milliseconds=timeout_ms),
            topic_data=tuple(_topic(schema, version, name, partitions) for name, partitions in topic_data),
        ),
    )
    size = -1 if client_id is None else len(client_id)
    tags = b"\0" if version >= PLAIN_VERSIONS.start else b""
    return struct.pack(">hhih", PRODUCE, version, 77, size) + (client_id or b"") + tags + body.getvalue()


def _topic(schema: Any, version: int, name: str, partitions: list[tuple[int, bytes | None]]) -> Any:
    module = sys.modules[schema.__module__]
    data = tuple(module.PartitionProduceData(index=index, records=held) for index, held in partitions)
    key = {"topic_id": uuid.uuid5(uuid.NAMESPACE_DNS, name)} if version >= IDS_FROM else {"name": name}
    return module.TopicProduceData(**key, partition_data=data)


def read_generally(frame: bytes) -> PlainProduce:
    header = read_header(frame)
    body = read_body(frame, header)
    (topic,) = body.topic_data
    (data,) = topic.partition_data
    by_id = header.api_version >= IDS_FROM
    return (
        header.api_version,
        header.correlation_id,
        body.transactional_id,
        body.acks,
        body.timeout // datetime.timedelta(milliseconds=1),
        (topic.topic_id.bytes if topic.topic_id else bytes(16)) if by_id else topic.name.encode(),
        data.index,
        memoryview(data.records),
    )


@given(
    st.sampled_from(PLAIN_VERSIONS),
    names,
    st.integers(0, 2**31 - 1),
    records,
    st.sampled_from([-1, 0, 1, 7]),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([None, "", "mine", "é" * 63, "i" * 127, "i" * 300]),
)
def test_it_reads_what_the_general_way_reads(
    version: int,
    name: str,
    partition: int,
    held: bytes,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
) -> None:
    frame = frame_of(
        version,
        [(name, [(partition, held)])],
        acks=acks,
        timeout_ms=timeout_ms,
        transactional_id=transactional_id,
    )
    plain = read_plain_produce(frame)
    has_long_name = version < IDS_FROM and len(name.encode()) > 126
    has_long_id = len((transactional_id or "").encode()) > 126
    assert (plain is None) is (has_long_name or has_long_id)
    if plain is not None:
        assert plain == read_generally(frame)


@pytest.mark.parametrize("transactional_id", [None, "mine"])
@pytest.mark.parametrize("version", PLAIN_VERSIONS)
def test_a_cut_frame_is_not_plain(version: int, transactional_id: str | None) -> None:
    frame = frame_of(version, [("topic", [(0, b"r" * 200)])], transactional_id=transactional_id)
    for end in range(len(frame)):
        assert read_plain_produce(frame[:end]) is None


@given(st.sampled_from(PLAIN_VERSIONS), st.sampled_from([None, "mine"]), st.data())
def test_a_damaged_frame_is_read_alike_or_left_to_the_general_way(
    version: int, transactional_id: str | None, data: st.DataObject
) -> None:
    frame = bytearray(frame_of(version, [("topic", [(0, b"r" * 20)])], transactional_id=transactional_id))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(10, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
    plain = read_plain_produce(bytes(frame))
    if plain is None:
        return
    try:
        general = read_generally(bytes(frame))
    except MalformedRequest as malformed:
        refusal = str(malformed)
    else:
        assert plain == general
        return
    # Of names and client ids only the bytes are read.
    assert "UTF-8" in refusal or "codec" in refusal


PLAIN = frame_of(9, [("t", [(0, b"r")])], client_id=None, acks=1, timeout_ms=0)
HEADER, ID_AND_ALL = PLAIN[:10], PLAIN[11:]
ALL_BUT_THE_ID = ID_AND_ALL[1:]
TWO_TOPICS = frame_of(13, [("topic", [(0, b"r")]), ("other", [(0, b"r")])]).replace(
    uuid.uuid5(uuid.NAMESPACE_DNS, "other").bytes, bytes(16)
)
"""The id of the second one begins as a request ends."""
A_REQUEST_IN_THE_ID = frame_of(
    *(9, [("t", [(0, b"r")])]),
    client_id=None,
    transactional_id="i" * 161 + ALL_BUT_THE_ID.decode() + "i" * 110,
)
"""Its length is in two bytes, of which the first alone would be that of what comes before the request in it."""
A_REQUEST_IN_A_TAG = HEADER + bytes([1, 0, len(ALL_BUT_THE_ID) - 1]) + ALL_BUT_THE_ID[1:] + ID_AND_ALL
"""The number of the tagged field is what an id that is null would be, its length the first byte of acks."""


@pytest.mark.parametrize(
    "frame",
    [
        *(frame_of(version, [("topic", [(0, b"r")])]) for version in range(3, 9)),
        *(frame_of(version, [("topic", [(0, None)])]) for version in PLAIN_VERSIONS),
        frame_of(9, [("topic", [])]),
        frame_of(9, []),
        frame_of(9, [("t", [(0, b"r"), (1, b"r")])]),
        frame_of(9, [("t", [(0, b"r")]), ("u", [(0, b"r")])]),
        TWO_TOPICS,
        A_REQUEST_IN_THE_ID,
        A_REQUEST_IN_A_TAG,
        struct.pack(">hhih", 1, 12, 77, 0) + bytes(40),
        b"",
    ],
    ids=lambda frame: frame[:12].hex(),
)
def test_what_is_not_plain_is_left_alone(frame: bytes) -> None:
    assert read_plain_produce(frame) is None


def test_bytes_after_the_request_are_ignored_as_in_the_general_way() -> None:
    frame = frame_of(9, [("topic", [(0, b"r")])])
    assert read_plain_produce(frame + b"abc") == read_plain_produce(frame) == read_generally(frame + b"abc")


def test_a_client_without_an_id_is_plain_too() -> None:
    frame = frame_of(12, [("topic", [(0, b"r")])], client_id=None)
    assert read_plain_produce(frame) == read_generally(frame)


@given(
    st.sampled_from(PLAIN_VERSIONS),
    st.sampled_from(["t", "topic", "é" * 60, "n" * 126]),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.tuples(*[st.integers(-1, 2**63 - 1)] * 3),
)
def test_the_answer_is_that_of_the_general_way(
    version: int, name: str, correlation_id: int, partition: int, placed: tuple[int, int, int]
) -> None:
    by_id = version >= IDS_FROM
    topic = uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes if by_id else name.encode()
    general = [(topic if by_id else name, [ProducedPartition(partition, 0, *placed)])]
    assert encode_plain_answer(version, correlation_id, topic, partition, *placed) == encode_produce_response(
        version, correlation_id, general
    )
