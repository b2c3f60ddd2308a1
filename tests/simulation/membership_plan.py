"""What a seed lets an administrator do while other things fail.

Partitions are reassigned, nodes come and go, topics and records are deleted; and what rots meanwhile.
"""

from __future__ import annotations

import random
from typing import Final

from fault_kinds import CLIENTS, FAULTS_SECONDS, HAVE_A_PEER, ROT, Fault

REASSIGN: Final = "reassign"
"""Some partitions shall have other replicas, as many as before, or one more or less (`administrator`)."""

CANCEL: Final = "cancel"
"""What is being reassigned shall be as it was."""

ELECT: Final = "elect"
"""Preferred leaders shall lead."""

MOVE: Final = "move"
"""Replicas of nodes with two log directories shall be in one of them."""

DELETE: Final = "delete"
"""The first records of some partitions are deleted."""

RECREATE: Final = "recreate"
"""A topic is deleted, and made again under the same name (`brief_topic`)."""

JOIN: Final = "join"
"""A node that the cluster does not know comes, with an empty disk."""

DRAIN: Final = "drain"
"""A node gives all that it has to others, is stopped and unregistered, and stays away for so long, or for good."""

FOR_GOOD: Final = 100.0
"""Seconds that a drained node stays away which does not come back: longer than any run."""

PREFER: Final = "prefer"
"""A node shall lead what its peer leads."""

GIVE_BACK: Final = "give back"
"""The peer shall lose its replicas of what a node leads, and get them again once they are deleted."""

ADMINISTERED: Final = frozenset({REASSIGN, CANCEL, ELECT, DELETE, DRAIN, MOVE, PREFER, GIVE_BACK})

LED_PAST: Final = "led past"
TAKES_BACK_LATE: Final = "takes back late"
"""See `unheard_elections`."""

UNHEARD_ELECTIONS: Final = 0.2
"""In how many of the runs with several replicas that are administered there are such."""

UNHEARD_SECONDS_MAX: Final = 3.5
"""How long one of them takes, with all that it waits for."""

_BESIDE: Final = (
    "kill",
    "kill",
    "stop",
    "pause",
    "isolate",
    "isolate",
    "zombie",
    "cut",
    "break",
    "slow disk",
)
"""What happens to a node in the middle of it."""


def joining_nodes(chance: random.Random, nodes: int, replication_factor: int) -> int:
    """How many nodes of a run come later; -1 where nothing of all this happens."""
    if chance.random() < 0.4:
        return -1
    return 1 if nodes <= replication_factor or chance.random() < 0.3 else 0


def about_membership(chance: random.Random, nodes: int, joining: int, controllers: int) -> list[Fault]:
    """Acts, and what fails a moment after each. `nodes` are there from the beginning."""
    faults = []
    if joining:
        at = chance.uniform(0.1, 3.0)
        faults.append(Fault(at, JOIN, f"node-{nodes + 1}", 0.0))
        if chance.random() < 0.5:
            faults.append(_act(chance, REASSIGN, at + chance.uniform(0.3, 1.5)))
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.uniform(0.3, FAULTS_SECONDS - 1.5)
        faults.append(_act(chance, REASSIGN, at))
        if chance.random() < 0.3:
            faults.append(_act(chance, CANCEL, at + chance.expovariate(1 / 0.3)))
        elif chance.random() < 0.3:
            faults.append(_act(chance, REASSIGN, at + chance.expovariate(1 / 0.3)))
        for _ in range(chance.choice((0, 1, 1, 2))):
            faults.append(_beside(chance, nodes + joining, controllers, at + chance.gauss(0.0, 0.4)))
    if chance.random() < 0.4:
        faults.append(_act(chance, ELECT, chance.uniform(0.3, FAULTS_SECONDS)))
    if nodes + joining > 1 and chance.random() < 0.35:
        at = chance.uniform(2.0, FAULTS_SECONDS - 2.5)
        away = chance.choice((0.1, 1.5, FOR_GOOD))
        faults.append(Fault(at, DRAIN, f"node-{chance.randint(1, nodes)}", away))
        if chance.random() < 0.5:
            faults.append(_beside(chance, nodes + joining, controllers, at + chance.expovariate(1 / 0.5)))
    return faults


def about_deletions(chance: random.Random, nodes: int) -> list[Fault]:
    """Records are deleted, and a node is away, or goes then."""
    faults = []
    if chance.random() < 0.6:
        return []
    for _ in range(chance.choice((1, 2, 3))):
        at = chance.uniform(0.8, FAULTS_SECONDS - 0.5)
        faults.append(_act(chance, DELETE, at))
        for _ in range(chance.choice((0, 1, 1, 2))):
            kind = chance.choice(("kill", "stop", "pause", "isolate"))
            began = min(max(0.1, at + chance.gauss(0.1, 0.4)), FAULTS_SECONDS - 0.2)
            seconds = chance.choice((0.05, 0.3, 1.5)) * chance.uniform(0.5, 1.5)
            faults.append(Fault(began, kind, f"node-{chance.randint(1, nodes)}", seconds, is_both_ways=True))
    return faults


