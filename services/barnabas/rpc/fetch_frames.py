"""Writing and reading a FetchResultFrame without copying the records more than once.

Built from message objects, record bytes would be copied into the message, into the frame and into its encoding; read by
protobuf, into a message and once more out of it. Here only the small fields of each partition go through protobuf. A
frame is one join of what was encoded and the records as they were read from the log; at the other end it is walked
field by field, and the records stay where gRPC has put them. It is a FetchResultFrame like any other (protobuf takes a
message's fields in any order); field numbers and wire types are those of storage.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from barnabas.kernel.varint import unsigned_varint
from barnabas.links.storage_messages import FetchedResult, PartitionFetched
from barnabas.messages.storage_pb2 import FetchResult, FetchResultFrame, PartitionFetchResult
from barnabas.rpc.field_tags import length_delimited_tag

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_RESULT: Final = FetchResultFrame.DESCRIPTOR.fields_by_name["results"].number
_CORRELATION_ID: Final = FetchResult.DESCRIPTOR.fields_by_name["correlation_id"].number
_PARTITION: Final = FetchResult.DESCRIPTOR.fields_by_name["partitions"].number
_RECORDS: Final = PartitionFetchResult.DESCRIPTOR.fields_by_name["records"].number

_RESULT_TAG: Final = length_delimited_tag(FetchResultFrame, "results")
_PARTITION_TAG: Final = length_delimited_tag(FetchResult, "partitions")
_RECORDS_TAG: Final = length_delimited_tag(PartitionFetchResult, "records")

WALKED_BYTES_MIN: Final = 4096
"""A smaller partition's result is decoded as it is: copying its records costs less than looking for them."""


class EncodedResult(NamedTuple):
    """A FetchResult in pieces that only need to be joined; `size` bytes together."""

    pieces: list[bytes | memoryview]
    size: int


def encode_result(correlation_id: int, partitions: Sequence[PartitionFetched]) -> EncodedResult:
    """The FetchResult of one request; no records are in `fields`."""
    first = FetchResult(correlation_id=correlation_id).SerializeToString()
    pieces: list[bytes | memoryview] = [first]
    size = len(first)
    for fields, records in partitions:
        encoded = fields.SerializeToString()
        if records:
            encoded += _RECORDS_TAG + unsigned_varint(len(records))
            prefix = _PARTITION_TAG + unsigned_varint(len(encoded) + len(records)) + encoded
            pieces.append(prefix)
            pieces.append(records)
            size += len(prefix) + len(records)
        else:
            prefix = _PARTITION_TAG + unsigned_varint(len(encoded)) + encoded
            pieces.append(prefix)
            size += len(prefix)
    return EncodedResult(pieces, size)


def encode_fetch_results(results: Sequence[EncodedResult]) -> bytes:
    """The FetchResultFrame that holds `results`."""
    pieces: list[bytes | memoryview] = []
    for result in results:
        pieces.append(_RESULT_TAG + unsigned_varint(result.size))
        pieces += result.pieces
    return b"".join(pieces)


def decode_fetch_results(frame: bytes) -> list[FetchedResult]:
    """The results in an encoded FetchResultFrame. Raises ValueError, IndexError or DecodeError when it is none."""
    return [
        _result(frame, start, end)
        for number, start, end in _fields(frame, 0, len(frame))
        if number == _RESULT
    ]


def _result(frame: bytes, start: int, end: int) -> FetchedResult:
    correlation_id = 0
    partitions: list[PartitionFetched] = []
    for number, value_start, value_end in _fields(frame, start, end):
        if number == _PARTITION:
            partitions.append(_partition(frame, value_start, value_end))
        elif number == _CORRELATION_ID:
            correlation_id, _ = _varint(frame, value_start)
    return FetchedResult(correlation_id, partitions)


def _partition(frame: bytes, start: int, end: int) -> PartitionFetched:
    if end - start < WALKED_BYTES_MIN:
        fields = PartitionFetchResult.FromString(frame[start:end])
        return PartitionFetched(fields, fields.records)
    small: list[bytes] = []
    records = memoryview(b"")
    position = start
    for number, value_start, value_end in _fields(frame, start, end):
        if number == _RECORDS:
            records = memoryview(frame)[value_start:value_end]
        else:
            small.append(frame[position:value_end])
        position = value_end
    return PartitionFetched(PartitionFetchResult.FromString(b"".join(small)), records)


def _fields(frame: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, start of its value, end of its value) of each field of the message between the offsets."""
    while position < end:
        tag, position = _varint(frame, position)
        wire_type = tag & 7
        if wire_type == _DELIMITED:
            size, position = _varint(frame, position)
            value_end = position + size
        elif wire_type == _VARINT:
            _, value_end = _varint(frame, position)
        elif wire_type in (_FIXED32, _FIXED64):
            value_end = position + (4 if wire_type == _FIXED32 else 8)
        else:
            raise ValueError(f"wire type {wire_type} is unknown")
        if value_end > end:
            raise ValueError("a field does not fit in its message")
        yield tag >> 3, position, value_end
        position = value_end


def _varint(frame: bytes, position: int) -> tuple[int, int]:
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
