"""What a seed lets happen: faults one after another, each kind as often as the others."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

FORMS: Final = ("brokers", "separate")

PROTOCOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "classic": {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000},
    "consumer": {"group.protocol": "consumer"},  # the cluster has the same times for its groups
}
"""Of groups, and what their members are told of it."""

SERVICES: Final[Mapping[str, Sequence[str]]] = {
    "brokers": ("broker-1", "broker-2", "broker-3"),
    "separate": (
        *("storage-1", "storage-2", "storage-3", "gateway-1", "gateway-2"),
        *("coordinator-1", "coordinator-2"),
    ),
}
"""All but the controllers; the first three are the nodes. Brokers are the coordinators, too."""
CONTROLLERS: Final = ("controller-1", "controller-2")
MEMBERS: Final = ("etcd-1", "etcd-2", "etcd-3")

KINDS: Final[Mapping[str, str]] = {
    "kill a node": "kill -9, and some time until it is started again",
    "kill a service": "kill -9 of any process that is none of etcd's",
    "kill an etcd member": "kill -9 of any of the three",
    "kill etcd's leader": "kill -9 of the one that leads then",
    "kill the active controller": "kill -9 of the one that decides then",
    "freeze a node": "SIGSTOP for less than the sessions' time-outs, then SIGCONT",
    "freeze a service": "the same of any process that is none of etcd's",
    "freeze a node for long": "SIGSTOP until long after its session has ended",
    "freeze the active controller": "SIGSTOP until long after its lease has ended",
    "freeze etcd's leader": "SIGSTOP until the others have another one",
    "cut connections": "nothing passes the links to a service for a while; what was on its way arrives then",
    "cut off from controllers": "nothing passes between a service and the controllers for a while",
    "break connections": "all connections to a service are reset, five times",
    "full disk": "no page more can be written on a node's disk, for a while",
    "stop a service": "SIGTERM of any process, and its next start",
    "rolling restart": "all services of a kind, one after another: SIGTERM, start, in sync again",
    "reassign": "a partition's replicas change their order, or one goes away and comes back",
    "elect leaders": "preferred leaders, after leadership has moved",
    "empty a node": "stopped or killed, and started with nothing in its directory, while the others are in sync",
}

CONTROL: Final = "start other processes"
"""No fault: as many Python processes start and end as in a rolling restart, and none of the cluster's is touched. What
pauses there are then is the machine's."""

KINDS_AND_CONTROL: Final = (*KINDS, CONTROL)

PARTS: Final[Mapping[str, Sequence[str]]] = {
    "brokers": ("broker", "controller", "etcd"),
    "separate": ("storage", "gateway", "coordinator", "controller", "etcd"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them. `number` decides whatever else there is to be decided."""

    kind: str
    target: str
    seconds: float
    number: int

    def __str__(self) -> str:
        target = f" {self.target}" if self.target else ""
        return f"{self.kind}:{target} {self.seconds:.2f} s, {self.number}"


def make_plan(seed: int, form: str, count: int, of_kinds: Collection[str] = KINDS_AND_CONTROL) -> list[Fault]:
    """The same faults in the same order for the same seed and kinds; fewer of them are its beginning.

    The control is among them and not counted, unless it is all that is asked for.
    """
    chance = random.Random(f"{seed}/{form}")
    counted = set(of_kinds) - {CONTROL} or {CONTROL}
    faults: list[Fault] = []
    while count > 0:
        kinds = sorted(of_kinds)
        chance.shuffle(kinds)
        for fault in [_fault(kind, form, chance) for kind in kinds]:
            if count > 0:
                faults.append(fault)
                count -= fault.kind in counted
    return faults


def _fault(kind: str, form: str, chance: random.Random) -> Fault:
    nodes, services = SERVICES[form][:3], SERVICES[form] + CONTROLLERS
    targets: Mapping[str, Sequence[str]] = {
        "kill an etcd member": MEMBERS,
        "kill a service": services,
        "freeze a service": services,
        "stop a service": services + MEMBERS,
        "cut connections": services + MEMBERS,
        "cut off from controllers": SERVICES[form],
        "break connections": services[:-2] + MEMBERS,
        "rolling restart": PARTS[form],
        CONTROL: [part for part in PARTS[form] if part != "etcd"],  # which is no Python
        "kill etcd's leader": ("",),
        "freeze etcd's leader": ("",),
        "kill the active controller": ("",),
        "freeze the active controller": ("",),
        "reassign": ("",),
        "elect leaders": ("",),
    }
    target = chance.choice(targets.get(kind, nodes))
    seconds = {
        "freeze a node": chance.uniform(0.1, 1.8),
        "freeze a service": chance.uniform(0.1, 1.8),
        "freeze a node for long": chance.uniform(4.0, 7.0),
        "freeze the active controller": chance.uniform(3.5, 6.0),
        "freeze etcd's leader": chance.uniform(1.5, 4.0),
        "cut connections": chance.choice((0.3, 1.0, 3.5, 5.0)) * chance.uniform(0.7, 1.3),
        "cut off from controllers": chance.choice((1.0, 4.0)) * chance.uniform(0.7, 1.3),
        "full disk": chance.uniform(0.5, 4.0),
    }.get(kind, chance.choice((0.0, 0.1, 1.0, 3.0)) * chance.uniform(0.5, 1.5))
    return Fault(kind, target, seconds, chance.randrange(1_000_000))