def about_unheard_elections(chance: random.Random, faults: list[Fault], nodes: int) -> list[Fault]:
    """`faults`; or, where there are several replicas, those before and after two elections in a row, of which a node
    hears the second when it has not heard of the first, or has not done what it asks for.
    """
    if chance.random() >= UNHEARD_ELECTIONS:
        return faults
    leader, peer = chance.sample([f"node-{number}" for number in range(1, nodes + 1)], 2)
    at, kind = (
        chance.uniform(1.0, FAULTS_SECONDS - UNHEARD_SECONDS_MAX),
        chance.choice((LED_PAST, TAKES_BACK_LATE)),
    )
    beside = [
        each
        for each in faults
        if each.kind in (JOIN, RECREATE)
        or each.at + each.seconds < at - 0.5
        or each.at > at + UNHEARD_SECONDS_MAX
    ]
    return [*beside, Fault(at, kind, leader, chance.uniform(0.1, 0.5), peer)]


def log_directories(chance: random.Random) -> int:
    """How many each node of a run has."""
    return chance.choice((1, 2))


def about_moves(chance: random.Random, nodes: int, *, loses_power: bool) -> list[Fault]:
    """Replicas go from one log directory to the other, and something ends or fails in the midst of it, or when what
    they have left is about to be removed.
    """
    faults = []
    kinds = ("kill", "kill", "kill", "stop", "pause", "slow disk", "full disk")
    if loses_power:
        kinds = (*kinds, "power", "power", "power", "failing syncs")
    for _ in range(chance.choice((2, 3, 5))):
        at = chance.uniform(0.2, FAULTS_SECONDS - 1.0)
        faults.append(_act(chance, MOVE, at))
        for _ in range(chance.choice((0, 1, 1, 2))):
            then = at + chance.choice((chance.uniform(-0.02, 0.1), chance.uniform(0.9, 1.2)))
            seconds = chance.choice((0.05, 0.3, 1.0)) * chance.uniform(0.5, 1.5)
            faults.append(
                Fault(max(0.1, then), chance.choice(kinds), f"node-{chance.randint(1, nodes)}", seconds)
            )
    return faults


def about_rot(chance: random.Random, nodes: int) -> list[Fault]:
    """A bit rots, and others are to copy what has rotted."""
    if chance.random() < 0.8:
        return []
    at = chance.uniform(2.5, FAULTS_SECONDS - 3.0)
    return [
        _act(chance, REASSIGN, at - chance.uniform(0.2, 1.0)),
        Fault(at, ROT, f"node-{chance.randint(1, nodes)}", chance.choice((0.5, 1.5, 3.0))),
        _act(chance, REASSIGN, at + chance.uniform(0.05, 0.5)),
    ]


def about_topics(chance: random.Random, nodes: int) -> list[Fault]:
    """A topic goes and comes again; as a rule a node does not hear of it, for it is away."""
    if chance.random() < 0.7:
        return []
    faults, at = [], chance.uniform(1.0, 2.5)
    while at < FAULTS_SECONDS - 1.0:
        faults.append(_act(chance, RECREATE, at))
        for _ in range(chance.choice((0, 1, 1, 2))):
            kind = chance.choice(("kill", "kill", "stop", "pause", "isolate", "zombie"))
            began = max(0.1, at - chance.expovariate(1 / 0.2))
            seconds = chance.choice((0.3, 1.0, 2.5)) * chance.uniform(0.5, 1.5)
            faults.append(Fault(began, kind, f"node-{chance.randint(1, nodes)}", seconds, is_both_ways=True))
        at += chance.choice((0.3, 1.5, 3.0)) * chance.uniform(0.5, 1.5)
    return faults


def _act(chance: random.Random, kind: str, at: float) -> Fault:
    return Fault(min(at, FAULTS_SECONDS - 0.2), kind, CLIENTS, 0.0)


def _beside(chance: random.Random, nodes: int, controllers: int, at: float) -> Fault:
    kind, target = chance.choice(_BESIDE), f"node-{chance.randint(1, nodes)}"
    seconds = chance.choice((0.05, 0.3, 1.0, 2.5)) * chance.uniform(0.5, 1.5)
    others = [f"node-{number}" for number in range(1, nodes + 1) if f"node-{number}" != target]
    others += [f"controller-{number}" for number in range(1, controllers + 1)]
    peer = chance.choice([*others, CLIENTS]) if kind in HAVE_A_PEER else ""
    return Fault(min(max(0.1, at), FAULTS_SECONDS - 0.2), kind, target, seconds, peer, chance.random() < 0.6)
