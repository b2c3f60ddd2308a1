"""What transaction.version 0 writes to __transaction_state, as plain typed data for kio's writers.

Every key and value starts with its version as an int16, then the fields below (Kafka's TransactionLogValue 0). From
version 1 on values are flexible and have tagged fields: `codec` writes these itself. Kafka also has a tagged field 3,
NextProducerEpoch (KIP-939), which nothing writes.
"""

# kio reads the annotations themselves, so they must not be strings: no `from __future__ import annotations` here.
from dataclasses import dataclass
from typing import ClassVar

from kio.static.constants import EntityType

from barnabas.coordinator.runtime.record_schema import Data, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsSchemaV0(Data):
    __type__: ClassVar[EntityType] = EntityType.nested
    topic: str = wire("string")
    partition_ids: tuple[int, ...] = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValueV0(Data):
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    transaction_timeout_ms: int = wire("int32")
    transaction_status: int = wire("int8")
    transaction_partitions: tuple[PartitionsSchemaV0, ...] | None
    transaction_last_update_timestamp_ms: int = wire("int64")
    transaction_start_timestamp_ms: int = wire("int64")
