"""What the one pass reads of a Fetch request is what the general way reads, or it says None."""

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

from barnabas.wire.plain_fetch import ITEMS_MAX, PlainFetch, WantedFields, read_plain_fetch
from barnabas.wire.requests import MalformedRequest, read_body, read_header

FETCH = 1
VERSIONS = range(4, 19)
SESSIONS_FROM, EPOCHS_FROM, RACK_FROM, FLEXIBLE_FROM, IDS_FROM = 7, 9, 11, 12, 13

int32s = st.integers(-(2**31), 2**31 - 1)
names = st.sampled_from(["", "t", "topic", "é" * 60, "n" * 126, "n" * 127, "n" * 300])
partitions = st.lists(st.tuples(int32s, st.integers(-1, 2**62), int32s, int32s, int32s), max_size=140)
topics = st.lists(st.tuples(names, partitions), max_size=4)


def frame_of(
    version: int,
    wanted: list[tuple[str, list[tuple[int, int, int, int, int]]]],
    *,
    client_id: bytes | None = b"client",
    limits: tuple[int, int, int, int] = (500, 1, 1 << 20, 0),
    session: tuple[int, int] = (0, -1),
    forgotten: str | None = None,
    rack: str = "",
    tagged: bool = False,
) -> bytes:
    """A Fetch request as kio writes it; `tagged` has one with a tagged field, where the version has any."""
    schema: Any = load_request_schema(FETCH, version)
    module = sys.modules[schema.__module__]
    max_wait_ms, min_bytes, max_bytes, isolation_level = limits
    fields: dict[str, Any] = {"max_wait": datetime.timedelta(milliseconds=max_wait_ms)}
    fields |= {"min_bytes": min_bytes, "max_bytes": max_bytes, "isolation_level": isolation_level}
    if version < 15:
        fields["replica_id"] = -1
    if version >= SESSIONS_FROM:
        fields["session_id"], fields["session_epoch"] = session
        fields["forgotten_topics_data"] = (
            () if forgotten is None else (module.ForgottenTopic(**key(version, forgotten), partitions=(3,)),)
        )
    if version >= RACK_FROM:
        fields["rack_id"] = rack
    if tagged:
        fields["cluster_id"] = "mine"
    fields["topics"] = tuple(
        module.FetchTopic(
            **key(version, name), partitions=tuple(_partition(module, version, row) for row in rows)
        )
        for name, rows in wanted
    )
    body = io.BytesIO()
    entity_writer(schema)(body, schema(**fields))
    size = -1 if client_id is None else len(client_id)
    tags = b"\0" if version >= FLEXIBLE_FROM else b""
    return struct.pack(">hhih", FETCH, version, 77, size) + (client_id or b"") + tags + body.getvalue()


def key(version: int, name: str) -> dict[str, Any]:
    return {"topic_id": uuid.uuid5(uuid.NAMESPACE_DNS, name)} if version >= IDS_FROM else {"topic": name}


