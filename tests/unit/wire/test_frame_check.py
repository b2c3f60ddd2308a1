"""The walk over a frame ends exactly where kio's reader does, for every request of every API and version."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import typing
import uuid
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from barnabas.wire.frame_check import OutOfBounds, _request_type, _unwrap, _Walk, checked_frame
from barnabas.wire.schema import version_range

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def filled(schema: Any, randomness: random.Random) -> Any:
    """An instance of a kio schema with something in every field, or null where that is allowed and luck has it."""
    hints = typing.get_type_hints(schema)
    return schema(
        **{
            field.name: value(hints[field.name], field.metadata.get("kafka_type"), randomness)
            for field in dataclasses.fields(schema)
        }
    )


def value(hint: Any, kafka_type: str | None, randomness: random.Random) -> Any:
    kind, is_array, is_nullable = _unwrap(hint)
    if is_nullable and randomness.random() < 0.3:
        return None
    if is_array:
        return tuple(one(kind, kafka_type, randomness) for _ in range(randomness.choice((0, 1, 2, 5))))
    return one(kind, kafka_type, randomness)


def one(kind: Any, kafka_type: str | None, randomness: random.Random) -> Any:
    match kafka_type:
        case None:
            return filled(kind, randomness)
        case "string":
            return "é" * randomness.choice((0, 1, 100))
        case "bytes" | "records":
            return b"x" * randomness.choice((0, 1, 200, 20_000))
        case "bool":
            return True
        case "float64":
            return 1.5
        case "uuid":
            return uuid.UUID(int=randomness.getrandbits(127))
        case "error_code":
            return ErrorCode.none
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=7)
        case "datetime_i64":
            return _EPOCH
        case _:
            return randomness.randrange(100)


REQUESTS = [
    (key, version)
    for key in api_key_map
    for version in range(version_range(key)[0], version_range(key)[1] + 1)
]


@pytest.mark.parametrize(("api_key", "version"), REQUESTS, ids=str)
def test_walk_agrees_with_the_reader(api_key: int, version: int) -> None:
    randomness = random.Random(api_key * 1_000 + version)
    schema = load_request_schema(api_key, version)
    for _ in range(5):
        request = filled(schema, randomness)
        buffer = io.BytesIO(b"head")
        buffer.seek(4)
        entity_writer(schema)(buffer, request)
        frame = buffer.getvalue()
        assert _request_type(api_key, version).skip(_Walk(frame), 4) == len(frame)
        assert checked_frame(frame, 4, api_key, version)[0] is frame
        assert entity_reader(schema)(frame, 4) == (request, len(frame) - 4)
        if len(frame) > 4:
            with pytest.raises(OutOfBounds):
                checked_frame(frame[:-1], 4, api_key, version)
        # What follows the end is not looked at.
        assert checked_frame(frame + b"more", 4, api_key, version)[0] == frame + b"more"
