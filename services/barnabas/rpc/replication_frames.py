"""Writing and reading a ReplicaRecordsFrame with its records beside it (`records_beside`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.links.storage_messages import ReplicaFetched
from barnabas.messages.storage_pb2 import ReplicaRecords, ReplicaRecordsFrame
from barnabas.rpc.field_tags import length_delimited_tag
from barnabas.rpc.records_beside import decode_beside, encode_beside, walk_fields

_PARTITION: Final = ReplicaRecordsFrame.DESCRIPTOR.fields_by_name["partitions"].number
_RECORDS: Final = ReplicaRecords.DESCRIPTOR.fields_by_name["records"].number

_PARTITION_TAG: Final = length_delimited_tag(ReplicaRecordsFrame, "partitions")
_RECORDS_TAG: Final = length_delimited_tag(ReplicaRecords, "records")


def encode_replica_records(partitions: Sequence[ReplicaFetched]) -> bytes:
    """The ReplicaRecordsFrame that holds `partitions`; no records are in their fields."""
    pieces: list[bytes | memoryview] = []
    for fields, records in partitions:
        encode_beside(pieces, _PARTITION_TAG, fields, _RECORDS_TAG, records)
    return b"".join(pieces)


def decode_replica_records(frame: bytes) -> list[ReplicaFetched]:
    """What is in an encoded ReplicaRecordsFrame. Raises ValueError, IndexError or DecodeError when it is none."""
    return [
        ReplicaFetched(*decode_beside(ReplicaRecords, _RECORDS, frame, start, end))
        for number, start, end in walk_fields(frame, 0, len(frame))
        if number == _PARTITION
    ]
