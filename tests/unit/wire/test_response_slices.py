"""A response that is encoded in slices has the bytes of one that is encoded at once, whatever it holds."""

from __future__ import annotations

import dataclasses
import random
import typing
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

from barnabas.wire.response_slices import Rows, count_rows, encode_in_slices
from barnabas.wire.responses import _unwrap, encode_response
from barnabas.wire.schema import response_schema, version_range

METADATA, OFFSET_COMMIT, DESCRIBE_CONFIGS = 3, 8, 32
RESPONSES = [
    (key, version)
    for key in api_key_map
    for version in range(version_range(key)[0], version_range(key)[1] + 1)
]


def filled(schema: Any, randomness: random.Random) -> dict[str, Any]:
    """A body with something in most fields, and sometimes many rows."""
    hints = typing.get_type_hints(schema)
    return {
        field.name: value(hints[field.name], field.metadata.get("kafka_type"), randomness)
        for field in dataclasses.fields(schema)
        if randomness.random() < 0.9 or field.metadata.get("kafka_type") == "records"
    }


def value(hint: Any, kafka_type: str | None, randomness: random.Random) -> Any:
    kind, is_array, is_nullable = _unwrap(hint)
    if is_nullable and randomness.random() < 0.3:
        return None
    if is_array:
        return [one(kind, kafka_type, randomness) for _ in range(randomness.choice((0, 1, 4)))]
    return one(kind, kafka_type, randomness)


def one(kind: Any, kafka_type: str | None, randomness: random.Random) -> Any:
    match kafka_type:
        case None:
            return filled(kind, randomness)
        case "string":
            return "é" * randomness.choice((0, 1, 100))
        case "bytes" | "records":
            return b"x" * randomness.choice((0, 1, 200))
        case "bool":
            return True
        case "float64":
            return 1.5
        case "uuid":
            return uuid.UUID(int=randomness.getrandbits(127)).bytes
        case "error_code":
            return randomness.choice((ErrorCode.none, ErrorCode.invalid_request))
        case "timedelta_i32" | "timedelta_i64" | "datetime_i64":
            return 7
        case _:
            return randomness.randrange(100)


def in_turn(body: Mapping[str, Any], randomness: random.Random) -> dict[str, Any]:
    """The same body, of which some arrays are made only when it is their turn."""
    made: dict[str, Any] = {}
    for name, value in body.items():
        if isinstance(value, dict):
            made[name] = in_turn(value, randomness)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            items = (in_turn(item, randomness) for item in value)
            made[name] = Rows(len(value), items) if randomness.random() < 0.5 else list(items)
        else:
            made[name] = value
    return made


def codes(body: Mapping[str, Any]) -> Iterator[int]:
    for name, value in body.items():
        if name == "error_code" and value:
            yield int(value)
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict):
                yield from codes(item)


def run(slices: Iterator[int]) -> tuple[list[int], bytes]:
    """The sizes at which it paused, and what it came to."""
    sizes = []
    while True:
        try:
            sizes.append(next(slices))
        except StopIteration as end:
            return sizes, end.value


@pytest.mark.parametrize(("api_key", "version"), RESPONSES, ids=str)
@pytest.mark.parametrize("rows_at_a_time", [1, 3])
def test_bytes_are_those_of_one_piece(api_key: int, version: int, rows_at_a_time: int) -> None:
    randomness = random.Random(api_key * 1_000 + version)
    for _ in range(8):
        body = filled(response_schema(api_key, version), randomness)
        whole = encode_response(api_key, version, 77, body)
        for given in (body, in_turn(body, randomness)):
            slices = encode_in_slices(api_key, version, 77, given, rows_at_a_time, lambda _: None)
            assert run(slices)[1] == whole


@pytest.mark.parametrize("is_made_in_turn", [False, True])
def test_each_structure_is_told_once(is_made_in_turn: bool) -> None:
    randomness, told = random.Random(3), []
    for version in range(2, 10):
        body = filled(response_schema(OFFSET_COMMIT, version), randomness)
        body["topics"] = [filled_topic(randomness) for _ in range(20)]
        told.clear()
        given = in_turn(body, randomness) if is_made_in_turn else body
        run(encode_in_slices(OFFSET_COMMIT, version, 7, given, 3, lambda part: told.extend(codes(part))))
        assert sorted(told) == sorted(codes(body))
        assert told


def filled_topic(randomness: random.Random) -> dict[str, Any]:
    rows = [
        {"partition_index": i, "error_code": randomness.choice((0, 3))}
        for i in range(randomness.randrange(9))
    ]
    return {"name": "t", "partitions": rows}


def test_it_pauses_after_so_many_rows_however_they_are_nested() -> None:
    rows = [{"partition_index": index, "error_code": 0} for index in range(1_000)]
    flat = {"topics": [{"name": "t", "partitions": rows}]}
    nested = {"topics": [{"name": "t", "partitions": rows[:4]} for _ in range(200)]}
    for body, count in ((flat, 1_001), (nested, 1_000)):
        sizes, frame = run(encode_in_slices(OFFSET_COMMIT, 8, 7, body, 50, lambda _: None))
        assert count // 60 <= len(sizes) <= count // 50 + 1
        assert sizes == sorted(sizes)
        assert max(b - a for a, b in zip([0, *sizes], [*sizes, len(frame)], strict=True)) < len(frame) / 10


def test_items_are_made_when_it_is_their_turn() -> None:
    made = 0

    def items() -> Iterator[dict[str, Any]]:
        nonlocal made
        for index in range(1_000):
            made += 1
            yield {"resource_name": f"t{index}", "configs": []}

    slices = encode_in_slices(DESCRIBE_CONFIGS, 4, 7, {"results": Rows(1_000, items())}, 10, lambda _: None)
    next(slices)
    assert made <= 10


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ({}, 0),
        ({"error_code": 3, "members": [1, 2]}, 2),
        ({"topics": [{"partitions": [{}, {}]}, {"partitions": ({},)}], "brokers": [{}]}, 6),
    ],
)
def test_rows_are_counted_at_any_depth(body: dict[str, Any], rows: int) -> None:
    assert count_rows(body, 100) == rows
    assert count_rows({"topics": [body] * 50}, 20) > 20


def test_rows_still_to_be_made_are_many() -> None:
    assert count_rows({"topics": [{"partitions": Rows(0, ())}]}, 1_000_000) > 1_000_000
