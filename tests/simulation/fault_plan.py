"""What a seed lets happen: the shape of the cluster, and the faults with their times."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from compaction_plan import CompactionPlan, about_leaders_alone, make_compaction_plan
from fault_kinds import (
    AMONG_NODES,
    BLACKOUT,
    CLIENTS,
    CONTROLLER_FAULTS,
    COORDINATOR_FAULTS,
    DEPOSED,
    FAULTS_SECONDS,
    FROZEN_WRITE,
    GATEWAY_FAULTS,
    GATEWAY_LINK_FAULTS,
    HAVE_A_PEER,
    ISLAND,
    LATE_WRITE,
    NODE_FAULTS,
    POWER_CUT,
    REFUSING_DISK,
    REPEATED_WRITE,
    ROT,
    TOGETHER,
    TOGETHER_AMONG_NODES,
    UNHEARD,
    WIPE,
    WIPE_LAST,
    Fault,
)
from membership_plan import (
    RECREATE,
    about_deletions,
    about_membership,
    about_moves,
    about_rot,
    about_topics,
    about_unheard_elections,
    joining_nodes,
    log_directories,
)

REFUSALS: Final = 0.1
"""In how many of the runs with several replicas a disk takes no more records for long."""

NEARBY_READERS: Final = 0.4
"""In how many runs, where there are several replicas, consumers have a rack."""

ADMINISTERED_SEEDS: Final = (2, 3)
"""Of five: in the others nothing moves and nothing is deleted, so that what fails stands out."""

HOSTING_SEEDS: Final = (4, 7, 8, 9, 11)
"""Of thirteen: where there are brokers, they are the coordinators, too. Seeds that are recorded for planted faults are
others, but for what is planted into such brokers.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The shape of one run."""

    nodes: int
    joining: int
    """Nodes that come later."""
    log_directories: int
    """Of each node, on disks of their own."""
    controllers: int
    gateways: int
    """With none, each node shares its process with one."""
    hosts_coordinators: bool
    """Whether each broker is a coordinator; else these are on machines of their own."""
    coordinators: int
    members: int
    """Of the one group."""
    replication_factor: int
    min_insync_replicas: int
    partitions: int
    has_brief_topic: bool
    """Whether there is a topic that is deleted and made again."""
    compaction: CompactionPlan
    reads_nearby: bool
    """Whether nodes have racks, and consumers read from the one in theirs (KIP-392)."""
    is_administered: bool
    """Whether somebody moves, deletes and looks after things, and clients differ more."""
    is_flushed: bool
    """Whether what is acknowledged is synced before (flush.messages=1)."""
    segment_ms: int
    lag_ms_max: int
    """replica.lag.time.max.ms."""
    rebalance_seconds: int
    """leader.imbalance.check.interval.seconds: how soon preferred leaders come back, while those before them live."""
    is_one_enough: bool
    """Whether acks=1 promises that a record stays: of a leader that is the only replica, and stays it."""
    has_onlooker: bool
    """Whether somebody who is no member of the group asks how far it is, through every gateway."""
    faults: tuple[Fault, ...]


def _chance(seed: int, about: str) -> random.Random:
    return random.Random(f"{seed}/plan/{about}")


def make_plan(seed: int, replication_factor: int) -> Plan:
    """What `seed` lets happen in a cluster whose topics have so many replicas."""
    chance = random.Random(f"{seed}/plan/{replication_factor}")
    replicates = replication_factor > 1
    nodes = 3 if replicates else chance.choice((1, 1, 2, 3))
    is_flushed, controllers = chance.random() < 0.5, chance.choice((1, 2, 2))
    faults = _about_nodes(chance, nodes, controllers, loses_power=is_flushed, replicates=replicates)
    is_administered = seed % 5 in ADMINISTERED_SEEDS
    joining, directories = -1, 1
    if is_administered:
        more, joining, directories = _about_administration(
            seed, replication_factor, nodes, controllers, loses_power=is_flushed
        )
        faults += more
    has_brief_topic = any(each.kind == RECREATE for each in faults)
    about_gateways, about_groups = _chance(seed, "gateways"), _chance(seed, "groups")
    gateways, coordinators = about_gateways.choice((0, 0, 0, 1, 2, 2)), about_groups.choice((1, 2, 2))
    hosts_coordinators = not gateways and seed % 13 in HOSTING_SEEDS
    if hosts_coordinators:  # what befalls them befalls the nodes, before it is decided who is spared
        coordinators = nodes + max(0, joining)
        faults += _about_coordinators(about_groups, nodes, controllers, _names("node", nodes))
    if replication_factor > 1:
        faults = _about_replicas(seed, faults, nodes, controllers)
    else:
        faults += _about_restarts(_chance(seed, "restarts"), nodes, loses_power=is_flushed)
    faults += _about_power(_chance(seed, "power")) if is_flushed else []
    faults += _about_clocks(_chance(seed, "clocks"), nodes, controllers)
    faults += _about_gateways(about_gateways, nodes, controllers, gateways)
    if not hosts_coordinators:
        faults += _about_coordinators(about_groups, nodes, controllers, _names("coordinator", coordinators))
    faults = _about_owners(
        _chance(seed, "owners"), faults, gateways, coordinators, may_be_alone=not is_administered
    )
    compaction = make_compaction_plan(seed, replication_factor)
    faults = _about_leaders(seed, compaction, faults, nodes, are_elected=is_administered and replicates)
    partitions, segment_ms = chance.choice((1, 2, 4)), chance.choice((400, 2_000, 3_600_000))
    return Plan(
        nodes=nodes,
        joining=max(0, joining),
        log_directories=directories,
        controllers=controllers,
        gateways=gateways,
        hosts_coordinators=hosts_coordinators,
        coordinators=coordinators,
        members=about_groups.choice((1, 2, 3)),
        replication_factor=replication_factor,
        min_insync_replicas=2 if replication_factor > 1 else 1,
        partitions=partitions,
        has_brief_topic=has_brief_topic,
        compaction=compaction,
        reads_nearby=replication_factor > 1 and _chance(seed, "nearby").random() < NEARBY_READERS,
        is_administered=is_administered,
        is_flushed=is_flushed,
        segment_ms=400 if any(each.kind == ROT for each in faults) else segment_ms,
        lag_ms_max=chance.choice((1_500, 1_500, 30_000)),
        rebalance_seconds=random.Random(f"{seed}/plan/rebalance").choice((1, 3, 300)),
        is_one_enough=replication_factor == 1 and joining < 0,
        has_onlooker=gateways > 1 and any(each.kind == ISLAND for each in faults),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


def _about_leaders(
    seed: int, compaction: CompactionPlan, faults: list[Fault], nodes: int, *, are_elected: bool
) -> list[Fault]:
    """`faults`, where something befalls leaders and no other faults come in between."""
    faults = about_leaders_alone(_chance(seed, "leaders alone"), compaction, faults, nodes)
    if are_elected:
        faults = about_unheard_elections(_chance(seed, "unheard elections"), faults, nodes)
    return faults


def _about_administration(
    seed: int, replication_factor: int, nodes: int, controllers: int, *, loses_power: bool
) -> tuple[list[Fault], int, int]:
    """What is asked for, with how many nodes that join (-1: none does, nor is anything moved) and with how many log
    directories of each.
    """
    faults: list[Fault] = []
    about_directories = random.Random(f"{seed}/plan/log directories/{replication_factor}")
    directories = log_directories(about_directories)
    if directories > 1:
        faults += about_moves(about_directories, nodes, loses_power=loses_power)
    about_members = random.Random(f"{seed}/plan/membership/{replication_factor}")
    joining = joining_nodes(about_members, nodes, replication_factor)
    faults += about_deletions(random.Random(f"{seed}/plan/deletions/{replication_factor}"), nodes)
    faults += about_topics(random.Random(f"{seed}/plan/topics/{replication_factor}"), nodes)
    if joining >= 0:
        faults += about_membership(about_members, nodes, joining, controllers)
    if replication_factor > 1:
        faults += about_rot(random.Random(f"{seed}/plan/rot"), nodes)
    return faults, joining, directories


def _about_nodes(
    chance: random.Random, nodes: int, controllers: int, *, loses_power: bool, replicates: bool
) -> list[Fault]:
    """What happens to nodes and controllers, alone, in pairs, and in storms."""
    faults: list[Fault] = []
    for _ in range(chance.choice((1, 2, 3, 4, 6))):
        if replicates and chance.random() < 0.25:
            faults += _storm(chance, nodes)
        elif chance.random() < 0.45:
            faults += _pair(chance, nodes, loses_power=loses_power, replicates=replicates)
        else:
            faults.append(_fault(chance, nodes, controllers, loses_power=loses_power))
    return faults


def _about_replicas(seed: int, faults: list[Fault], nodes: int, controllers: int) -> list[Fault]:
    """`faults`, and what is about several replicas."""
    faults = [
        *faults,
        *_about_elections(random.Random(f"{seed}/plan/elections"), nodes, controllers),
    ]
    about_disks = _about_disks(random.Random(f"{seed}/plan/disks"), nodes)
    is_alone = random.Random(f"{seed}/plan/alone").random() < 0.5
    if about_disks and (is_alone or about_disks[0].kind == WIPE_LAST):
        # Nobody else starts or ends in between.
        faults = [each for each in faults if each.at + each.seconds < about_disks[0].at]
    faults += about_disks
    faults += _late_proposal(random.Random(f"{seed}/plan/proposals"), nodes, controllers)
    faults += _both_leaders(random.Random(f"{seed}/plan/both leaders"), nodes)
    return _about_refusals(random.Random(f"{seed}/plan/refusals"), faults, nodes)


def _about_refusals(chance: random.Random, faults: list[Fault], nodes: int) -> list[Fault]:
    """`faults`; or those before a disk takes no more records, for meanwhile nobody else starts or ends."""
    if chance.random() >= REFUSALS:
        return faults
    at, target = chance.uniform(2.0, 3.0), f"node-{chance.randint(1, nodes)}"
    before = [each for each in faults if each.at + each.seconds < at - 1.0]
    return [*before, Fault(at, REFUSING_DISK, target, FAULTS_SECONDS - at)]


def _storm(chance: random.Random, nodes: int) -> list[Fault]:
    """Everything is slow, and one node dies after another, before the others have done what the first asks for."""
    at = chance.uniform(0.5, FAULTS_SECONDS - 3.0)
    faults = [Fault(at - 0.4, "slow network", "node-1", chance.uniform(1.0, 2.5))]
    for _ in range(chance.choice((2, 2, 3, 4))):
        target, kind = (
            f"node-{chance.randint(1, nodes)}",
            chance.choice(("kill", "kill", "stop", "isolate", "break")),
        )
        peer = f"node-{chance.randint(1, nodes)}" if kind in HAVE_A_PEER else ""
        faults.append(Fault(at, kind, target, chance.choice((0.05, 0.2, 1.0)), peer, is_both_ways=True))
        at += chance.expovariate(1 / 0.25)
    return faults


def _about_elections(chance: random.Random, nodes: int, controllers: int) -> list[Fault]:
    """What takes an election at one moment: before a proposal of the leader is heard, or by who was deposed."""
    at, kind = chance.uniform(0.2, FAULTS_SECONDS - 5.0), chance.random()
    target = f"node-{chance.randint(1, nodes)}"
    if kind < 0.25:
        peer = chance.choice(
            [f"node-{number}" for number in range(1, nodes + 1) if target != f"node-{number}"]
        )
        seconds = chance.uniform(2.0, 4.5)
        ends = at + seconds - chance.uniform(0.0, 0.05)
        return [
            Fault(at, UNHEARD, target, seconds, peer),
            Fault(ends, "kill", target, chance.choice((0.05, 1.0))),
        ]
    if kind < 0.5 and controllers > 1:
        then = at + chance.expovariate(1 / 0.1)
        seconds = chance.uniform(3.2, 5.0)  # longer than its lease
        return [
            Fault(at, FROZEN_WRITE, "controller-1", seconds),
            Fault(then, chance.choice(("kill", "stop")), target, chance.choice((0.05, 0.5, 2.0))),
        ]
    return []


def _about_disks(chance: random.Random, nodes: int) -> list[Fault]:
    """One node loses what it has, whole or in part, or its disk fails while the others' are fine; as a rule another
    node goes a moment before or after.
    """
    which = chance.random()
    if which < 0.35:
        return []
    if which < 0.6:
        return _one_after_another(chance, nodes)
    if which < 0.68:
        return _while_it_refills(chance, nodes)
    if which < 0.75:
        last = f"node-{chance.randint(1, nodes)}"
        return [Fault(chance.uniform(1.0, 4.0), WIPE_LAST, last, chance.choice((0.02, 0.3, 1.0)))]
    at, target = chance.uniform(0.3, FAULTS_SECONDS - 2.0), f"node-{chance.randint(1, nodes)}"
    kind = chance.choice((BLACKOUT, BLACKOUT, WIPE, WIPE, "failing syncs", "failing disk"))
    faults = [Fault(at, kind, target, chance.choice((0.02, 0.1, 0.5, 2.0)) * chance.uniform(0.5, 1.5))]
    for _ in range(chance.choice((0, 1, 1, 2))):
        other = chance.choice(
            [f"node-{number}" for number in range(1, nodes + 1) if target != f"node-{number}"]
        )
        kind = chance.choice(("kill", "kill", "stop", "isolate", "pause"))
        seconds = chance.choice((0.1, 0.5, 2.0, 3.5)) * chance.uniform(0.5, 1.5)
        faults.append(Fault(max(0.1, at + chance.gauss(0.0, 1.5)), kind, other, seconds, is_both_ways=True))
    return faults


def _one_after_another(chance: random.Random, nodes: int) -> list[Fault]:
    """Too few are in sync when the second one has gone, so that it stays eligible to lead unless it may have lost
    records; and it is back, or is not, when the third one goes.
    """
    first, second, third = chance.sample([f"node-{number}" for number in range(1, nodes + 1)], 3)
    at = chance.uniform(0.3, 3.0)
    faults = [Fault(at, chance.choice(("kill", "stop")), first, chance.uniform(2.5, 4.5))]
    at += chance.uniform(0.2, 1.2)
    kind = chance.choice(("stop", "stop", "kill", BLACKOUT, BLACKOUT, WIPE))
    faults.append(Fault(at, kind, second, chance.choice((0.05, 0.3, 1.5, 2.0))))
    at += chance.uniform(0.2, 1.5)
    faults.append(
        Fault(at, chance.choice(("kill", "kill", "stop", BLACKOUT)), third, chance.uniform(0.3, 3.0))
    )
    return faults


def _while_it_refills(chance: random.Random, nodes: int) -> list[Fault]:
    """A node whose disk is new does not hear one of its leaders, which then goes."""
    first, second = chance.sample([f"node-{number}" for number in range(1, nodes + 1)], 2)
    at, seconds = chance.uniform(0.5, FAULTS_SECONDS - 3.0), chance.uniform(0.4, 1.4)
    return [
        Fault(at, WIPE, first, 0.1),
        Fault(at, "cut", second, seconds + 0.1, first, is_both_ways=True),
        Fault(at + seconds, "kill", second, chance.uniform(0.3, 2.0)),
    ]


def _late_proposal(chance: random.Random, nodes: int, controllers: int) -> list[Fault]:
    """A leader says that a follower is in sync, and is heard when that one has lost all it had; then it goes."""
    if chance.random() < 0.8:
        return []
    leader, follower = chance.sample([f"node-{number}" for number in range(1, nodes + 1)], 2)
    at = chance.uniform(0.5, FAULTS_SECONDS - 4.0)
    unheard = at + 0.1 + chance.uniform(0.0, 0.3)
    seconds = chance.uniform(0.9, 1.8)  # nobody gives up a connection
    return [
        Fault(at, "kill", follower, 0.1),
        *(
            Fault(unheard, "cut", leader, seconds, f"controller-{number}")
            for number in range(1, controllers + 1)
        ),
        Fault(unheard + chance.uniform(0.2, 0.7), WIPE, follower, 0.05),
        Fault(unheard + seconds + chance.uniform(0.01, 0.3), "kill", leader, chance.uniform(0.3, 1.5)),
    ]


def _both_leaders(chance: random.Random, nodes: int) -> list[Fault]:
    """Everything is slow, and the next leader goes when the third node has just begun to follow it."""
    if chance.random() >= 0.15:
        return []
    first, second = chance.sample([f"node-{number}" for number in range(1, nodes + 1)], 2)
    at = chance.uniform(0.7, FAULTS_SECONDS - 3.0)
    return [
        Fault(at - 0.2, "slow network", "node-1", 2.5),
        Fault(at, "kill", first, 2.5),
        Fault(at + chance.uniform(0.2, 0.9), "kill", second, 1.0),
    ]


def _about_restarts(chance: random.Random, nodes: int, *, loses_power: bool) -> list[Fault]:
    """A node goes with records that are written and not answered, or written in part."""
    faults = []
    for _ in range(chance.choice((0, 1, 2))):
        at, target = chance.uniform(0.5, FAULTS_SECONDS - 1.0), f"node-{chance.randint(1, nodes)}"
        slow = chance.uniform(0.05, 0.4)
        kind = chance.choice(("kill", "power", "power", "stop", "stop") if loses_power else ("kill", "stop"))
        if kind == "stop":  # in order, so that its answers have to be lost
            faults.append(Fault(at, "cut", target, slow + 1.5, CLIENTS))
        seconds = 3.0 if kind == "stop" else 0.1
        faults += [Fault(at, "slow disk", target, slow), Fault(at + slow, kind, target, seconds)]
    return faults


def _about_power(chance: random.Random) -> list[Fault]:
    """It fails everywhere at once, in some of the runs where all that is acknowledged is on disks."""
    if chance.random() < 0.75:
        return []
    seconds = chance.choice((0.05, 0.5, 2.0)) * chance.uniform(0.5, 1.5)
    return [Fault(chance.uniform(0.5, FAULTS_SECONDS - 2.5), POWER_CUT, "node-1", seconds)]


def _about_clocks(chance: random.Random, nodes: int, controllers: int) -> list[Fault]:
    """A machine's clock jumps, and jumps back."""
    if chance.random() < 0.8:
        return []
    machines = [f"node-{number}" for number in range(1, nodes + 1)]
    machines += [f"controller-{number}" for number in range(1, controllers + 1)]
    at = chance.uniform(0.2, FAULTS_SECONDS - 1.0)
    return [Fault(at, "clock", chance.choice(machines), chance.choice((0.1, 1.0, 4.0)))]


