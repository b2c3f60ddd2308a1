"""A log that moves to another directory goes on under the guards that it had: who was asked about it need not be again,
and a number that was given there is given to nobody else.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.kernel.clock import ManualClock
from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.log.producers.verification_guards import VerificationGuards
from barnabas.storage.replica.appending import Appending


def log() -> Any:
    return SimpleNamespace(guards=VerificationGuards(ManualClock().monotonic), refused=None)


def test_they_move_with_the_log() -> None:
    nothing: Any = None
    appending = Appending(nothing, RefusedSequences(ManualClock().monotonic))
    former, moved = log(), log()
    appending.open(former, nothing, nothing)
    number = former.guards.open(7, 0, 0, is_new_epoch=True)
    appending.open(moved, nothing, nothing)
    assert moved.guards.open(7, 0, 0, is_new_epoch=True) == number
    assert moved.refused is appending.refused
