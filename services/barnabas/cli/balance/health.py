"""What is not as it should be in a cluster, and what to do about it: the lines of `barnabas doctor`.

A pure function of what was read. A line that is a problem makes the cluster unhealthy; a remark does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.cli.balance.cluster_state import NO_LEADER, ClusterState, Directory, Node, Partition, Place
from barnabas.cli.balance.evenness import sharing_a_rack
from barnabas.cli.balance.late_transactions import LateTransaction, Transaction
from barnabas.cli.balance.layout import Layout
from barnabas.cli.balance.planner import plan_rebalance
from barnabas.cli.text.output import counted

NAMES_MAX: Final = 3
"""How many names a line gives as examples."""

REPLICAS: Final = 3
"""What internal topics have where there are as many nodes, and others should."""

FREE_SHARE_MIN: Final = 0.1
"""A directory with less room than this share of its file system is nearly full."""

UNEVEN_SHARE: Final = 0.3
"""How far from the mean a node may be, as a share of it, before that is a problem: `rebalance` goes farther."""

LEADERS_SLACK: Final = 2
"""Partitions that a node may lead more or less than the mean, however few there are."""

MOVES_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
"""What moves between the log directories of a node may copy."""

LEADERS_ONLY: Final = "rebalance --leaders-only"


@dataclass(frozen=True, slots=True)
class Throttle:
    """A replication throttle that is set: on a topic's replicas or on a broker's rate."""

    resource: str
    """`topic NAME` or `broker N`."""
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Examined:
    """What is looked at."""

    state: ClusterState
    min_in_sync: Mapping[str, int] = field(default_factory=dict)
    """min.insync.replicas by topic."""
    throttles: Sequence[Throttle] = ()
    move_rates: Mapping[int, str] = field(default_factory=dict)
    """By node: what its moves between log directories may copy a second, where that was set for it alone."""
    late_transactions: Sequence[LateTransaction] = ()
    """Transactions that are open for longer than any may be."""
    why_no_transactions: str = ""
    """Why it is not known which these are, though something hides records from readers of committed ones."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page."""

    check: str
    what: str
    to_do: str
    subjects: tuple[str, ...] = ()
    """All that it is about."""
    is_problem: bool = True


def examine(examined: Examined) -> list[Finding]:
    """The findings, the gravest first; none where all is well."""
    return [finding for check in _CHECKS for finding in check(examined)]


def _nodes_away(examined: Examined) -> Iterator[Finding]:
    for node in examined.state.nodes:
        held = len(examined.state.replicas_on(node.node_id))
        gone = f"`barnabas nodes drain {node.node_id}`, then `barnabas nodes remove {node.node_id}`"
        if not node.is_registered:
            yield Finding(
                "node-unknown",
                f"node {node.node_id} is not in the cluster, and has {counted(held, 'replica')}",
                f"start it; if it is gone for good: `barnabas nodes drain {node.node_id}`",
                (str(node.node_id),),
            )
        elif node.is_fenced:
            yield Finding(
                "node-fenced",
                f"node {node.node_id} is fenced, with {counted(held, 'replica')}",
                f"start it, or see its log; if it is gone for good: {gone}",
                (str(node.node_id),),
            )
        elif node.directories is None and not examined.state.is_shown_as_one:
            yield Finding(
                "node-silent",
                f"node {node.node_id} counts as alive, and did not answer at {node.host}:{node.port}",
                "run `barnabas doctor` again in a minute; if it stays so, see the node's log, or its gateway's",
                (str(node.node_id),),
            )


def _directories(examined: Examined) -> Iterator[Finding]:
    for node in examined.state.nodes:
        for directory in node.directories or ():
            name = f"{directory.path} of node {node.node_id}"
            if directory.error is not None:
                yield Finding(
                    "directory-failed",
                    f"{name} has failed ({directory.error})",
                    f"replace the disk and restart the node, or `barnabas nodes drain {node.node_id}`",
                    (name,),
                )
    for node, directory in _nearly_full(examined.state):
        name = f"{directory.path} of node {node.node_id}"
        yield Finding(
            "disk-nearly-full",
            f"{name} has {_share(directory.usable_bytes, directory.total_bytes)} of its room left",
            f"{_within_the_node(node, directory)}`barnabas rebalance` if others have room; else a larger disk, or "
            f"a shorter retention.ms"
            f"{_largest_topic(examined.state, node.node_id)}",
            (name,),
        )


def _nearly_full(state: ClusterState) -> Iterator[tuple[Node, Directory]]:
    for node in state.nodes:
        for directory in node.directories or ():
            if directory.error is None and _is_nearly_full(directory):
                yield node, directory


