"""Requests and results of a storage link with their record bytes beside the message: nobody copies them to send it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.messages.storage_pb2 import AppendRequest, PartitionAppend, PartitionFetchResult, ReplicaRecords


class AppendBatches:
    """An AppendRequest whose record batches are beside it: `head` has no partitions, `partitions` no records."""

    __slots__ = ("correlation_id", "head", "partitions", "records")

    def __init__(self, head: AppendRequest) -> None:
        self.head = head
        self.partitions: list[PartitionAppend] = []
        self.records: list[bytes | memoryview] = []
        self.correlation_id = 0

    def add(self, partition: PartitionAppend, records: bytes | memoryview) -> None:
        """One more partition and what is to be appended to it."""
        self.partitions.append(partition)
        self.records.append(records)


class PartitionFetched(NamedTuple):
    """One partition's result. The records are in `records`, whether or not they are in `fields` as well."""

    fields: PartitionFetchResult
    records: bytes | memoryview = b""


class ReplicaFetched(NamedTuple):
    """What a leader says of one partition to a follower. The records are in `records`, whether or not they are in
    `fields` as well.
    """

    fields: ReplicaRecords
    records: bytes | memoryview = b""


@dataclass(slots=True)
class FetchedResult:
    """The results of one FetchRequest, in its order."""

    correlation_id: int
    partitions: Sequence[PartitionFetched]
