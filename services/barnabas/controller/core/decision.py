"""What a decision is: records to store, and the answer that is right once they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from barnabas.kernel.errors import KafkaError
from barnabas.messages.controller_pb2 import ResourceResult
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.image import partition_key

NOT_SET: Final = -1
"""A number that nobody has chosen."""

ResponseT_co = TypeVar("ResponseT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[ResponseT_co]):
    """Records to store in this order, then `response`. A record without a value deletes its key.

    `deleted_prefixes` cover deletions in `records`, so that the store is told of a whole topic in one operation.
    """

    records: Sequence[MetadataRecord]
    response: ResponseT_co
    deleted_prefixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterDefaults:
    """What a request that leaves something open gets; Kafka's settings of the same names."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = NOT_SET
    offsets_topic_segment_bytes: int = 104_857_600
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = NOT_SET
    transaction_state_log_min_isr: int = 2
    transaction_state_log_segment_bytes: int = 104_857_600
    delete_topic_enable: bool = True


def failure(error: KafkaError) -> ResourceResult:
    """The error as a result for one thing that was asked for."""
    return ResourceResult(error_code=int(error.code), error_message=error.message)


def partition_entry(partition: PartitionRecord) -> MetadataRecord:
    """The partition's record under its key."""
    entry = MetadataRecord(key=partition_key(partition.topic_id, partition.partition))
    entry.partition.CopyFrom(partition)
    return entry
