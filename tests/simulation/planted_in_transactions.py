"""Faults to be planted into transactions: see `planted_faults`, which has them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.transactions.core.decision import Decision
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.states import PREPARED, TransactionState
from barnabas.coordinator.transactions.core.transaction import TopicPartition, Transaction
from barnabas.coordinator.transactions.markers.post import LinkPost
from barnabas.kernel.errors import ErrorCode
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.producers.producer_state import ProducerState


def before_it_is_committed(replay_uncommitted: Any) -> Any:
    """What is decided will be written, one might think: partitions can be told meanwhile."""

    def instead(self: TransactionShard, record: Any) -> None:
        replay_uncommitted(self, record)
        if record.value is not None and record.value.state in PREPARED:
            self.mark([(record.transactional_id, record.value)])

    return instead


def not_again(on_committed: Any) -> Any:
    """They were told when it was decided."""

    def instead(self: TransactionShard, record: Any) -> None:
        mark = self.mark
        try:
            self.mark = lambda _ended: None  # type: ignore[method-assign]
            on_committed(self, record)
        finally:
            self.mark = mark  # type: ignore[method-assign]

    return instead


def of_any_epoch(handle: Any) -> Any:
    """Whoever ends a transaction has its id, and that is enough."""

    def instead(shard: TransactionShard, request: Any, *arguments: Any) -> None:
        known = shard.transactions.get(request.transactional_id)
        if known is not None and request.producer_epoch < known.producer_epoch:
            is_over = known.state is not TransactionState.ONGOING
            request.producer_epoch = known.producer_epoch - (is_over and request.transaction_version >= 2)
        handle(shard, request, *arguments)

    return instead


def past_what_is_open(_: Any) -> Any:
    """Whatever is replicated is stable."""

    def instead(self: LogProducers, high_watermark: int) -> int:
        return max(high_watermark, self._log.log_start_offset)

    return instead


def unless_two_are_open(_: Any) -> Any:
    """The last transaction that began holds readers back, not the first."""

    def instead(self: ProducerState) -> None:
        first = next(reversed(self._open), None)
        marker = 2**63 - 1
        if self._unreplicated:
            marker, ended = self._unreplicated[0]
            first = ended if first is None else min(first, ended)
        self._undecided = (first, marker)

    return instead


def nothing_is_pending(_: Any) -> Any:
    return lambda *_: False


def whatever_happened(check: Any) -> Any:
    """The coordinator said that the partition is part of the transaction, and that is enough."""
    del check
    return lambda *_, **__: None


def of_any_coordinator(check: Any) -> Any:
    """A marker is a marker."""

    def instead(self: ProducerState, header: Any, marker: Any, transaction_version: int = 0) -> None:
        check(self, header, marker._replace(coordinator_epoch=2**31 - 1), transaction_version)

    return instead


def known_to_be_told(_: Any) -> Any:
    """Whoever decided has told the partitions."""

    def instead(shard: TransactionShard, decision: Any) -> None:
        now_ms, config = decision.monotonic_ms, shard.config
        shard.time_out_scan_ms = now_ms + config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        shard.expiry_scan_ms = now_ms + config.transaction_remove_expired_transaction_cleanup_interval_ms

    return instead


def under_its_own_epoch(_: Any) -> Any:
    """Its client is gone, so that nobody needs another epoch."""

    def instead(self: Transaction, now_ms: int) -> Transaction:
        return self.ended(committed=False, now_ms=now_ms)

    return instead


def at_once(_: Any) -> Any:
    """The answer does not wait for the log."""

    def instead(self: Decision, waiter: Any, message: Any) -> None:
        self.reply_at_once(waiter, message)

    return instead


def however_it_ended(replay: Any) -> Any:
    def instead(self: GroupShard, record: Any) -> None:
        replay(self, record._replace(committed=True))

    return instead


def not_listed(_: Any) -> Any:
    return lambda *_: None


def never_asked(_: Any) -> Any:
    """A batch of a transaction needs no more than that it says so."""
    return lambda *_: -1


def by_older_rules(check: Any) -> Any:
    def instead(self: ProducerState, header: Any, marker: Any, transaction_version: int = 0) -> None:
        del transaction_version
        check(self, header, marker, 0)

    return instead


def but_for_the_last(append: Callable[..., Any]) -> Any:
    """One is as good as all."""

    async def instead(self: LinkPost, place: Any, marker: Any, partitions: list[TopicPartition]) -> Any:
        if len(partitions) < 2:
            return await append(self, place, marker, partitions)
        return [*(await append(self, place, marker, partitions[:-1])), ErrorCode.none]

    return instead


def only_offsets_are_told(complete: Any) -> Any:
    """The group's offsets need no marker: they are known to be committed."""

    async def instead(self: LinkPost, *arguments: Any) -> ErrorCode:
        return ErrorCode.none

    del complete
    return instead


def of_any_producer(_: Any) -> Any:
    """Whoever names the transactional id and the producer id may add partitions and ask about them."""

    def instead(transaction: Transaction | None, item: Any) -> ErrorCode:
        if transaction is None or transaction.producer_id != item.producer_id:
            return ErrorCode.invalid_producer_id_mapping
        return ErrorCode.concurrent_transactions if transaction.state in PREPARED else ErrorCode.none

    return instead


def keeps_its_epoch(started: Any) -> Any:
    """The one before has ended its transaction: why should the next have another epoch?"""

    def instead(self: Transaction, timeout_ms: int, _epoch: int, last_epoch: int, now_ms: int) -> Any:
        return started(self, timeout_ms, self.producer_epoch, last_epoch, now_ms)

    return instead
