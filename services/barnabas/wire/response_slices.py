"""Encoding a large response in slices, so that whoever encodes it can let others go on in between.

The bytes are those of `encode_response`. A structure with many rows below it is written field by field, and its arrays
row by row; every other one as a whole.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kio.serial._serialize import get_field_writer  # kio writes whole entities only
from kio.serial.writers import write_compact_array_length, write_legacy_array_length
from kio.static.primitive import i32

from barnabas.wire.responses import Body, body_codec, field_plans, response_header
from barnabas.wire.schema import response_schema

_SIZE: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"
_ABSENT: Final = object()
_MANY: Final = 1 << 31


class Rows:
    """An array of a response each item of which is made when it is its turn, and not kept."""

    __slots__ = ("_count", "_items")

    def __init__(self, count: int, items: Iterable[Body]) -> None:
        """`items` has `count` of them, and is gone through once."""
        self._count = count
        self._items = items

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Body]:
        return iter(self._items)


def count_rows(body: Mapping[str, Any], most: int) -> int:
    """How many items the arrays of a body have, at any depth. Of more than `most`, or where items are still to be made,
    it only says that they are more.
    """
    rows = 0
    for value in body.values():
        kind = type(value)
        if kind is list or kind is tuple:
            rows += len(value)
            for item in value:
                if rows > most or type(item) is not dict:
                    break
                rows += count_rows(item, most - rows)
        elif kind is Rows:
            return _MANY
    return rows


def encode_in_slices(
    api_key: int,
    version: int,
    correlation_id: int,
    body: Body,
    rows_at_a_time: int,
    on_body: Callable[[Body], object],
) -> Generator[int, None, bytes]:
    """The whole frame, length included; after so many rows each it yields how many bytes there are by then.

    `on_body` is called with what was encoded: each structure once, by itself or within another.
    """
    buffer = io.BytesIO()
    buffer.write(response_header(api_key, version, correlation_id, 0))
    encoder = _SliceEncoder(buffer, rows_at_a_time, on_body)
    yield from encoder.write(response_schema(api_key, version), body)
    size = buffer.tell() - _SIZE.size
    buffer.seek(0)
    buffer.write(_SIZE.pack(size))
    return buffer.getvalue()


class _Field(NamedTuple):
    """How one field of a structure is written."""

    name: str
    item: Any
    """The structure that it is an array of; None if it is none."""
    is_compact: bool
    convert: Callable[[Any], Any] | None
    default: Any
    write: Callable[[Any, Any], None]


class _SliceEncoder:
    """Owns the bytes of one response, and the count of rows since the last pause."""

    def __init__(self, buffer: io.BytesIO, rows_at_a_time: int, on_body: Callable[[Body], object]) -> None:
        self._buffer = buffer
        self._rows_at_a_time = rows_at_a_time
        self._on_body = on_body
        self._rows = 0

    def write(self, schema: Any, body: Body) -> Iterator[int]:
        rows = count_rows(body, self._rows_at_a_time)
        fields = _fields(schema) if rows > self._rows_at_a_time else None
        if fields is not None:
            yield from self._write_by_fields(fields, body)
            if schema.__flexible__:
                self._buffer.write(_NO_TAGS)
        else:
            build, write = body_codec(schema)
            write(self._buffer, build(body))
            self._on_body(body)
            self._rows += rows
        self._rows += 1
        if self._rows >= self._rows_at_a_time:
            self._rows = 0
            yield self._buffer.tell()

    def _write_by_fields(self, fields: tuple[_Field, ...], body: Body) -> Iterator[int]:
        buffer = self._buffer
        plain: dict[str, Any] = {}
        for field in fields:
            value = body.get(field.name, _ABSENT)
            if field.item is not None and value is not _ABSENT and value is not None:
                write_length = write_compact_array_length if field.is_compact else write_legacy_array_length
                write_length(buffer, i32(len(value)))
                for item in value:
                    yield from self.write(field.item, item)
                continue
            if value is _ABSENT:
                value = field.default
            else:
                plain[field.name] = value
                value = field.convert(value) if field.convert else value
            field.write(buffer, value)
        self._on_body(plain)


@functools.cache
def _fields(schema: Any) -> tuple[_Field, ...] | None:
    """The fields of a structure, for writing them one by one; None where some are tagged, which come in no order."""
    fields = []
    is_flexible = bool(schema.__flexible__)
    for plan in field_plans(schema):
        field = schema.__dataclass_fields__[plan.name]
        if "tag" in field.metadata:
            return None
        default = plan.default if field.default is dataclasses.MISSING else field.default
        write = get_field_writer(field, is_flexible, is_request_header=False, is_tag=False)
        item = plan.kind if plan.is_array and field.metadata.get("kafka_type") is None else None
        fields.append(_Field(plan.name, item, is_flexible, plan.convert, default, write))
    return tuple(fields)
