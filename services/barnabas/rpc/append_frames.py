"""Writing an AppendFrame with one copy of the records: small fields through protobuf, batches joined in between.

Built from message objects alone, record bytes would be copied into the message and again into its encoding. The result
is an AppendFrame like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.kernel.varint import unsigned_varint
from barnabas.links.storage_messages import AppendBatches
from barnabas.messages.storage_pb2 import AppendFrame, AppendRequest, PartitionAppend
from barnabas.rpc.field_tags import length_delimited_tag

_REQUEST: Final = length_delimited_tag(AppendFrame, "requests")
_PARTITION: Final = length_delimited_tag(AppendRequest, "partitions")
_RECORDS: Final = length_delimited_tag(PartitionAppend, "records")


def encode_append_frame(requests: Sequence[AppendRequest | AppendBatches]) -> bytes:
    """The AppendFrame that holds `requests`."""
    pieces: list[bytes | memoryview] = []
    for request in requests:
        if isinstance(request, AppendBatches):
            _add_batches(pieces, request)
        else:
            encoded = request.SerializeToString()
            pieces += (_REQUEST + unsigned_varint(len(encoded)), encoded)
    return b"".join(pieces)


def _add_batches(pieces: list[bytes | memoryview], request: AppendBatches) -> None:
    request.head.correlation_id = request.correlation_id
    head = request.head.SerializeToString()
    at = len(pieces)
    pieces += (b"", head)
    size = len(head)
    for partition, records in zip(request.partitions, request.records, strict=True):
        fields = partition.SerializeToString() + _RECORDS + unsigned_varint(len(records))
        prefix = _PARTITION + unsigned_varint(len(fields) + len(records)) + fields
        pieces += (prefix, records)
        size += len(prefix) + len(records)
    pieces[at] = _REQUEST + unsigned_varint(size)
