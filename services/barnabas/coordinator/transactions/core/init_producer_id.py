"""InitProducerId for a transactional id: its producer's id and next epoch; whoever had it before is fenced.

A client may say which id and epoch it has (KIP-360): then it only goes on after an error, and must not fence a newer
one of its kind.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator import limits
from barnabas.coordinator.runtime.core.record_strings import STRING_BYTES_MAX, fits_record
from barnabas.coordinator.transactions.core.decision import Decision, Waiter
from barnabas.coordinator.transactions.core.end_txn import abort_by_broker
from barnabas.coordinator.transactions.core.settings import TransactionSettings
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.states import PREPARED, TransactionState
from barnabas.coordinator.transactions.core.transaction import (
    EXHAUSTED_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    Transaction,
    new_transaction,
)
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.transactions_pb2 import InitProducerIdRequest, InitProducerIdResponse


def check_init_producer_id(request: InitProducerIdRequest, config: TransactionSettings) -> None:
    """What needs no look at the transactional id, in Kafka's order: to be asked before who its coordinator is.

    Raises KafkaError: INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_TRANSACTION_TIMEOUT.
    """
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.invalid_request, "producer id and epoch: give both or neither")
    if not request.transactional_id:
        raise KafkaError(ErrorCode.invalid_request, "the transactional id is empty")
    if not fits_record(request.transactional_id):
        raise KafkaError(ErrorCode.invalid_request, f"transactional.id may have {STRING_BYTES_MAX} bytes")
    if request.two_phase_commit:
        if not config.transaction_two_phase_commit_enable:
            raise KafkaError(
                ErrorCode.transactional_id_authorization_failed,
                "transaction.two.phase.commit.enable is false",
            )
        return
    timeout_max_ms = config.transaction_max_timeout_ms
    if not 0 < request.transaction_timeout_ms <= timeout_max_ms:
        raise KafkaError(
            ErrorCode.invalid_transaction_timeout,
            f"transaction.timeout.ms={request.transaction_timeout_ms}: must be from 1 to {timeout_max_ms}",
        )


def handle_init_producer_id(
    shard: TransactionShard,
    request: InitProducerIdRequest,
    waiter: Waiter,
    decision: Decision,
    draw_producer_id: Callable[[], int],
) -> None:
    """Reply with an InitProducerIdResponse. `check_init_producer_id` has been asked.

    While a transaction is open it is aborted and the reply is CONCURRENT_TRANSACTIONS, as it is until every partition
    knows the end: the client asks again. `draw_producer_id` may raise KafkaError, which is the reply then.
    """
    try:
        transaction = _next(shard, request, decision, draw_producer_id)
    except KafkaError as error:
        decision.refuse(waiter, error.code, init_producer_id_error(error.code))
        return
    decision.write(request.transactional_id, transaction)
    decision.reply(
        waiter,
        InitProducerIdResponse(
            producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch
        ),
    )


def init_producer_id_error(code: ErrorCode) -> InitProducerIdResponse:
    """The answer when there is neither id nor epoch to give."""
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def _next(
    shard: TransactionShard,
    request: InitProducerIdRequest,
    decision: Decision,
    draw_producer_id: Callable[[], int],
) -> Transaction:
    """What the id becomes. Raises KafkaError; an open transaction is aborted before."""
    transaction = shard.transactions.get(request.transactional_id)
    if transaction is None:
        if len(shard.transactions) >= limits.TRANSACTIONAL_IDS_MAX:
            raise KafkaError(ErrorCode.policy_violation, "too many transactional ids are known")
        return new_transaction(draw_producer_id(), _timeout_ms(request), decision.now_ms)
    if transaction.state in PREPARED:
        # First of all: the client may know the id and epoch that follow.
        raise KafkaError(ErrorCode.concurrent_transactions)
    if not _may_have(transaction, request):
        raise KafkaError(ErrorCode.producer_fenced)
    if transaction.state is TransactionState.ONGOING:
        abort_by_broker(shard, request.transactional_id, transaction, decision, draw_producer_id)
        raise KafkaError(ErrorCode.concurrent_transactions)
    return _started(transaction, request, decision.now_ms, draw_producer_id)


def _timeout_ms(request: InitProducerIdRequest) -> int:
    return NO_TIMEOUT_MS if request.two_phase_commit else request.transaction_timeout_ms


def _may_have(transaction: Transaction, request: InitProducerIdRequest) -> bool:
    """Whether the producer id that the client has, if it says one, is not somebody else's.

    The one before is allowed where its epochs are used up: the answer that rotated it may have been lost.
    """
    if request.producer_id in (NO_PRODUCER_ID, transaction.producer_id):
        return True
    is_before = request.producer_id == transaction.previous_producer_id
    return is_before and request.producer_epoch >= EXHAUSTED_EPOCH


def _started(
    transaction: Transaction,
    request: InitProducerIdRequest,
    now_ms: int,
    draw_producer_id: Callable[[], int],
) -> Transaction:
    """The next epoch, or epoch 0 of a new id; the same again for a request that was sent again. Raises KafkaError."""
    epoch, timeout_ms = transaction.producer_epoch, _timeout_ms(request)
    expected = request.producer_epoch
    if transaction.is_epoch_exhausted:
        if expected == NO_EPOCH:
            return transaction.rotated(draw_producer_id(), timeout_ms, NO_EPOCH, now_ms)
        if expected == epoch:
            return transaction.rotated(draw_producer_id(), timeout_ms, epoch, now_ms)
        # Kafka fails here without a code of its own, even where the request was only sent again.
        raise KafkaError(ErrorCode.unknown_server_error, "the producer's epochs are used up")
    if expected == NO_EPOCH:
        return transaction.started(timeout_ms, epoch + 1, NO_EPOCH, now_ms)
    if expected == epoch:
        return transaction.started(timeout_ms, epoch + 1, epoch, now_ms)
    if expected == transaction.last_producer_epoch:
        return transaction.started(timeout_ms, epoch, transaction.last_producer_epoch, now_ms)
    raise KafkaError(ErrorCode.producer_fenced)