def _partition(module: Any, version: int, row: tuple[int, int, int, int, int]) -> Any:
    index, offset, max_bytes, epoch, last_epoch = row
    fields = {"partition": index, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    if version >= 5:
        fields["log_start_offset"] = -1
    if version >= EPOCHS_FROM:
        fields["current_leader_epoch"] = epoch
    if version >= FLEXIBLE_FROM:
        fields["last_fetched_epoch"] = last_epoch
    return module.FetchPartition(**fields)


def read_generally(frame: bytes) -> PlainFetch:
    header = read_header(frame)
    body = read_body(frame, header)
    wanted: list[WantedFields] = []
    for topic in body.topics:
        by_id = header.api_version >= IDS_FROM
        name = (topic.topic_id.bytes if topic.topic_id else bytes(16)) if by_id else topic.topic
        for row in topic.partitions:
            epochs = getattr(row, "current_leader_epoch", -1), getattr(row, "last_fetched_epoch", -1)
            wanted.append((name, row.partition, row.fetch_offset, row.partition_max_bytes, *epochs))
    assert not getattr(body, "forgotten_topics_data", ())
    return PlainFetch(
        header.api_version,
        header.correlation_id,
        round(body.max_wait.total_seconds() * 1000),
        body.min_bytes,
        body.max_bytes,
        body.isolation_level,
        getattr(body, "session_id", 0),
        getattr(body, "session_epoch", -1),
        wanted,
        getattr(body, "rack_id", "").encode(),
    )


@given(
    st.sampled_from(VERSIONS),
    topics,
    st.tuples(int32s, int32s, int32s, st.integers(-128, 127)),
    st.tuples(int32s, int32s),
    st.sampled_from(["", "east", "r" * 200]),
)
def test_it_reads_what_the_general_way_reads(
    version: int,
    wanted: list[tuple[str, list[tuple[int, int, int, int, int]]]],
    limits: tuple[int, int, int, int],
    session: tuple[int, int],
    rack: str,
) -> None:
    frame = frame_of(version, wanted, limits=limits, session=session, rack=rack)
    plain = read_plain_fetch(frame)
    assert plain is not None
    assert plain == read_generally(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_frame_is_not_plain(version: int) -> None:
    rows = [(0, 5, 100, 1, 1), (1, 6, 100, 1, 1)]
    frame = frame_of(version, [("topic", rows), ("other", rows)], rack="east")
    assert read_plain_fetch(frame) is not None
    for end in range(len(frame)):
        assert read_plain_fetch(frame[:end]) is None


@given(st.sampled_from(VERSIONS), st.data())
def test_a_damaged_frame_is_read_alike_or_left_to_the_general_way(version: int, data: st.DataObject) -> None:
    rows = [(0, 5, 100, 1, 1), (1, 6, 100, 1, 1)]
    frame = bytearray(frame_of(version, [("topic", rows), ("other", rows)], rack="east"))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(10, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
    plain = read_plain_fetch(bytes(frame))
    if plain is None:
        return
    try:
        general = read_generally(bytes(frame))
    except MalformedRequest as malformed:
        refusal = str(malformed)
    else:
        assert plain == general
        return
    # Of racks and client ids only the length is looked at.
    assert "UTF-8" in refusal or "codec" in refusal


@pytest.mark.parametrize(
    "frame",
    [
        *(frame_of(version, [("topic", [])], forgotten="gone") for version in range(7, 19)),
        *(frame_of(version, [("topic", [])], tagged=True) for version in range(12, 19)),
        frame_of(12, [("topic", [])])[:16] + b"\x01\x00\x00" + frame_of(12, [("topic", [])])[17:],
        struct.pack(">hhih", 0, 12, 77, 0) + bytes(40),
        struct.pack(">hhih", 1, 3, 77, 0) + bytes(40),
        struct.pack(">hhih", 1, 19, 77, 0) + bytes(40),
        struct.pack(">hhih", 1, 12, 77, -2) + bytes(40),
        b"",
    ],
    ids=lambda frame: f"{frame[:4].hex()}-{len(frame)}",
)
def test_what_is_not_plain_is_left_alone(frame: bytes) -> None:
    assert read_plain_fetch(frame) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_after_the_request_are_ignored_as_in_the_general_way(version: int) -> None:
    frame = frame_of(version, [("topic", [(0, 5, 100, 1, 1)])])
    assert read_plain_fetch(frame + b"abc") == read_plain_fetch(frame) == read_generally(frame + b"abc")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_without_an_id_is_plain_too(version: int) -> None:
    frame = frame_of(version, [("topic", [(0, 5, 100, 1, 1)])], client_id=None)
    assert read_plain_fetch(frame) == read_generally(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_many_items_is_not_plain(version: int) -> None:
    row = (0, 5, 100, 1, 1)
    half = ITEMS_MAX // 2
    for few in (
        [("topic", [row] * (ITEMS_MAX - 1))],
        [("", [])] * ITEMS_MAX,
        [("t", [row] * (half - 1))] * 2,
    ):
        assert read_plain_fetch(frame_of(version, few)) is not None
    for many in ([("topic", [row] * ITEMS_MAX)], [("", [])] * (ITEMS_MAX + 1), [("t", [row] * half)] * 2):
        assert read_plain_fetch(frame_of(version, many)) is None