def _about_gateways(chance: random.Random, nodes: int, controllers: int, gateways: int) -> list[Fault]:
    """Each gateway by itself; with none, what happens between clients and the nodes' own."""
    faults = []
    targets = [f"gateway-{number + 1}" for number in range(gateways)]
    machines = [f"node-{number + 1}" for number in range(nodes)]
    others = [f"controller-{number + 1}" for number in range(controllers)]
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        at = chance.uniform(0.2, FAULTS_SECONDS - 0.5)
        seconds = min(chance.choice((0.05, 0.3, 1.0, 3.0)) * chance.uniform(0.5, 1.5), FAULTS_SECONDS - at)
        if targets:
            target, kind = chance.choice(targets), chance.choice(GATEWAY_FAULTS)
            peer = chance.choice([CLIENTS, CLIENTS, *machines, *others])
        else:
            target, kind, peer = chance.choice(machines), chance.choice(GATEWAY_LINK_FAULTS), CLIENTS
        faults.append(
            Fault(at, kind, target, seconds, peer if kind in HAVE_A_PEER else "", chance.random() < 0.7)
        )
    return faults


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number + 1}" for number in range(count)]


def _about_coordinators(
    chance: random.Random, nodes: int, controllers: int, targets: list[str]
) -> list[Fault]:
    """One of `targets` is gone, or is taken for gone and does not know."""
    faults = []
    others = _names("controller", controllers)
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        at, kind = chance.uniform(0.2, FAULTS_SECONDS - 1.0), chance.choice(COORDINATOR_FAULTS)
        seconds = chance.choice((0.05, 0.5, 2.0, 4.0)) * chance.uniform(0.5, 1.5)
        target = targets[chance.randint(1, len(targets)) - 1]
        peers = [each for each in _names("node", nodes) if each != target]
        if kind == DEPOSED:
            faults += [Fault(at, "cut", target, seconds + 2.0, other, is_both_ways=True) for other in others]
        else:
            peer = chance.choice([*peers, *peers, *others]) if kind in HAVE_A_PEER else ""
            faults.append(Fault(at, kind, target, seconds, peer, chance.random() < 0.7))
    return faults