def _is_nearly_full(directory: Directory) -> bool:
    total, usable = directory.total_bytes, directory.usable_bytes
    return bool(total and usable is not None and usable < total * FREE_SHARE_MIN)


def _within_the_node(node: Node, full: Directory) -> str:
    """The nearest help, where another directory of the node has room and takes what this one has."""
    for other in node.directories or ():
        is_open = other.error is None and not other.is_cordoned and other.path != full.path
        if is_open and other.usable_bytes is not None and not _is_nearly_full(other):
            return f"`barnabas log-dirs even --broker {node.node_id}`; or "
    return ""


def _largest_topic(state: ClusterState, node_id: int) -> str:
    sizes: Counter[str] = Counter()
    for part in state.replicas_on(node_id):
        sizes[part.topic] += part.sizes.get(node_id, part.size_bytes)
    return "".join(f" of {topic}, which has most there" for topic, size in sizes.most_common(1) if size)


def _share(part: int | None, whole: int | None) -> str:
    return f"{100 * (part or 0) / (whole or 1):.1f}%"


def _offline(examined: Examined) -> Iterator[Finding]:
    found = [part for part in examined.state.partitions if part.leader == NO_LEADER]
    waited_for = sorted({node for part in found for node in _may_lead(part)})
    word = "node" if len(waited_for) == 1 else "nodes"
    nodes = f" ({word} {', '.join(map(str, waited_for))})" if waited_for else ""
    yield from _about(
        "offline",
        found,
        "without a leader: nobody can write to or read from {them}",
        f"bring back those that may lead{nodes}: `barnabas topics --describe --unavailable-partitions`",
    )


def _may_lead(partition: Partition) -> Sequence[int]:
    return partition.isr or partition.eligible or partition.last_known_eligible or partition.replicas


def _below_min_in_sync(examined: Examined) -> Iterator[Finding]:
    found = [
        part
        for part in examined.state.partitions
        if part.leader != NO_LEADER
        and len(part.isr)
        < min(examined.min_in_sync.get(part.topic, 1), max(len(part.replicas) - len(part.adding), 1))
    ]
    yield from _about(
        "under-min-isr",
        found,
        "below min.insync.replicas: acks=all is refused",
        "`barnabas topics --describe --under-min-isr-partitions` names the replicas to bring back",
    )


def _under_replicated(examined: Examined) -> Iterator[Finding]:
    away = {node.node_id for node in examined.state.nodes if not node.is_alive}
    full = {node.node_id for node, _ in _nearly_full(examined.state)}
    by_node: dict[tuple[int, bool], list[Partition]] = {}
    for part in examined.state.partitions:
        for replica in part.out_of_sync:
            is_refused = replica in part.offline and replica not in away
            by_node.setdefault((replica, is_refused), []).append(part)
    for (node_id, is_refused), parts in sorted(by_node.items()):
        behind = sum(max(part.size_bytes - part.sizes.get(node_id, part.size_bytes), 0) for part in parts)
        how = "which is away" if node_id in away else f"about {behind:,} bytes behind"
        yield from _about(
            "under-replicated",
            parts,
            f"out of sync on node {node_id}, {'whose disk refuses them' if is_refused else how}",
            _to_bring_back(
                *(node_id, node_id in away, node_id in full),
                is_refused=is_refused,
                is_throttled=bool(examined.throttles),
            ),
        )


def _to_bring_back(
    node_id: int, is_away: bool, is_full: bool, *, is_refused: bool, is_throttled: bool
) -> str:
    if is_away:
        return f"start node {node_id} again; `barnabas nodes list` shows where it is"
    if is_full:
        return f"it goes on once node {node_id} has room on its disk"
    if is_refused:
        return (
            f"node {node_id}'s log names the directory: it goes on by itself once that takes records again; after a "
            "failed sync, or with another disk, restart the node"
        )
    if is_throttled:
        return "it catches up by itself, as slowly as the replication throttles let it"
    return f"it catches up by itself; if it does not, look at node {node_id}'s disk and log"


