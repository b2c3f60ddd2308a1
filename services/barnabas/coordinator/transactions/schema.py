"""Kafka's record schemas of __transaction_state, as plain typed data for kio's writers.

Every key and value starts with its version as an int16, then the fields below (Kafka's TransactionLogKey and
TransactionLogValue; from version 1 on, values are flexible and have tagged fields). Kafka also has a tagged field 3,
NextProducerEpoch (KIP-939), which nothing writes. `codec` makes them of the state machine's own records.
"""

# kio reads the annotations themselves, so they must not be strings: no `from __future__ import annotations` here.
from dataclasses import dataclass
from typing import ClassVar

from kio.static.constants import EntityType

from barnabas.coordinator.runtime.record_schema import Data, wire
from barnabas.coordinator.transactions.core.transaction import NO_PRODUCER_ID

TRANSACTION_KEY_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogKey(Data):
    """Key version 0."""

    transactional_id: str = wire("string")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsSchemaV0(Data):
    __type__: ClassVar[EntityType] = EntityType.nested
    topic: str = wire("string")
    partition_ids: tuple[int, ...] = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsSchemaV1(Data):
    __type__: ClassVar[EntityType] = EntityType.nested
    __flexible__: ClassVar[bool] = True
    topic: str = wire("string")
    partition_ids: tuple[int, ...] = wire("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValueV0(Data):
    """What transaction.version 0 writes."""

    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    transaction_timeout_ms: int = wire("int32")
    transaction_status: int = wire("int8")
    transaction_partitions: tuple[PartitionsSchemaV0, ...] | None
    transaction_last_update_timestamp_ms: int = wire("int64")
    transaction_start_timestamp_ms: int = wire("int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValueV1(Data):
    """What transaction.version 1 and 2 write (KIP-915, KIP-890)."""

    __flexible__: ClassVar[bool] = True
    producer_id: int = wire("int64")
    previous_producer_id: int = wire("int64", tag=0, default=NO_PRODUCER_ID)
    next_producer_id: int = wire("int64", tag=1, default=NO_PRODUCER_ID)
    producer_epoch: int = wire("int16")
    transaction_timeout_ms: int = wire("int32")
    transaction_status: int = wire("int8")
    transaction_partitions: tuple[PartitionsSchemaV1, ...] | None
    transaction_last_update_timestamp_ms: int = wire("int64")
    transaction_start_timestamp_ms: int = wire("int64")
    client_transaction_version: int = wire("int16", tag=2, default=0)
