"""Transactions, as the runtime sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from barnabas.coordinator.runtime.kind import Kind
from barnabas.coordinator.runtime.owned_partitions import OwnedPartitions
from barnabas.coordinator.runtime.partition_runtime import PartitionRuntime
from barnabas.coordinator.transactions.codec import decode_batch, encode_record
from barnabas.coordinator.transactions.core.deadlines import on_loaded, on_resumed, on_time, start_afresh
from barnabas.coordinator.transactions.core.decision import Decision
from barnabas.coordinator.transactions.core.records import TransactionRecord
from barnabas.coordinator.transactions.core.settings import TransactionSettings
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC

TransactionKind: TypeAlias = Kind[TransactionShard, Decision, TransactionRecord]
TransactionRuntime: TypeAlias = PartitionRuntime[TransactionShard, Decision, TransactionRecord]
TransactionPartitions: TypeAlias = OwnedPartitions[TransactionShard, Decision, TransactionRecord]


def transactions_kind(
    config: TransactionSettings,
    transaction_version: Callable[[], int],
    draw_producer_id: Callable[[], int],
    on_ready_to_mark: Callable[[], None],
    count: Callable[[Decision], None],
) -> TransactionKind:
    """Transactions under `config`.

    `transaction_version` gives the finalized level of that feature (0 to 2). `draw_producer_id` gives an id that nobody
    has, or raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) where none is at hand. `on_ready_to_mark` hears that some
    shard's `take_ready_to_mark` has something. `count` has the metrics count what a decision led to.
    """
    return Kind(
        topic=TRANSACTION_STATE_TOPIC,
        # A tombstone for the transactional id "", which no producer can have.
        barrier=TransactionRecord("", None),
        make_shard=lambda: TransactionShard(config, transaction_version, on_ready_to_mark),
        make_decision=lambda now_ms, monotonic_ms, draw_id, is_read_only: Decision(
            now_ms, monotonic_ms, draw_id, is_read_only
        ),
        encode=lambda record: encode_record(record, transaction_version()),
        start_afresh=start_afresh,
        decode_batch=decode_batch,
        on_loaded=on_loaded,
        on_time=lambda shard, decision: on_time(shard, decision, draw_producer_id),
        on_resumed=on_resumed,
        count=count,
    )
