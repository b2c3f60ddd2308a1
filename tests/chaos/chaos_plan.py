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
    "start other processes": "none of the cluster's: what its pauses are where the machine starts as many as a rolling "
    "restart does, and nothing else happens",
}

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


def make_plan(seed: int, form: str, count: int, of_kinds: Collection[str] = KINDS) -> list[Fault]:
    """The same faults in the same order for the same seed and kinds; fewer of them are its beginning."""
    chance = random.Random(f"{seed}/{form}")
    faults: list[Fault] = []
    while len(faults) < count:
        kinds = sorted(of_kinds)
        chance.shuffle(kinds)
        faults += [_fault(kind, form, chance) for kind in kinds]
    return faults[:count]


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
        "start other processes": PARTS[form][:-1],
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
