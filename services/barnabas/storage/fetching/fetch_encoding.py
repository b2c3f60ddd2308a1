"""FetchResultFrame as bytes, put together without copying the records more than once.

Built from message objects, record bytes would be copied into the message, into the frame and into its encoding. Here
only the small fields go through protobuf; a frame is then one join of what was encoded and the records as they were
read. The result is a FetchResultFrame like any other (protobuf takes a message's fields in any order).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.kernel.varint import unsigned_varint
from barnabas.rpc.field_tags import length_delimited_tag
from barnabas.rpc.v1.storage_pb2 import FetchResult, FetchResultFrame, PartitionFetchResult

_RESULT: Final = length_delimited_tag(FetchResultFrame, "results")
_PARTITION: Final = length_delimited_tag(FetchResult, "partitions")
_RECORDS: Final = length_delimited_tag(PartitionFetchResult, "records")


class PartitionAnswer(NamedTuple):
    """One partition's result, with its records beside it."""

    fields: PartitionFetchResult
    records: bytes | memoryview = b""


class EncodedResult(NamedTuple):
    """A FetchResult in pieces that only need to be joined; `size` bytes together."""

    pieces: list[bytes | memoryview]
    size: int


def encode_result(correlation_id: int, answers: Sequence[PartitionAnswer]) -> EncodedResult:
    """The FetchResult of one request."""
    first = FetchResult(correlation_id=correlation_id).SerializeToString()
    pieces: list[bytes | memoryview] = [first]
    size = len(first)
    for fields, records in answers:
        encoded = fields.SerializeToString()
        if records:
            encoded += _RECORDS + unsigned_varint(len(records))
            prefix = _PARTITION + unsigned_varint(len(encoded) + len(records)) + encoded
            pieces.append(prefix)
            pieces.append(records)
            size += len(prefix) + len(records)
        else:
            prefix = _PARTITION + unsigned_varint(len(encoded)) + encoded
            pieces.append(prefix)
            size += len(prefix)
    return EncodedResult(pieces, size)


def encode_frame(results: Sequence[EncodedResult]) -> bytes:
    """The FetchResultFrame that holds `results`."""
    pieces: list[bytes | memoryview] = []
    for result in results:
        pieces.append(_RESULT + unsigned_varint(result.size))
        pieces += result.pieces
    return b"".join(pieces)