def _transactions(examined: Examined) -> Iterator[Finding]:
    """Records behind an open transaction are hidden from readers of committed records, whoever wrote them."""
    hanging = [each.producer for each in examined.late_transactions if each.is_hanging]
    if hanging:
        (topic, number), start = hanging[0].place, hanging[0].start_offset
        others = "" if len(hanging) == 1 else "; `barnabas transactions find-hanging` shows the others"
        yield Finding(
            "hanging-transaction",
            f"{counted(len(hanging), 'transaction')} open that no coordinator will end: readers of committed records "
            f"wait ({_shown(each.place for each in hanging)})",
            f"`barnabas transactions abort {topic} --partition {number} --start-offset {start}`{others}",
            _names(each.place for each in hanging),
        )
    by_id: dict[str, tuple[Transaction, list[Place]]] = {}
    for each in examined.late_transactions:
        if each.awaited is not None:
            by_id.setdefault(each.awaited.transactional_id, (each.awaited, []))[1].append(each.producer.place)
    for name, (transaction, places) in sorted(by_id.items()):
        yield Finding(
            "late-transaction",
            f"the transaction of {name} ({transaction.state}) should have ended, and has not in {_shown(places)}: "
            "readers of committed records wait",
            f"see the log of its coordinator, node {transaction.coordinator}; `barnabas transactions describe {name}` "
            "shows which partitions it has to tell",
            _names(places),
        )
    if examined.why_no_transactions:
        yield Finding(
            "transactions-unknown",
            f"whether transactions hang is not known: {examined.why_no_transactions}",
            "`barnabas transactions find-hanging` looks again",
            is_problem=False,
        )


def _reassignments(examined: Examined) -> Iterator[Finding]:
    found = [part for part in examined.state.partitions if part.is_being_reassigned]
    alive = {node.node_id for node in examined.state.nodes if node.is_alive}
    stuck = sorted({node for part in found for node in part.adding if node not in alive})
    nodes = ", ".join(map(str, stuck))
    yield from _about(
        "reassigning",
        found,
        f"being reassigned, and waiting for node {nodes}" if stuck else "being reassigned",
        f"bring back node {nodes}, or give them up: `barnabas rebalance --cancel`"
        if stuck
        else "wait for it; `barnabas rebalance --cancel` gives it up",
    )


def _throttles(examined: Examined) -> Iterator[Finding]:
    if examined.throttles and not any(part.is_being_reassigned for part in examined.state.partitions):
        subjects = tuple(f"{each.resource}: {each.name}={each.value}" for each in examined.throttles)
        yield Finding(
            "throttles-left",
            f"{counted(len(subjects), 'replication throttle')} set, though nothing is being reassigned",
            "`barnabas rebalance --cancel` takes them away",
            subjects,
        )
    for node in examined.state.nodes:
        rate = examined.move_rates.get(node.node_id)
        if rate is not None and not any(each.future_replicas for each in node.directories or ()):
            yield Finding(
                "throttles-left",
                f"node {node.node_id} has {MOVES_RATE}={rate}, though nothing moves between its directories",
                f"`barnabas configs --alter --broker {node.node_id} --delete-config {MOVES_RATE}`",
                (str(node.node_id),),
            )


def _internal_topics(examined: Examined) -> Iterator[Finding]:
    takers = sum(node.takes_replicas for node in examined.state.nodes)
    wanted = min(REPLICAS, takers)
    found = [
        part
        for part in examined.state.partitions
        if part.is_internal and not part.is_being_reassigned and len(part.replicas) < wanted
    ]
    yield from _about(
        "internal-replicas",
        found,
        f"of internal topics with fewer than {wanted} replicas",
        "they grow by themselves unless offsets.topic.replication.factor is set; then "
        f"{_with_replicas(found[0].topic if found else '', wanted)}",
    )


def _preferred_leaders(examined: Examined) -> Iterator[Finding]:
    found = [
        part
        for part in examined.state.partitions
        if part.leader not in (None, NO_LEADER, part.replicas[0]) and part.replicas[0] in part.isr
    ]
    yield from _about(
        "not-preferred-leader",
        found,
        "not led by the preferred replica, which is in sync",
        f"`barnabas {LEADERS_ONLY} --yes`",
    )


def _balance(examined: Examined) -> Iterator[Finding]:
    state = examined.state
    takers = [node for node in state.nodes if node.takes_replicas]
    if len(takers) < 2:
        return
    yield from _without_leaders(state, takers)
    sharing = sharing_a_rack(state)
    if sharing:
        yield Finding(
            "racks",
            f"{counted(sharing, 'partition')} with replicas that share a rack, while another rack has none",
            "`barnabas rebalance` moves them apart",
        )
    layout = Layout(state)
    if _farthest(layout.loads.values()) > UNEVEN_SHARE:
        plan = plan_rebalance(state)
        if plan.replicas_moved:
            yield Finding(
                "unbalanced",
                f"replicas and their bytes are uneven: {counted(plan.replicas_moved, 'replica')} with "
                f"{plan.bytes_moved:,} bytes would be moved",
                "`barnabas rebalance` shows the plan and asks; with --dry-run it only shows it",
            )
    elif _farthest([layout.leaders[node.node_id] for node in takers], slack=LEADERS_SLACK) > UNEVEN_SHARE:
        yield Finding(
            "leaders-uneven",
            "some nodes are the preferred leaders of many more partitions than others",
            f"`barnabas {LEADERS_ONLY}` moves no bytes",
        )


