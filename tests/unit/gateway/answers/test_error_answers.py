"""Error answers: for every API, version and code they encode, and repeat exactly what was asked for."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader

from barnabas.gateway.answers.with_error import error_answer, top_error_answer
from barnabas.kernel.errors import ErrorCode
from barnabas.wire.responses import encode_response
from barnabas.wire.schema import api_name, is_flexible, response_schema, version_range

PRODUCE, FETCH, OFFSET_FETCH, DESCRIBE_LOG_DIRS = 0, 1, 9, 35
ERRORS = [code for code in ErrorCode if code is not ErrorCode.none]
EVERY_VERSION = [
    (key, version)
    for key in sorted(api_key_map)
    for version in range(version_range(key)[0], version_range(key)[1] + 1)
]
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    **{f"int{bits}": st.integers(0, 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
    "records": st.none() | st.binary(max_size=8),
    "bool": st.booleans(),
    "uuid": st.none() | st.uuids(),
    "error_code": st.just(ErrorCode.none),
    "timedelta_i32": st.just(datetime.timedelta(seconds=1)),
    "timedelta_i64": st.just(datetime.timedelta(seconds=1)),
    "datetime_i64": st.just(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)),
}


def entities(schema: Any) -> st.SearchStrategy[Any]:
    """Any instance of a kio schema."""
    hints = typing.get_type_hints(schema)
    return st.builds(
        schema, **{field.name: values(field, hints[field.name]) for field in dataclasses.fields(schema)}
    )


def values(field: Any, hint: Any) -> st.SearchStrategy[Any]:
    is_nullable, is_array = False, False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
        is_nullable = True
    if typing.get_origin(hint) is tuple:
        hint, is_array = typing.get_args(hint)[0], True
    kafka_type = field.metadata.get("kafka_type")
    strategy = PRIMITIVES[kafka_type] if kafka_type else entities(hint)
    if is_array:
        strategy = st.lists(strategy, max_size=3).map(tuple)
    return st.none() | strategy if is_nullable else strategy


def decoded(api_key: int, version: int, frame: bytes) -> Any:
    offset = 9 if api_key != 18 and is_flexible(api_key, version) else 8
    answer, size = entity_reader(response_schema(api_key, version))(frame, offset)
    assert offset + size == len(frame)
    return answer


def codes_in(answer: Any) -> Iterator[ErrorCode]:
    """Every error code anywhere in the answer."""
    if isinstance(answer, tuple):
        for item in answer:
            yield from codes_in(item)
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        if name in ("error_code", "partition_error_code"):
            yield ErrorCode(value)
        else:
            yield from codes_in(value)


@pytest.mark.parametrize(
    ("api_key", "version"),
    EVERY_VERSION,
    ids=[f"{api_name(key)}-{version}" for key, version in EVERY_VERSION],
)
def test_every_answer_encodes_and_carries_the_code_everywhere(api_key: int, version: int) -> None:
    @settings(max_examples=6)
    @given(asked=entities(load_request_schema(api_key, version)), code=st.sampled_from(ERRORS))
    def check(asked: Any, code: ErrorCode) -> None:
        body = error_answer(api_key, version, asked, code, "why")
        if body is None:
            assert api_key == PRODUCE
            assert asked.acks == 0
            return
        answer = decoded(api_key, version, encode_response(api_key, version, 7, body))
        assert set(codes_in(answer)) <= {code}
        if "error_code" in response_schema(api_key, version).__dataclass_fields__:
            assert answer.error_code == code
        assert len(list(codes_in(answer))) >= places_asked_for(api_key, asked)

    check()


def places_asked_for(api_key: int, asked: Any) -> int:
    """At least how many codes the answer must hold: one for each partition (or topic, or group) that was named."""
    if api_key == OFFSET_FETCH and hasattr(asked, "groups"):
        return len(asked.groups)
    if "error_code" in response_schema(api_key, version_of(asked)).__dataclass_fields__:
        return 1
    count = 0
    for field in (
        "topic_data",
        "topics",
        "groups",
        "group_ids",
        "resources",
        "coordinator_keys",
        "topic_names",
    ):
        for item in getattr(asked, field, None) or ():
            inner = [
                getattr(item, name)
                for name in ("partition_data", "partitions", "partition_indexes")
                if isinstance(getattr(item, name, None), tuple)
            ]
            count += len(inner[0]) if inner else 1
    return 0 if api_key == DESCRIBE_LOG_DIRS else count


def version_of(asked: Any) -> int:
    return int(asked.__version__)


def partitions_of(body: Any, names: str) -> list[tuple[Any, list[int]]]:
    rows, topic, inner, index = names.split()
    return [
        (
            getattr(row, topic),
            [part if index == "-" else getattr(part, index) for part in getattr(row, inner)],
        )
        for row in getattr(body, rows) or ()
    ]


SAME_PARTITIONS = [
    # api, versions, in the request: topics, name, partitions, index; in the answer: the same
    (0, range(3, 13), "topic_data name partition_data index", "responses name partition_responses index"),
    (
        0,
        range(13, 14),
        "topic_data topic_id partition_data index",
        "responses topic_id partition_responses index",
    ),
    (1, range(4, 13), "topics topic partitions partition", "responses topic partitions partition_index"),
    (2, range(1, 12), "topics name partitions partition_index", "topics name partitions partition_index"),
    (8, range(2, 10), "topics name partitions partition_index", "topics name partitions partition_index"),
    (
        8,
        range(10, 11),
        "topics topic_id partitions partition_index",
        "topics topic_id partitions partition_index",
    ),
    (9, range(1, 2), "topics name partition_indexes -", "topics name partitions partition_index"),
    (21, range(3), "topics name partitions partition_index", "topics name partitions partition_index"),
    (23, range(2, 5), "topics topic partitions partition", "topics topic partitions partition"),
    (
        24,
        range(4),
        "v3_and_below_topics name partitions -",
        "results_by_topic_v3_and_below name results_by_partition partition_index",
    ),
    (28, range(6), "topics name partitions partition_index", "topics name partitions partition_index"),
    (
        43,
        range(3),
        "topic_partitions topic partitions -",
        "replica_election_results topic partition_result partition_id",
    ),
    (45, range(2), "topics name partitions partition_index", "responses name partitions partition_index"),
    (61, range(1), "topics name partition_indexes -", "topics name partitions partition_index"),
    (83, range(1), "topics topic_id partitions partition", "results topic_id partitions partition"),
]


@pytest.mark.parametrize("shape", SAME_PARTITIONS, ids=lambda shape: f"{api_name(shape[0])}-{shape[1].start}")
def test_the_same_topics_and_partitions_in_the_same_order(shape: Any) -> None:
    api_key, versions, asked_names, answer_names = shape

    @settings(max_examples=20)
    @given(st.data())
    def check(data: Any) -> None:
        version = data.draw(st.sampled_from(versions))
        asked = data.draw(
            entities(load_request_schema(api_key, version)).filter(lambda body: getattr(body, "acks", 1))
        )
        body = error_answer(api_key, version, asked, ErrorCode.not_leader_or_follower)
        assert body is not None
        answer = decoded(api_key, version, encode_response(api_key, version, 7, body))
        assert partitions_of(answer, answer_names) == partitions_of(asked, asked_names)

    check()


@pytest.mark.parametrize(
    ("api_key", "version", "asked", "answer", "key"),
    [
        (20, 5, {"topic_names": ("a", "b")}, "responses", "name"),
        (19, 7, {"topics": ({"name": "a"}, {"name": "b"})}, "topics", "name"),
        (37, 3, {"topics": ({"name": "a"}, {"name": "b"})}, "results", "name"),
        (3, 11, {"topics": ({"name": "a"}, {"name": "b"})}, "topics", "name"),
        (75, 0, {"topics": ({"name": "a"}, {"name": "b"})}, "topics", "name"),
        (10, 6, {"coordinator_keys": ("a", "b")}, "coordinators", "key"),
        (15, 6, {"groups": ("a", "b")}, "groups", "group_id"),
        (42, 2, {"groups_names": ("a", "b")}, "results", "group_id"),
        (69, 1, {"group_ids": ("a", "b")}, "groups", "group_id"),
        (9, 8, {"groups": ({"group_id": "a"}, {"group_id": "b"})}, "groups", "group_id"),
        (32, 4, {"resources": ({"resource_name": "a"}, {"resource_name": "b"})}, "results", "resource_name"),
        (44, 1, {"resources": ({"resource_name": "a"}, {"resource_name": "b"})}, "responses", "resource_name"),
        (65, 0, {"transactional_ids": ("a", "b")}, "transaction_states", "transactional_id"),
        (51, 0, {"deletions": ({"name": "a"}, {"name": "a"}), "upsertions": ({"name": "b"},)}, "results", "user"),
    ],
)  # fmt: skip
def test_each_name_asked_for_has_its_row(
    api_key: int, version: int, asked: dict[str, Any], answer: str, key: str
) -> None:
    from barnabas.wire.responses import _builder

    request = _builder(load_request_schema(api_key, version))(asked)
    body = error_answer(api_key, version, request, ErrorCode.request_timed_out, "why")
    assert body is not None
    rows = getattr(decoded(api_key, version, encode_response(api_key, version, 7, body)), answer)
    assert [getattr(row, key) for row in rows] == ["a", "b"]
    assert {row.error_code for row in rows} == {ErrorCode.request_timed_out}


def test_a_topic_by_its_id_alone_is_repeated_in_versions_whose_names_cannot_be_null() -> None:
    from barnabas.wire.responses import _builder

    topic_id = uuid.UUID(int=5)
    request = _builder(load_request_schema(3, 10))({"topics": ({"name": None, "topic_id": topic_id.bytes},)})
    body = error_answer(3, 10, request, ErrorCode.unknown_topic_id)
    assert body is not None
    (topic,) = decoded(3, 10, encode_response(3, 10, 7, body)).topics
    assert (topic.name, topic.topic_id, topic.error_code) == ("", topic_id, ErrorCode.unknown_topic_id)


def test_the_values_that_say_that_nothing_was_done() -> None:
    from barnabas.wire.responses import _builder

    asked = {"acks": -1, "topic_data": ({"name": "a", "partition_data": ({"index": 3, "records": b""},)},)}
    request = _builder(load_request_schema(0, 9))(asked)
    body = error_answer(0, 9, request, ErrorCode.not_leader_or_follower, "why")
    assert body is not None
    (topic,) = decoded(0, 9, encode_response(0, 9, 7, body)).responses
    (partition,) = topic.partition_responses
    assert (partition.base_offset, partition.log_start_offset, partition.log_append_time) == (-1, -1, None)
    assert partition.error_message == "why"


def test_without_the_request_only_a_code_for_the_whole_can_be_given() -> None:
    assert top_error_answer(12, 4, ErrorCode.unsupported_version, "") is not None
    assert top_error_answer(8, 8, ErrorCode.unsupported_version, "") is None
