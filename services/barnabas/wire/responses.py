"""Encoding responses: a body as plain data, in whatever version the client asked for.

A handler answers with nested dicts and lists whose keys are the field names of kio's schemas, of any version.
`encode_response` takes the fields that the requested version has and leaves out the others, so one handler serves
all versions. A field that is not given takes the schema's default, or the empty value of its type.

Durations (`throttle_time` and the like) are given in milliseconds, UUIDs as 16 bytes, error codes as int.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import struct
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from barnabas.wire.schema import API_VERSIONS_KEY, is_flexible, response_schema

Body = Mapping[str, Any]
"""A response body: field name to value."""

_HEADER: Final = struct.Struct(">ii")
_FLEXIBLE_HEADER: Final = struct.Struct(">iib")
_CORRELATION_ID_BYTES: Final = 4
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)

_EMPTY_VALUES: Final[dict[str, Any]] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"), 0),
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "bool": False,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "datetime_i64": _EPOCH,
}

_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "error_code": ErrorCode,
    "timedelta_i32": lambda milliseconds: milliseconds * _MILLISECOND,
    "timedelta_i64": lambda milliseconds: milliseconds * _MILLISECOND,
    "datetime_i64": lambda ms: None if ms is None or ms == -1 else _EPOCH + ms * _MILLISECOND,
    "uuid": lambda value: uuid.UUID(bytes=value) if value else None,
}


def encode_response(api_key: int, version: int, correlation_id: int, body: Body) -> bytes:
    """The whole frame, length included, for a response `body` in `version`."""
    build, write = _codec(api_key, version)
    with io.BytesIO() as buffer:
        write(buffer, build(body))
        payload = buffer.getvalue()
    return response_header(api_key, version, correlation_id, len(payload)) + payload


def response_header(api_key: int, version: int, correlation_id: int, payload_bytes: int) -> bytes:
    """The length field and the response header in front of a payload of `payload_bytes`.

    ApiVersions always has header version 0, so that a client that does not know the broker can read it (KIP-511).
    """
    if api_key != API_VERSIONS_KEY and is_flexible(api_key, version):
        return _FLEXIBLE_HEADER.pack(_CORRELATION_ID_BYTES + 1 + payload_bytes, correlation_id, 0)
    return _HEADER.pack(_CORRELATION_ID_BYTES + payload_bytes, correlation_id)


@functools.cache
def _codec(api_key: int, version: int) -> tuple[Callable[[Body], Any], Callable[[Any, Any], None]]:
    schema: Any = response_schema(api_key, version)
    return body_codec(schema)


@functools.cache
def body_codec(schema: Any) -> tuple[Callable[[Body], Any], Callable[[Any, Any], None]]:
    """What makes an instance of a structure of a response from plain data, and what writes that."""
    return _builder(schema), entity_writer(schema)


@functools.cache
def _builder(schema: Any) -> Callable[[Body], Any]:
    """A function that makes an instance of the kio dataclass `schema` from plain data."""
    plan = [(field.name, field.convert, field.default) for field in field_plans(schema)]

    def build(body: Body) -> Any:
        values = {}
        for name, convert, default in plan:
            value = body.get(name, _ABSENT)
            if value is not _ABSENT:
                values[name] = convert(value) if convert else value
            elif default is not _ABSENT:
                values[name] = default
        return schema(**values)

    return build


_ABSENT: Final = object()


class FieldPlan(NamedTuple):
    """What becomes of one field of plain data."""

    name: str
    kind: Any
    """The type of the field, or of the items of an array."""
    is_array: bool
    convert: Callable[[Any], Any] | None
    default: Any
    """The value when none is given; the schema's own where it has one."""


def field_plans(schema: Any) -> list[FieldPlan]:
    """The fields of a structure, in the order of the schema."""
    hints = typing.get_type_hints(schema, include_extras=False)
    plans: list[FieldPlan] = []
    for field in dataclasses.fields(schema):
        kind, is_array, is_nullable = _unwrap(hints[field.name])
        kafka_type = field.metadata.get("kafka_type")
        element = _CONVERSIONS.get(kafka_type) if kafka_type else _builder(kind)
        convert = _array_of(element) if is_array else _nullable(element)
        has_default = field.default is not dataclasses.MISSING
        if has_default:
            default = _ABSENT
        elif is_array:
            default = ()
        else:
            default = None if is_nullable else _empty_value(kafka_type, kind)
        plans.append(FieldPlan(field.name, kind, is_array, convert, default))
    return plans


def _empty_value(kafka_type: str | None, kind: Any) -> Any:
    return _builder(kind)({}) if kafka_type is None else _EMPTY_VALUES[kafka_type]


def _array_of(element: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if element is None:
        return lambda values: None if values is None else tuple(values)
    return lambda values: None if values is None else tuple(map(element, values))


def _nullable(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _unwrap(hint: Any) -> tuple[Any, bool, bool]:
    """(element type, is it an array, may it be null) of a kio type hint such as `tuple[X, ...] | None`."""
    is_nullable = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
        is_nullable = True
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True, is_nullable
    return hint, False, is_nullable
