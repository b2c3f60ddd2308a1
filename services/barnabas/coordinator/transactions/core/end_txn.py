"""EndTxn: a client commits or aborts; and aborts that the broker itself decides.

Two sets of rules (KIP-890). Versions 0 and 1 of transactions: an end leaves the epoch as it is. Version 2: each end
gives the producer its next epoch, so that nothing late can get into the next transaction; a request that was sent again
is known by the epoch before, and what was never written to may be aborted. Clients' requests say which they mean; for
ends of its own the broker goes by the finalized transaction.version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.coordinator.transactions.core.decision import Decision, Waiter
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.states import COMPLETED, PREPARED, TransactionState
from barnabas.coordinator.transactions.core.transaction import (
    EPOCH_BUMP_VERSION,
    EPOCH_MAX,
    EXHAUSTED_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
)
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.transactions_pb2 import EndTxnRequest, EndTxnResponse

_COMMIT: Final = True
_ABORT: Final = False

_RESULTS: Final[Mapping[TransactionState, bool]] = {
    TransactionState.COMPLETE_COMMIT: _COMMIT,
    TransactionState.COMPLETE_ABORT: _ABORT,
}
"""The end that a client may ask for again."""


def handle_end_txn(
    shard: TransactionShard,
    request: EndTxnRequest,
    waiter: Waiter,
    decision: Decision,
    draw_producer_id: Callable[[], int],
) -> None:
    """Reply with an EndTxnResponse, once the end is certain and before any partition knows of it.

    `draw_producer_id` is asked where the producer's epochs are used up, and may raise KafkaError, which is the reply
    then.
    """
    bumps = request.transaction_version >= EPOCH_BUMP_VERSION
    try:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.invalid_request)
        transaction = shard.transactions.get(request.transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.invalid_producer_id_mapping)
        if bumps:
            ended = _end_with_bump(shard, transaction, request, decision, draw_producer_id)
        else:
            ended = _end(transaction, request, decision)
    except KafkaError as error:
        decision.refuse(waiter, error.code, end_txn_error(error.code))
        return
    if ended is not transaction:
        decision.write(request.transactional_id, ended)
        _count(decision, request.committed)
    producer_id, epoch = ended.identity_once_completed if bumps else (NO_PRODUCER_ID, NO_EPOCH)
    decision.reply(waiter, EndTxnResponse(producer_id=producer_id, producer_epoch=epoch))


def end_txn_error(code: ErrorCode) -> EndTxnResponse:
    """The answer when nothing was decided."""
    return EndTxnResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def abort_by_broker(
    shard: TransactionShard,
    transactional_id: str,
    transaction: Transaction,
    decision: Decision,
    draw_producer_id: Callable[[], int],
) -> None:
    """Abort what is open under an epoch that its client does not have, so that the client is fenced.

    Decided once: the record is sent until it is in the log, or the partition is read again and knows nothing of it.
    (Kafka keeps in mind here that a fence may have failed, so as not to raise the epoch twice.) Raises KafkaError, as
    `draw_producer_id` does, with nothing decided.
    """
    assert transaction.state is TransactionState.ONGOING, "only what is open is aborted by the broker"
    if shard.transaction_version() >= EPOCH_BUMP_VERSION:
        next_producer_id = _draw_next(transaction, draw_producer_id)
        aborted = transaction.ended_with_bump(_ABORT, next_producer_id, decision.now_ms)
    else:
        aborted = transaction.fenced(decision.now_ms)
    decision.write(transactional_id, aborted)
    _count(decision, _ABORT)


def _end(transaction: Transaction, request: EndTxnRequest, decision: Decision) -> Transaction:
    """By the rules of versions 0 and 1; `transaction` itself where it has that end already. Raises KafkaError."""
    if transaction.producer_id != request.producer_id:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    if transaction.producer_epoch != request.producer_epoch:
        raise KafkaError(ErrorCode.producer_fenced)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.concurrent_transactions)
    if transaction.state is TransactionState.ONGOING:
        return transaction.ended(request.committed, decision.now_ms)
    return _as_decided(transaction, request.committed)


def _end_with_bump(
    shard: TransactionShard,
    transaction: Transaction,
    request: EndTxnRequest,
    decision: Decision,
    draw_producer_id: Callable[[], int],
) -> Transaction:
    """By the rules of version 2; `transaction` itself where it has that end already. Raises KafkaError."""
    state, epoch = transaction.state, transaction.producer_epoch
    if state in PREPARED:
        # First of all: the client may have heard of the end, and come under the id and epoch that follow (KAFKA-18464).
        raise KafkaError(ErrorCode.concurrent_transactions)
    is_over_id = (
        request.producer_id == transaction.previous_producer_id
        and request.producer_epoch == EXHAUSTED_EPOCH
        and epoch == 0
    )
    is_again = state in COMPLETED and (is_over_id or epoch == request.producer_epoch + 1)
    if transaction.producer_id != request.producer_id and not is_over_id:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    if epoch != request.producer_epoch and not is_again:
        raise KafkaError(ErrorCode.producer_fenced)
    if is_again:
        return _as_decided(transaction, request.committed)
    if request.committed and state is not TransactionState.ONGOING:
        raise KafkaError(ErrorCode.invalid_txn_state, "there is nothing to commit")
    if not shard.transaction_version() and not transaction.is_open_with_bump:
        raise KafkaError(ErrorCode.unsupported_version, "transaction.version is 0")
    if request.committed and epoch == EPOCH_MAX:
        raise KafkaError(ErrorCode.unknown_server_error, "the producer's epochs are used up: abort")
    next_producer_id = _draw_next(transaction, draw_producer_id)
    return transaction.ended_with_bump(request.committed, next_producer_id, decision.now_ms)


def _as_decided(transaction: Transaction, committed: bool) -> Transaction:
    if _RESULTS.get(transaction.state) is not committed:
        raise KafkaError(ErrorCode.invalid_txn_state)
    return transaction


def _draw_next(transaction: Transaction, draw_producer_id: Callable[[], int]) -> int:
    return draw_producer_id() if transaction.is_epoch_exhausted else NO_PRODUCER_ID


def _count(decision: Decision, committed: bool) -> None:
    if committed:
        decision.transactions_committed += 1
    else:
        decision.transactions_aborted += 1
