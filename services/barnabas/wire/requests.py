"""Decoding requests: header, then body."""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from kio.serial.errors import SerialError

from barnabas.wire.frame_check import OutOfBounds, checked_frame
from barnabas.wire.schema import is_flexible, request_reader

_FIXED_HEADER: Final = struct.Struct(">hhih")
_FIXED_HEADER_BYTES: Final = _FIXED_HEADER.size
_NULL: Final = -1
_VARINT_BYTES_MAX: Final = 5

HEADER_TAGS_MAX: Final = 100
"""Tagged fields of a header: none is defined yet."""


class MalformedRequest(Exception):
    """The bytes are not a request; nothing can be answered, and the connection must be closed."""


class RequestHeader(NamedTuple):
    """The part of a request header that every version has."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int
    """Where the rest of the header, or the body, starts in the frame."""


def read_header(frame: bytes) -> RequestHeader:
    """Read what all header versions share: api key, version, correlation id and client id.

    Raises MalformedRequest.
    """
    if len(frame) < _FIXED_HEADER_BYTES:
        if len(frame) < _FIXED_HEADER_BYTES - 2:
            raise MalformedRequest(f"a request header has at least 8 bytes, this frame {len(frame)}")
        # Header version 0 ends after the correlation id; only ControlledShutdown 0 ever used it.
        raise MalformedRequest("the request header ends before its client id")
    api_key, version, correlation_id, client_id_length = _FIXED_HEADER.unpack_from(frame)
    if client_id_length == _NULL:
        return RequestHeader(api_key, version, correlation_id, None, _FIXED_HEADER_BYTES)
    end = _FIXED_HEADER_BYTES + client_id_length
    if client_id_length < 0 or end > len(frame):
        raise MalformedRequest(f"client id length {client_id_length} does not fit in the frame")
    try:
        client_id = frame[_FIXED_HEADER_BYTES:end].decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest("the client id is not UTF-8") from error
    return RequestHeader(api_key, version, correlation_id, client_id, end)


class CheckedBody(NamedTuple):
    """A request body that can be decoded, and how much there is to decode."""

    frame: bytes
    offset: int
    items: int
    """Of all arrays together."""


def read_body(frame: bytes, header: RequestHeader) -> Any:
    """Decode the request body with kio. The API and version must be known.

    Bytes after the end are ignored, as Kafka does: librdkafka 2.16 sends three of them with Metadata v13.
    Raises MalformedRequest when the bytes do not fit the schema.
    """
    return decode_body(check_body(frame, header), header)


def check_body(frame: bytes, header: RequestHeader) -> CheckedBody:
    """The first half of `read_body`, which takes no memory. Raises MalformedRequest."""
    offset = header.body_offset
    if is_flexible(header.api_key, header.api_version):
        offset = _skip_tagged_fields(frame, offset)
    try:
        frame, items = checked_frame(frame, offset, header.api_key, header.api_version)
    except OutOfBounds as error:
        raise MalformedRequest(str(error)) from error
    return CheckedBody(frame, offset, items)


def decode_body(checked: CheckedBody, header: RequestHeader) -> Any:
    """The other half. Raises MalformedRequest for texts that are none."""
    try:
        request, _ = request_reader(header.api_key, header.api_version)(checked.frame, checked.offset)
    except (SerialError, ValueError, OverflowError, TypeError) as error:
        raise MalformedRequest(f"{type(error).__name__}: {error}") from error
    return request


def _skip_tagged_fields(frame: bytes, offset: int) -> int:
    """Header version 2 ends with tagged fields; no tag is defined, so all are skipped (KIP-482)."""
    if offset < len(frame) and frame[offset] == 0:
        return offset + 1
    count, offset = read_unsigned_varint(frame, offset)
    if count > HEADER_TAGS_MAX:
        raise MalformedRequest(f"the header has {count} tagged fields, more than {HEADER_TAGS_MAX}")
    for _ in range(count):
        _, offset = read_unsigned_varint(frame, offset)
        size, offset = read_unsigned_varint(frame, offset)
        offset += size
        if offset > len(frame):
            raise MalformedRequest("a tagged field of the header does not fit in the frame")
    return offset


def read_unsigned_varint(frame: bytes, offset: int) -> tuple[int, int]:
    """(the value at `offset`, where it ends). Raises MalformedRequest."""
    if offset < len(frame) and frame[offset] < 0x80:
        return frame[offset], offset + 1
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        if offset + index >= len(frame):
            raise MalformedRequest("the frame ends within a varint")
        byte = frame[offset + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, offset + index + 1
    raise MalformedRequest("a varint has more than five bytes")
