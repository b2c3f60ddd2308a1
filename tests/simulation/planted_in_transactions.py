"""Faults to be planted into transactions: see `planted_faults`, which has them all."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any, Final

from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.handlers import offset_fetch
from barnabas.coordinator.runtime.core import decision as runtime_decision
from barnabas.coordinator.transactions import kind
from barnabas.coordinator.transactions.core import add_partitions, time_out
from barnabas.coordinator.transactions.core.decision import Decision
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.states import PREPARED, TransactionState
from barnabas.coordinator.transactions.core.transaction import TopicPartition, Transaction
from barnabas.coordinator.transactions.handlers import end_txn
from barnabas.coordinator.transactions.markers.post import LinkPost
from barnabas.kernel.errors import ErrorCode
from barnabas.log.appender import LogAppender
from barnabas.log.opening import loader
from barnabas.log.producers.log_producers import LogProducers
from barnabas.log.producers.producer_state import ProducerState
from barnabas.log.producers.verification_guards import VerificationGuards
from barnabas.log.segments.transaction_index import TransactionIndex
from barnabas.storage.transactions.verification import Verification


def before_it_is_committed(replay_uncommitted: Any) -> Any:
    """What is decided will be written, one might think: partitions can be told meanwhile."""

    def instead(self: TransactionShard, record: Any) -> None:
        replay_uncommitted(self, record)
        if record.value is not None and record.value.state in PREPARED:
            self.mark([(record.transactional_id, record.value)])

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


def unstable_or_not(handle: Any) -> Any:
    """What is committed is committed, whatever is pending besides."""

    def instead(shard: Any, request: Any, *arguments: Any) -> None:
        request.require_stable = False
        handle(shard, request, *arguments)

    return instead


def as_if_it_counted(replay: Any) -> Any:
    """An offset that is written is committed."""

    def instead(self: GroupShard, record: Any) -> None:
        replay(self, record)
        if record.value is not None:
            self._store(record.key, record.value)

    return instead


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

    def instead(_shard: Any, name: str, transaction: Transaction, decision: Decision, _draw: Any) -> None:
        decision.write(name, transaction.ended(committed=False, now_ms=decision.now_ms))

    return instead


def at_once(handle: Any) -> Any:
    """The answer does not wait for the log."""

    def instead(shard: Any, request: Any, waiter: Any, decision: Decision, *arguments: Any) -> None:
        handle(shard, request, waiter, decision, *arguments)
        decision.replies_at_once += decision.replies
        decision.replies.clear()

    return instead


def however_it_ended(replay: Any) -> Any:
    def instead(self: GroupShard, record: Any) -> None:
        replay(self, dataclasses.replace(record, committed=True))

    return instead


def not_listed(_: Any) -> Any:
    return lambda *_: None


def not_by_followers(append: Any) -> Any:
    """Who leads lists what is aborted."""

    def instead(self: LogAppender, *arguments: Any, **options: Any) -> Any:
        listed, loader.record_completion = loader.record_completion, not_listed(None)
        try:
            return append(self, *arguments, **options)
        finally:
            loader.record_completion = listed

    return instead


def never_asked(_: Any) -> Any:
    """A batch of a transaction needs no more than that it says so."""
    return lambda *_: -1


def by_older_rules(check: Any) -> Any:
    def instead(self: ProducerState, header: Any, marker: Any, transaction_version: int = 0) -> None:
        del transaction_version
        check(self, header, marker, 0)

    return instead


def but_for_the_last(append: Callable[..., Any]) -> Any:
    """One now and then is not told, and taken to know."""
    chance = random.Random("not told")

    async def instead(self: LinkPost, place: Any, marker: Any, partitions: list[TopicPartition]) -> Any:
        if chance.random() > 0.05:
            return await append(self, place, marker, partitions)
        if len(partitions) < 2:
            return [ErrorCode.none]
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


def by_what_it_knows(_: Any) -> Any:
    """Who loaded the transactions knows them: a refusal changes nothing, so why should it be written?"""

    def instead(self: Decision, waiter: Any, _code: ErrorCode, message: Any) -> None:
        self.reply_unproven(waiter, message)

    return instead


def by_whoever_loaded_them(handle: Any) -> Any:
    """Offsets that are stable were committed: whoever has them can tell."""

    def instead(shard: Any, request: Any, waiter: Any, decision: Any) -> None:
        handle(shard, request, waiter, decision)
        decision.must_be_owner = False

    return instead


def keeps_its_epoch(started: Any) -> Any:
    """The one before has ended its transaction: why should the next have another epoch?"""

    def instead(self: Transaction, timeout_ms: int, _epoch: int, last_epoch: int, now_ms: int) -> Any:
        return started(self, timeout_ms, self.producer_epoch, last_epoch, now_ms)

    return instead


IN_TRANSACTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "take-an-old-epochs-end": (end_txn, "handle_end_txn", of_any_epoch, 96, 3),
    "stable-is-what-is-replicated": (LogProducers, "last_stable_offset", past_what_is_open, 0, 3),
    "stable-up-to-the-last-that-began": (ProducerState, "_publish", unless_two_are_open, 0, 3),
    "count-pending-offsets": (GroupShard, "_replay_offset", as_if_it_counted, 0, 3),
    "take-batches-of-no-transaction": (Verification, "begin", never_asked, 33, 3),
    "forget-who-is-to-be-told": (kind, "on_loaded", known_to_be_told, 15, 3),
    "apply-offsets-of-aborted-transactions": (GroupShard, "_replay_marker", however_it_ended, 0, 3),
    "followers-list-no-aborted-transactions": (LogAppender, "append_as_follower", not_by_followers, 15, 3),
    "never-write-the-list-of-aborted-transactions": (TransactionIndex, "flush", not_listed, 36, 3),
    "tell-all-partitions-but-one": (LinkPost, "_append", but_for_the_last, 0, 3),
    "tell-no-group-of-the-end": (LinkPost, "_complete", only_offsets_are_told, 0, 3),
    "keep-the-epoch-of-the-one-before": (Transaction, "started", keeps_its_epoch, 6, 3),
    "tell-markers-before-the-decision-is-committed": (
        TransactionShard,
        "replay_uncommitted",
        before_it_is_committed,
        69,
        3,
    ),
    "time-out-under-the-same-epoch": (time_out, "abort_by_broker", under_its_own_epoch, 15, 3),
    "add-partitions-for-any-epoch": (add_partitions, "_refusal", of_any_producer, 33, 3),
    "answer-an-end-before-it-is-replicated": (end_txn, "handle_end_txn", at_once, 6, 3),
    "take-late-markers-of-the-transaction-before": (ProducerState, "check_marker", by_older_rules, 30, 3),
    "take-markers-of-former-coordinators": (ProducerState, "check_marker", of_any_coordinator, 105, 1),
    "markers-leave-guards": (VerificationGuards, "on_marker", not_listed, 51, 3),
    "show-offsets-beside-pending-ones": (offset_fetch, "handle_fetch", unstable_or_not, 132, 1),
    "tell-offsets-without-being-the-owner": (offset_fetch, "handle_fetch", by_whoever_loaded_them, 38, 1),
    "refuse-without-being-the-owner": (runtime_decision.Decision, "refuse", by_what_it_knows, 78, 1),
}
"""As `planted_faults.Plant` has them."""
