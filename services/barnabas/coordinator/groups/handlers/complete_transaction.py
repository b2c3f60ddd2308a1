"""CompleteTransaction: what WriteTxnMarkers (key 27) is for a partition of __consumer_offsets.

Answered once the marker is committed and the offsets count: who fetches them after that sees them. Who does not own the
partition, or has not loaded it, says so; the transaction's coordinator asks again.
"""

from __future__ import annotations

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.complete_transaction import handle_complete_transaction
from barnabas.coordinator.groups.handlers import Handler, producer_of
from barnabas.kernel.errors import KafkaError
from barnabas.messages.coordinator_pb2 import CompleteTransactionRequest, CompleteTransactionResponse


async def _handle(
    coordinator: GroupCoordinator, request: CompleteTransactionRequest
) -> CompleteTransactionResponse:
    producer_of(request.producer_id, request.producer_epoch)
    runtime = coordinator.runtime(request.partition)
    response: CompleteTransactionResponse = await runtime.submit(
        lambda shard, waiter, decision: handle_complete_transaction(shard, request, waiter, decision)
    )
    return response


def _refuse(_: CompleteTransactionRequest, error: KafkaError) -> CompleteTransactionResponse:
    return CompleteTransactionResponse(error_code=error.code)


COMPLETE_TRANSACTION = Handler("CompleteTransaction", _handle, _refuse)