def _about_owners(
    chance: random.Random, faults: list[Fault], gateways: int, coordinators: int, *, may_be_alone: bool
) -> list[Fault]:
    """`faults`, and something of the coordinator that owns the group comes late, or it owns the group no more and does
    not know.

    The target only says that it is a coordinator: which one is known when it happens.
    """
    if not gateways or chance.random() < 0.5:
        return faults
    kind = chance.choice((LATE_WRITE, ISLAND, REPEATED_WRITE) if coordinators > 1 else (REPEATED_WRITE,))
    if kind == REPEATED_WRITE:
        at, seconds = chance.uniform(0.5, FAULTS_SECONDS - 3.0), chance.uniform(0.3, 2.5)
    else:
        at, seconds = chance.uniform(0.5, 1.5), chance.uniform(5.0, 6.5)
    peer = f"gateway-{chance.randint(1, gateways)}" if kind == ISLAND else ""
    if chance.random() < 0.7 and may_be_alone:
        # Nobody else starts or ends in between, so that the group has the same leader all the time.
        faults = [each for each in faults if each.at > at + seconds]
    return [*faults, Fault(at, kind, "coordinator-1", seconds, peer)]


def _pair(chance: random.Random, nodes: int, *, loses_power: bool, replicates: bool) -> list[Fault]:
    """Two at one node, where the first is about its clients if it is about a link."""
    target = f"node-{chance.randint(1, nodes)}"
    kinds = TOGETHER + 2 * TOGETHER_AMONG_NODES if replicates else TOGETHER
    first, second = chance.choice([each for each in kinds if loses_power or "power" not in each])
    at, before = chance.uniform(0.5, FAULTS_SECONDS - 1.5), chance.expovariate(1 / 0.1)
    seconds = chance.choice((0.05, 0.5, 2.0)) * chance.uniform(0.5, 1.5)
    peer = CLIENTS if first in HAVE_A_PEER else ""
    began = max(0.1, at - before)
    return [
        Fault(began, first, target, at - began + chance.uniform(0.01, 0.5), peer),
        Fault(at, second, target, seconds, CLIENTS if second in HAVE_A_PEER else ""),
    ]


