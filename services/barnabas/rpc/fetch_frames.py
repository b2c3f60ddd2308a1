"""Writing and reading a FetchResultFrame with its records beside it (`records_beside`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.kernel.varint import unsigned_varint
from barnabas.links.storage_messages import FetchedResult, PartitionFetched
from barnabas.messages.storage_pb2 import FetchResult, FetchResultFrame, PartitionFetchResult
from barnabas.rpc.field_tags import length_delimited_tag
from barnabas.rpc.records_beside import decode_beside, encode_beside, read_varint, walk_fields

_RESULT: Final = FetchResultFrame.DESCRIPTOR.fields_by_name["results"].number
_CORRELATION_ID: Final = FetchResult.DESCRIPTOR.fields_by_name["correlation_id"].number
_PARTITION: Final = FetchResult.DESCRIPTOR.fields_by_name["partitions"].number
_RECORDS: Final = PartitionFetchResult.DESCRIPTOR.fields_by_name["records"].number

_RESULT_TAG: Final = length_delimited_tag(FetchResultFrame, "results")
_PARTITION_TAG: Final = length_delimited_tag(FetchResult, "partitions")
_RECORDS_TAG: Final = length_delimited_tag(PartitionFetchResult, "records")


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
        size += encode_beside(pieces, _PARTITION_TAG, fields, _RECORDS_TAG, records)
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
        for number, start, end in walk_fields(frame, 0, len(frame))
        if number == _RESULT
    ]


def _result(frame: bytes, start: int, end: int) -> FetchedResult:
    correlation_id = 0
    partitions: list[PartitionFetched] = []
    for number, value_start, value_end in walk_fields(frame, start, end):
        if number == _PARTITION:
            found = decode_beside(PartitionFetchResult, _RECORDS, frame, value_start, value_end)
            partitions.append(PartitionFetched(*found))
        elif number == _CORRELATION_ID:
            correlation_id, _ = read_varint(frame, value_start)
    return FetchedResult(correlation_id, partitions)
