"""EndTxn (key 26): answered once the end is certain, before the partitions know."""

from __future__ import annotations

from barnabas.coordinator.runtime.handler import Handler
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.core.end_txn import end_txn_error, handle_end_txn
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.transactions_pb2 import EndTxnRequest, EndTxnResponse


async def _handle(coordinator: TransactionCoordinator, request: EndTxnRequest) -> EndTxnResponse:
    if not request.transactional_id:
        raise KafkaError(ErrorCode.invalid_request, "the transactional id is empty")
    draw = coordinator.producer_ids.draw
    response: EndTxnResponse = await coordinator.runtime_of(request.transactional_id).submit(
        lambda shard, waiter, decision: handle_end_txn(shard, request, waiter, decision, draw)
    )
    return response


def _refuse(_: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return end_txn_error(error.code)


END_TXN = Handler("EndTxn", _handle, _refuse)
