"""The settings that decisions about transactions go by, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Times in milliseconds."""

    transaction_max_timeout_ms: int = 900_000
    """The longest timeout that a transactional producer may ask for."""
    transactional_id_expiration_ms: int = 604_800_000
    """How long a transactional id is kept after its last use."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    """How often to look for transactions that took longer than their timeout."""
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    """How often to look for expired transactional ids."""
    transaction_two_phase_commit_enable: bool = False
    """Whether there may be transactions that another system decides (KIP-939)."""
