"""What happens without a request: a partition starts to serve, and time passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.coordinator.transactions.core.completion import complete_marked
from barnabas.coordinator.transactions.core.decision import Decision, Waiter
from barnabas.coordinator.transactions.core.expiry import forget_unused
from barnabas.coordinator.transactions.core.records import TransactionRecord
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.coordinator.transactions.core.states import PREPARED
from barnabas.coordinator.transactions.core.time_out import abort_timed_out

_MORE_MS = 1
"""The event loop gets a turn before the next transactions are aborted, or the next ids forgotten."""


def on_loaded(shard: TransactionShard, decision: Decision) -> None:
    """The log has been replayed: tell the partitions of what is decided, all of them, for nobody knows who was told."""
    shard.mark((each, value) for each, value in shard.transactions.items() if value.state in PREPARED)
    _start_time(shard, decision)


def on_time(shard: TransactionShard, decision: Decision, draw_producer_id: Callable[[], int]) -> None:
    """Handle the deadlines that are due at the decision's monotonic time."""
    now_ms, config = decision.monotonic_ms, shard.config
    if now_ms >= shard.time_out_scan_ms:
        has_more = abort_timed_out(shard, decision, draw_producer_id)
        interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        shard.time_out_scan_ms = now_ms + (_MORE_MS if has_more else interval_ms)
    if now_ms >= shard.expiry_scan_ms:
        has_more = forget_unused(shard, decision)
        interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        shard.expiry_scan_ms = now_ms + (_MORE_MS if has_more else interval_ms)


def on_resumed(shard: TransactionShard, decision: Decision) -> None:
    """The log takes writes again: complete what got its markers meanwhile. Time-outs wait for another interval, as
    clients could not end anything either."""
    complete_marked(shard, decision)
    _start_time(shard, decision)


def start_afresh(
    shard: TransactionShard, records: Sequence[TransactionRecord], decision: Decision
) -> list[Waiter]:
    """These records, of one decision, could not be written. Nothing was changed before they would have been replayed,
    and nobody waits in the shard."""
    del shard, records, decision
    return []


def _start_time(shard: TransactionShard, decision: Decision) -> None:
    now_ms, config = decision.monotonic_ms, shard.config
    shard.time_out_scan_ms = now_ms + config.transaction_abort_timed_out_transaction_cleanup_interval_ms
    shard.expiry_scan_ms = now_ms + config.transaction_remove_expired_transaction_cleanup_interval_ms
