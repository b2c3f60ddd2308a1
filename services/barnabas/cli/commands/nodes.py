"""`barnabas nodes`: which storage nodes there are, and how one leaves the cluster or comes back into service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.balance.cluster_state import ClusterState, Node, Reassignment
from barnabas.cli.commands import carrying_out, flags
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.commands.shell_command import ShellCommand
from barnabas.cli.refusal import Refused
from barnabas.cli.text.output import Column, OutputFormat, counted, say, show_rows
from barnabas.kernel.cordoned import ALL_DIRECTORIES

if TYPE_CHECKING:
    from barnabas.cli.balance.draining import Drain
    from barnabas.cli.kafka.administration import Administration

app = typer.Typer(
    help="Storage nodes: list them, move everything off one, take it back, forget it.",
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

COLUMNS: Final = (
    Column("id", "ID", "cyan", is_number=True),
    Column("rack", "RACK"),
    Column("endpoint", "ENDPOINT"),
    Column("state", "STATE"),
    Column("replicas", "REPLICAS", is_number=True),
    Column("leaders", "LEADERS", is_number=True),
    Column("bytes", "BYTES", "green", is_number=True),
    Column("room", "ROOM", is_number=True),
    Column("logDirs", "LOG-DIRS"),
)

NodeWord = Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node's id.", show_default=False)]


@app.command("list", cls=ShellCommand)
@spread
def list_nodes(
    output: flags.Output = OutputFormat.table,
    *,
    cluster: flags.ClusterFlags,
) -> None:
    """The nodes: state, replicas, leaders, bytes, and the room in their log directories."""
    from barnabas.cli.kafka.cluster_reading import read_state

    with cluster.look() as administration:
        state = read_state(administration)
    rows = [node_row(state, node) for node in state.nodes]
    if output is OutputFormat.table:
        rows = [row | {"logDirs": [each["logDir"] for each in row["logDirs"] or ()]} for row in rows]
    show_rows(rows, COLUMNS, output, title="nodes")


def node_row(state: ClusterState, node: Node) -> dict[str, Any]:
    """One node as plain data; what is not known is None."""
    held = state.replicas_on(node.node_id)
    return {
        "id": node.node_id,
        "rack": node.rack or None,
        "endpoint": f"{node.host}:{node.port}" if node.host is not None else None,
        "state": state_of(node, len(held)),
        "replicas": len(held),
        "leaders": None if state.is_shown_as_one else sum(part.leader == node.node_id for part in held),
        "bytes": state.bytes_on(node.node_id),
        "room": node.usable_bytes,
        "logDirs": None
        if node.directories is None
        else [
            {
                "logDir": directory.path,
                "error": directory.error,
                "totalBytes": directory.total_bytes,
                "usableBytes": directory.usable_bytes,
            }
            for directory in node.directories
        ],
    }


def state_of(node: Node, replicas: int) -> str:
    """What a node is in, in one or two words."""
    if not node.is_registered:
        return "unknown"
    words = ["fenced"] if node.is_fenced else []
    if node.is_draining:
        words.append("draining" if replicas else "drained")
    return ",".join(words) or "alive"


@app.command(cls=ShellCommand)
@spread
def drain(
    node: NodeWord,
    fewer_replicas: Annotated[
        bool,
        typer.Option(
            "--fewer-replicas",
            help="Partitions for which there are too few other nodes get one replica less.",
        ),
    ] = False,
    *,
    pace: carrying_out.Pace,
    cluster: flags.ClusterFlags,
) -> None:
    """Move every replica off a node, which gets nothing new meanwhile. Stopped half way, it goes on when run again."""
    from barnabas.cli.balance.draining import plan_drain
    from barnabas.cli.kafka.cluster_reading import read_state

    with cluster.administer() as administration:
        state = read_state(administration)
        leaving = known_node(state, node)
        check_drain(plan_drain(state, node, allow_fewer=fewer_replicas), state, node)
        if leaving.is_registered:
            _cordon(administration, leaving)
            state = read_state(administration)  # with what it was given until now

        def planned(now: ClusterState) -> Drain:
            plan = plan_drain(now, node, allow_fewer=fewer_replicas)
            check_drain(plan, now, node)
            return plan

        plan, done = carrying_out.see_through(
            *(administration, state, planned, pace),
            unfinished=f"node {node} still has replicas: run `barnabas nodes drain {node}` again",
        )
    if plan.leaderless:
        raise Refused(leaderless(plan, node))
    say(
        f"node {node} has no replicas any more ({what_was_done(done)}): "
        f"{'stop it and ' if leaving.is_alive else ''}run `barnabas nodes remove {node}`, or take it back with "
        f"`barnabas nodes undrain {node}`"
    )


def what_was_done(done: Sequence[Reassignment]) -> str:
    """How many partitions were reassigned, and how many of them have fewer replicas for it."""
    fewer = sum(len(reassignment.after) < len(reassignment.before) for reassignment in done)
    return f"{counted(len(done), 'partition')} reassigned" + (
        f", {fewer:,} of them with one replica less" if fewer else ""
    )


def known_node(state: ClusterState, node_id: int) -> Node:
    """The node of this id; Refused when there is none."""
    found = state.by_id.get(node_id)
    if found is None:
        there = ", ".join(str(node.node_id) for node in state.nodes)
        raise Refused(f"no node {node_id}: there are {there}")
    return found


def check_drain(plan: Drain, state: ClusterState, node_id: int) -> None:
    """Raise Refused where the other nodes cannot hold what the node has."""
    others = sum(node.takes_replicas for node in state.nodes if node.node_id != node_id)
    if plan.too_many_replicas:
        why, more = (
            "every other node has a replica",
            ", or let them have one replica less with --fewer-replicas",
        )
        if others == 0:
            why, more = "no other node takes replicas", ""
        raise Refused(
            f"{_partitions(plan.too_many_replicas)} cannot leave node {node_id}: {why}; start another node{more}"
        )
    if plan.no_room:
        raise Refused(
            f"{_partitions(plan.no_room)} fit on no other node: `barnabas nodes list` shows the room there is; "
            "start another node, or give topics a shorter retention.ms"
        )


def leaderless(plan: Drain, node_id: int) -> str:
    """What is left on a node because there is nobody to copy it from."""
    return (
        f"{_partitions(plan.leaderless)} stay on node {node_id}: nobody leads them, so there is nobody to copy them "
        "from. Bring back who may lead (`barnabas topics --describe --unavailable-partitions`), or delete their topics "
        "if their disks are gone"
    )


def _partitions(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'partition')} such as {names[0]}"


def _cordon(administration: Administration, node: Node) -> None:
    from barnabas.cli.kafka.cluster_reading import CORDONED
    from barnabas.cli.kafka.config_values import change_broker

    if node.cordoned and not node.is_draining:
        say(
            f"{CORDONED} of node {node.node_id} was {','.join(node.cordoned)}: `nodes undrain` takes that away"
        )
    try:
        change_broker(administration, node, {CORDONED: ALL_DIRECTORIES})
    except Refused as error:
        say(f"node {node.node_id} may still get new partitions ({error})")


@app.command(cls=ShellCommand)
@spread
def undrain(
    node: NodeWord,
    *,
    cluster: flags.ClusterFlags,
) -> None:
    """Take a node back into service: it gets new partitions again, and by `barnabas rebalance` its share of the old."""
    from barnabas.cli.kafka.cluster_reading import CORDONED, read_state
    from barnabas.cli.kafka.config_values import change_broker

    with cluster.administer() as administration:
        known = known_node(read_state(administration), node)
        if not known.is_registered:
            raise Refused(f"node {node} is not in the cluster: start it, then it takes new partitions")
        if not known.cordoned:
            say(f"node {node} was in service already")
            return
        change_broker(administration, known, {CORDONED: None})
    say(f"node {node} gets new partitions again; `barnabas rebalance` gives it a share of those there are")


@app.command(cls=ShellCommand)
@spread
def remove(
    node: NodeWord,
    *,
    cluster: flags.ClusterFlags,
) -> None:
    """Make the cluster forget a node that has no replicas and was stopped (UnregisterBroker)."""
    from barnabas.cli.kafka.cluster_reading import CORDONED, read_state
    from barnabas.cli.kafka.config_values import change_broker
    from barnabas.cli.kafka.requests import unregister_broker

    with cluster.administer() as administration:
        state = read_state(administration)
        known = known_node(state, node)
        check_removal(state, known)
        if known.cordoned:
            # It would come back cordoned, under an operator who knows nothing of it.
            try:
                change_broker(administration, known, {CORDONED: None})
            except Refused as error:
                say(f"{CORDONED} of node {node} stays set ({error})")
        unregister_broker(administration.connection, node)
    say(f"the cluster has forgotten node {node}; its disks may go")


def check_removal(state: ClusterState, node: Node) -> None:
    """Raise Refused for a node that cannot be forgotten without harm."""
    number = node.node_id
    held = len(state.replicas_on(number))
    if not node.is_registered:
        raise Refused(
            f"node {number} is forgotten already, but has {counted(held, 'replica')}: "
            f"`barnabas nodes drain {number}` moves them"
        )
    if held:
        raise Refused(
            f"node {number} has {counted(held, 'replica')}: `barnabas nodes drain {number}` moves them off it"
        )
    if node.is_alive:
        raise Refused(
            f"node {number} is running, and would register again at once: stop it, then run this again"
        )
