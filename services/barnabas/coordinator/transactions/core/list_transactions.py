"""ListTransactions: the ids of a partition that all filters let through. Only what is committed is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.states import TransactionState
from barnabas.coordinator.transactions.core.transaction import Transaction
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.transactions_pb2 import ListedTransaction, ListTransactionsRequest
from barnabas.metadata.patterns import Pattern, PatternRefused, compile_pattern

_STATES = frozenset(TransactionState)


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """What a request asks for, ready to be held against any number of ids; each part may be absent."""

    states: frozenset[str] | None
    """Names that are no state's let nothing through."""
    producer_ids: frozenset[int] | None
    started_before_ms: int | None
    """What has no transaction (start -1) counts as very old (KIP-994)."""
    pattern: Pattern | None
    """For the whole of an id (KIP-1152)."""

    @classmethod
    def of(cls, request: ListTransactionsRequest, now_ms: int) -> TransactionFilter:
        """The request's filters at `now_ms` (ms since the epoch). Raises KafkaError: INVALID_REGULAR_EXPRESSION."""
        return cls(
            states=frozenset(request.states) if request.states else None,
            producer_ids=frozenset(request.producer_ids) if request.producer_ids else None,
            started_before_ms=now_ms - request.duration_ms if request.duration_ms >= 0 else None,
            pattern=_compile(request.transactional_id_pattern) if request.transactional_id_pattern else None,
        )

    def lets_through(self, transactional_id: str, transaction: Transaction) -> bool:
        """Whether the request asks for this id."""
        if self.producer_ids is not None and transaction.producer_id not in self.producer_ids:
            return False
        if self.states is not None and transaction.state not in self.states:
            return False
        if self.started_before_ms is not None and transaction.start_ms >= self.started_before_ms:
            return False
        return self.pattern is None or self.pattern.fullmatch(transactional_id) is not None


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    """Those of the request's states that are none, in its order."""
    return [name for name in request.states if name not in _STATES]


def list_transactions(shard: TransactionShard, asked: TransactionFilter) -> Iterator[ListedTransaction]:
    """The ids of one partition that are `asked` for, in no order."""
    for transactional_id in shard.committed_ids():
        transaction = shard.committed(transactional_id)
        if transaction is not None and asked.lets_through(transactional_id, transaction):
            yield ListedTransaction(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                state=transaction.state,
            )


def _compile(pattern: str) -> Pattern:
    try:
        return compile_pattern(pattern)
    except PatternRefused as refused:
        raise KafkaError(
            ErrorCode.invalid_regular_expression, f"{pattern!r} is no regular expression of RE2: {refused}"
        ) from refused
