"""A decision of the transactions' state machine."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.coordinator.runtime.core import decision
from barnabas.coordinator.runtime.core.decision import Waiter
from barnabas.coordinator.transactions.core.records import TransactionRecord
from barnabas.coordinator.transactions.core.transaction import Transaction

__all__ = ["Decision", "Waiter"]


@dataclass(slots=True)
class Decision(decision.Decision[TransactionRecord]):
    """Also counts what happened to transactions."""

    transactions_committed: int = 0
    transactions_aborted: int = 0
    """Those that timed out or were fenced are among them."""
    transactions_timed_out: int = 0
    ids_expired: int = 0

    def write(self, transactional_id: str, transaction: Transaction) -> None:
        """Have the log say that `transactional_id` is `transaction` now."""
        self.records.append(TransactionRecord(transactional_id, transaction))
