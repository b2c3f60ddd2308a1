"""A decision of the transactions' state machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from barnabas.coordinator.runtime.core import decision
from barnabas.coordinator.runtime.core.decision import Waiter
from barnabas.coordinator.transactions.core.records import TransactionRecord
from barnabas.coordinator.transactions.core.transaction import Transaction
from barnabas.kernel.errors import ErrorCode

__all__ = ["Decision", "Waiter"]

_ASKED_AGAIN: Final = frozenset({ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress})
"""Codes that cost a client no more than another try."""


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

    def refuse(self, waiter: Waiter, code: ErrorCode, message: Message) -> None:
        """Answer `waiter` with `message`, which says `code`.

        Most codes end a transaction, and some the producer. A coordinator that was frozen while another one took over
        knows less than that: it would refuse what is right.
        """
        self.must_be_owner |= code not in _ASKED_AGAIN
        self.reply(waiter, message)