def _fault(chance: random.Random, nodes: int, controllers: int, *, loses_power: bool) -> Fault:
    at = chance.uniform(0.2, FAULTS_SECONDS - 0.5)
    seconds = min(chance.choice((0.05, 0.3, 1.0, 3.0, 5.0)) * chance.uniform(0.5, 1.5), FAULTS_SECONDS - at)
    machines = [f"node-{number}" for number in range(1, nodes + 1)]
    others = [f"controller-{number}" for number in range(1, controllers + 1)]
    if chance.random() < 0.25:
        target, kind = chance.choice(others), chance.choice(CONTROLLER_FAULTS)
        peer = chance.choice(machines + [each for each in others if each != target])
        if kind == "pause" and chance.random() < 0.7:
            seconds = chance.uniform(3.0, 6.0)  # longer than its lease
    else:
        kinds = NODE_FAULTS + AMONG_NODES if nodes > 1 else NODE_FAULTS
        if loses_power:
            kinds = (*kinds, "power", "power", "failing syncs")
        target, kind = chance.choice(machines), chance.choice(kinds)
        peer = chance.choice([each for each in machines + others if each != target] + [CLIENTS])
    return Fault(at, kind, target, seconds, peer if kind in HAVE_A_PEER else "", chance.random() < 0.5)
