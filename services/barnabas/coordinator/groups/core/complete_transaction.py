"""CompleteTransaction: a transaction ends, and with it what is pending of its offsets here."""

from __future__ import annotations

from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.records import MarkerRecord
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.runtime.core.producers import Producer
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import CompleteTransactionRequest, CompleteTransactionResponse


def handle_complete_transaction(
    shard: GroupShard, request: CompleteTransactionRequest, waiter: Waiter, decision: Decision
) -> None:
    """Write the marker, also where nothing is pending: from then on nobody else of that epoch can write here. Refused
    where the producer or its coordinator has been followed by another."""
    producer = Producer(request.producer_id, request.producer_epoch)
    version = request.transaction_version
    code = shard.producers.verdict_on_marker(producer, request.coordinator_epoch, version)
    if code is ErrorCode.none:
        decision.records.append(MarkerRecord(producer, request.committed, request.coordinator_epoch))
        shard.producers.on_marker(producer, version)
    decision.reply(waiter, CompleteTransactionResponse(error_code=code))
