"""EndTxn (key 26): answered once the end is certain, before the partitions know."""

from __future__ import annotations

from barnabas.coordinator.runtime.handler import Submission, submitting
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.core.end_txn import end_txn_error, handle_end_txn
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.transactions_pb2 import EndTxnRequest, EndTxnResponse


def _submission(coordinator: TransactionCoordinator, request: EndTxnRequest) -> Submission:
    if not request.transactional_id:
        raise KafkaError(ErrorCode.invalid_request, "the transactional id is empty")
    draw = coordinator.producer_ids.draw
    return Submission(
        coordinator.runtime_of(request.transactional_id),
        lambda shard, waiter, decision: handle_end_txn(shard, request, waiter, decision, draw),
    )


def _refuse(_: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return end_txn_error(error.code)


END_TXN = submitting("EndTxn", _submission, _refuse)
