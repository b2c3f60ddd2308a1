"""What a seed lets transactions be like, and what befalls their coordinator."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from apart_plan import ROUNDS, owners_are_apart

LATE_MARKER: Final = "late marker"
"""A marker comes late: by then it has been sent again, and the next transaction is open perhaps."""

MARKER_OF_A_FORMER: Final = "marker of a former coordinator"
"""A marker comes late: whoever sent it was killed, and another one has sent it again."""

LOST_DECISION: Final = "lost decision"
"""What the coordinator writes to its log never gets there, and it is killed."""

LATE_END: Final = "late end of the group's part"
"""Whoever owns the groups is told late how transactions end."""

LATE_ANSWER: Final = "late answer"
"""A partition's leader that asks about transactions is answered late; what ends them comes in time."""

TWO_OWNERS: Final = "two owners"
"""The coordinator and one gateway do not hear that another one owns the transactions, and clients come to them."""

MARKER_OF_THE_DEPOSED: Final = "marker of the deposed"
"""A marker comes late: another coordinator owns the transactions by then, and whoever sent it lives on."""

APART: Final = (LATE_END, LATE_ANSWER, TWO_OWNERS, MARKER_OF_THE_DEPOSED)
"""One kind in each run in which one coordinator owns the groups, and another one the transactions."""

TRANSACTIONAL_SEEDS: Final = 0
"""Of three: in the others nobody has transactions."""

AIMED: Final = 0.15
"""How many of the plans have one kind of fault, again and again, each at the moment when it does most harm."""


@dataclass(frozen=True, slots=True)
class TransactionFault:
    """One of them."""

    at: float
    kind: str
    seconds: float
    is_aimed: bool = False
    """Whether it waits for the moment when it does most harm."""

    def __str__(self) -> str:
        return f"at {self.at:.2f} s, {self.seconds:.2f} s: {self.kind}{', aimed' if self.is_aimed else ''}"


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """The shape of it."""

    writers: int
    copiers: int
    partitions: int
    copy_partitions: int
    new: float
    """How likely a producer is of the newer generation."""
    faults: tuple[TransactionFault, ...]
    owners_are_apart: bool = False
    """Whether one coordinator owns the groups, and another one the transactions: then somebody looks on, too."""
    is_steady: bool = False
    """Whether each transactional id has one producer all the time, which ends every transaction."""


def make_transaction_plan(seed: int) -> TransactionPlan | None:
    """None for a run without transactions."""
    if seed % 3 != TRANSACTIONAL_SEEDS:
        return None
    if owners_are_apart(seed):
        return _apart(seed)
    about_aimed = random.Random(f"{seed}/plan/aimed faults of transactions")
    if about_aimed.random() < AIMED:
        return _aimed(about_aimed)
    chance = random.Random(f"{seed}/plan/transactions")
    new = chance.choice((0.5, 0.5, 1.0))
    return TransactionPlan(
        writers=chance.choice((1, 2, 2)),
        copiers=chance.choice((1, 2)),
        partitions=chance.choice((1, 2, 2)),
        copy_partitions=chance.choice((1, 2)),
        new=new,
        faults=tuple(_faults(chance, are_all_new=new == 1.0)),
    )


def _faults(chance: random.Random, *, are_all_new: bool) -> list[TransactionFault]:
    """A marker that is only late does no harm where each transaction has an epoch of its own (KIP-890)."""
    kinds = [MARKER_OF_A_FORMER, LOST_DECISION] + ([LATE_MARKER] * 3 if are_all_new else [])
    faults, at = [], chance.uniform(0.5, 2.0)
    for _ in range(chance.choice((0, 1, 2, 3))):
        kind = chance.choice(kinds)
        seconds = chance.choice((0.2, 0.4, 0.8)) if kind == LATE_MARKER else chance.uniform(0.6, 2.0)
        faults.append(TransactionFault(at, kind, seconds))
        at += chance.uniform(0.5, 1.5)
    return faults


def _aimed(chance: random.Random) -> TransactionPlan:
    """One writes, to one partition, so that what comes late meets its next transaction."""
    kind = chance.choice((LATE_MARKER, LOST_DECISION))
    faults, at = [], chance.uniform(0.5, 1.5)
    while at < 6.0:
        seconds = chance.uniform(0.1, 0.5)
        faults.append(TransactionFault(at, kind, seconds, is_aimed=True))
        at += seconds + chance.uniform(0.3, 1.0)
    return TransactionPlan(
        writers=1, copiers=1, partitions=1, copy_partitions=1, new=1.0, faults=tuple(faults)
    )


def _apart(seed: int) -> TransactionPlan:
    chance = random.Random(f"{seed}/plan/faults of owners apart")
    kind = APART[seed // ROUNDS % len(APART)]
    is_steady = kind == MARKER_OF_THE_DEPOSED
    faults, at = [], chance.uniform(0.5, 1.0)
    while at < 6.0:
        is_brief = kind == LATE_ANSWER
        seconds = chance.uniform(0.3, 0.5) if is_brief else chance.uniform(0.4, 1.2)
        faults.append(TransactionFault(at, kind, seconds))
        at += seconds + chance.uniform(0.2, 0.6)
    return TransactionPlan(
        writers=1 if is_steady else 2,
        copiers=2,
        partitions=1,
        copy_partitions=1,
        new={LATE_END: 0.5, TWO_OWNERS: 1.0}.get(kind, 0.0),
        faults=tuple(faults if kind in (LATE_END, LATE_ANSWER) else faults[:1]),
        owners_are_apart=True,
        is_steady=is_steady,
    )