def _farthest(values: Iterable[float], slack: float = 0) -> float:
    """How far the farthest value is from the mean, beyond `slack`, as a share of the mean."""
    known = list(values)
    mean = sum(known) / len(known)
    return max(max(abs(value - mean) for value in known) - slack, 0) / mean if mean else 0.0


def _without_leaders(state: ClusterState, takers: Iterable[Node]) -> Iterator[Finding]:
    leads = {part.target[0] for part in state.partitions if part.target}
    idle = [str(node.node_id) for node in takers if node.node_id not in leads]
    if idle and len(state.partitions) >= len(state.nodes):
        nodes, them = (
            (f"node {idle[0]} leads", "it") if len(idle) == 1 else (f"nodes {', '.join(idle)} lead", "them")
        )
        yield Finding(
            "no-leaders",
            f"{nodes} nothing: who joins gets what is new, and nothing of what there is",
            f"`barnabas rebalance` gives {them} a share",
            tuple(idle),
        )


def _draining(examined: Examined) -> Iterator[Finding]:
    for node in examined.state.nodes:
        if node.is_draining:
            held = len(examined.state.replicas_on(node.node_id))
            number = node.node_id
            yield Finding(
                "draining",
                f"node {number} gets nothing new and has {counted(held, 'replica')}",
                f"`barnabas nodes drain {number}` goes on; `barnabas nodes undrain {number}` takes it back"
                if held
                else f"stop it, then `barnabas nodes remove {number}`; or `barnabas nodes undrain {number}`",
                (str(number),),
                is_problem=False,
            )


def _moves(examined: Examined) -> Iterator[Finding]:
    for node in examined.state.nodes:
        moving = [each for each in node.directories or () if each.future_replicas]
        if moving:
            count = sum(each.future_replicas for each in moving)
            paths = tuple(each.path for each in moving)
            yield Finding(
                "moving",
                f"{counted(count, 'replica')} of node {node.node_id} on the way to {', '.join(paths)}",
                f"wait for it; `barnabas log-dirs --describe --broker-list {node.node_id}` shows how far it is",
                paths,
                is_problem=False,
            )


def _cordoned(examined: Examined) -> Iterator[Finding]:
    for node in examined.state.nodes:
        closed = [each.path for each in node.directories or () if each.is_cordoned]
        if closed and not node.is_draining:
            get, them = ("gets", "it") if len(closed) == 1 else ("get", "them")
            yield Finding(
                "cordoned",
                f"{', '.join(closed)} of node {node.node_id} {get} nothing new",
                f"`barnabas log-dirs even --broker {node.node_id}` empties {them}; `barnabas configs --alter "
                f"--broker {node.node_id} --delete-config cordoned.log.dirs` takes {them} back",
                tuple(closed),
                is_problem=False,
            )


def _only_replicas(examined: Examined) -> Iterator[Finding]:
    found = [part for part in examined.state.partitions if len(part.target) == 1]
    takers = sum(node.takes_replicas for node in examined.state.nodes)
    if found and len(examined.state.nodes) > 1:
        more = _with_replicas(found[0].topic, max(min(takers, REPLICAS), 2))
        yield from _about(
            "one-replica",
            found,
            "with one replica: what is in {them} goes with its disk",
            f"if its records matter: {more}",
            is_problem=False,
        )


def _with_replicas(topic: str, factor: int) -> str:
    return f"`barnabas topics --alter --topic {topic} --replication-factor {factor}`"


def _about(
    check: str, partitions: Iterable[Partition], what: str, to_do: str, *, is_problem: bool = True
) -> Iterator[Finding]:
    """One finding about these partitions, if there are any."""
    found: list[Place] = sorted(part.place for part in partitions)
    if not found:
        return
    names, shown = _names(found), _shown(found)
    said = what.format(them="it" if len(names) == 1 else "them")
    yield Finding(check, f"{counted(len(names), 'partition')} {said} ({shown})", to_do, names, is_problem)


def _names(places: Iterable[Place]) -> tuple[str, ...]:
    return tuple(f"{topic}-{number}" for topic, number in places)


def _shown(places: Iterable[Place]) -> str:
    """Some of them, as examples."""
    names = _names(places)
    return ", ".join(names[:NAMES_MAX]) + (", ..." if len(names) > NAMES_MAX else "")


_CHECKS: Final[tuple[Callable[[Examined], Iterator[Finding]], ...]] = (
    _nodes_away,
    _directories,
    _offline,
    _below_min_in_sync,
    _under_replicated,
    _transactions,
    _reassignments,
    _throttles,
    _internal_topics,
    _preferred_leaders,
    _balance,
    _draining,
    _cordoned,
    _moves,
    _only_replicas,
)
