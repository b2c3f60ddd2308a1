"""A decision of the groups' state machine."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.coordinator.groups.core.records import GroupLogRecord
from barnabas.coordinator.runtime.core import decision
from barnabas.coordinator.runtime.core.decision import Waiter

__all__ = ["Decision", "Waiter"]


@dataclass(slots=True)
class Decision(decision.Decision[GroupLogRecord]):
    """Also counts what happened to groups and offsets."""

    rebalances_completed: int = 0
    offsets_committed: int = 0
    """Those of transactions among them."""
    transactional_offsets_committed: int = 0
    offsets_expired: int = 0

    def forget(self) -> None:
        """Forget what was decided so far, but for answers: the request is about to be refused."""
        self.records.clear()
        self.notes.clear()
        self.rebalances_completed = 0
