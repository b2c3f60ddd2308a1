"""`barnabas log-dirs move` and `even`: replicas of one node go to another of its log directories."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.balance.cluster_state import Node
from barnabas.cli.balance.directory_moves import Holding, Move, MovePlan, plan_even, plan_moves
from barnabas.cli.commands import carrying_out, flags
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import Column, OutputFormat, counted, say, show_rows

if TYPE_CHECKING:
    from barnabas.cli.kafka.administration import Administration
    from barnabas.cli.kafka.directory_moves import MovesOutcome

COLUMNS: Final = (
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("logDirBefore", "LOG-DIR"),
    Column("logDir", "AFTER", "green"),
    Column("bytesMoved", "BYTES", is_number=True),
)

BrokerFlag = Annotated[
    int | None, typer.Option("--broker", min=0, metavar="ID", help="The broker whose replicas move.")
]
SourceFlag = Annotated[str, typer.Option("--from", metavar="DIR", help="Only what is in this directory.")]
TargetFlag = Annotated[
    str, typer.Option("--to", metavar="DIR", help="Where it goes; else to the emptiest of the others.")
]
ThrottleFlag = Annotated[
    int | None, typer.Option(metavar="BYTES", min=1, help="Bytes a second that are moved, at most.")
]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Show the plan, change nothing.")]


@dataclass(frozen=True)
class MoveFlags:
    """What moves, and how."""

    broker: BrokerFlag = None
    source: SourceFlag = ""
    target: TargetFlag = ""
    throttle: ThrottleFlag = None
    give_up_after: carrying_out.GiveUpAfterFlag = 120.0
    dry_run: DryRunFlag = False

    def check(self, what: str, *, is_of_topics: bool, is_of_brokers: bool) -> None:
        """Raise Refused for flags that say nothing to the action."""
        if what == "describe":
            if self != MoveFlags():
                raise usage(
                    "--broker, --from, --to, --throttle, --give-up-after and --dry-run are for log-dirs move and even"
                )
            return
        if self.broker is None or is_of_brokers:
            raise usage(f"log-dirs {what} is about the directories of one node: say --broker ID")
        if what == "even" and (self.source or self.target or is_of_topics):
            raise usage(
                "log-dirs even finds out by itself what goes where: leave --from, --to and topics out"
            )
        if what == "move" and not (self.source or self.target):
            raise usage("log-dirs move needs --from DIR, --to DIR, or both")


def move_replicas(
    cluster: flags.ClusterFlags, what: str, topics: Collection[str], wanted: MoveFlags, output: OutputFormat
) -> None:
    """Show the plan, and carry it out. Stopped half way, it goes on when run again."""
    from barnabas.cli.commands.nodes import known_node
    from barnabas.cli.kafka.cluster_reading import read_state
    from barnabas.cli.kafka.directory_moves import read_holding

    with cluster.administer() as administration:
        state = read_state(administration)
        if state.is_shown_as_one:
            raise Refused("one broker stands for all nodes here: nobody can say which directory is whose")
        assert wanted.broker is not None, "it was checked"
        node = known_node(state, wanted.broker)
        holding = read_holding(administration, node)
        check_names(holding, node, topics, wanted)
        plan = (
            plan_even(holding)
            if what == "even"
            else plan_moves(holding, source=wanted.source, target=wanted.target, topics=topics)
        )
        check_target(plan, holding, node, wanted.target)
        show_rows([move_data(move) for move in plan.moves], COLUMNS, output, title="plan")
        say(summary(plan))
        check_room(plan, holding, node)
        if wanted.dry_run:
            return
        outcome = carry_out_plan(administration, node, plan, wanted)
    tell_outcome(outcome, node)


def check_names(holding: Holding, node: Node, topics: Collection[str], wanted: MoveFlags) -> None:
    """Raise Refused for directories and topics that the node does not have."""
    paths = [directory.path for directory in holding.directories]
    for path in (wanted.source, wanted.target):
        if path and path not in paths:
            raise Refused(f"node {node.node_id} has no log directory {path}: it has {', '.join(paths)}")
    missing = sorted(set(topics).difference(replica.topic for replica in holding.replicas))
    if missing:
        raise Refused(f"node {node.node_id} has no replica of {', '.join(missing)}")


def check_target(plan: MovePlan, holding: Holding, node: Node, target: str) -> None:
    """Raise Refused for moves to a cordoned directory, which the node would not begin."""
    if plan.moves and any(each.path == target and each.is_cordoned for each in holding.directories):
        raise Refused(
            f"{target} of node {node.node_id} is cordoned and takes nothing: name another directory, or open all of "
            f"its directories with `barnabas configs --alter --broker {node.node_id} --delete-config cordoned.log.dirs`"
        )


def check_room(plan: MovePlan, holding: Holding, node: Node) -> None:
    """Raise Refused where some of it fits nowhere."""
    if not plan.no_room:
        return
    stays = f"{counted(len(plan.no_room), 'partition')} such as {plan.no_room[0]}"
    if len(holding.directories) == 1:
        raise Refused(
            f"{stays} cannot move: {holding.directories[0].path} is the one log directory of node {node.node_id}. Add "
            "another to its log.dirs and restart it, or let other nodes have some with `barnabas rebalance`"
        )
    raise Refused(
        f"{stays} fit into no directory: `barnabas nodes list --output json` shows the room in each"
    )


def move_data(move: Move) -> dict[str, Any]:
    """One move as plain data."""
    return {
        "topic": move.topic,
        "partition": move.number,
        "logDir": move.after,
        "logDirBefore": move.before,
        "bytesMoved": move.size_bytes,
    }


def summary(plan: MovePlan) -> str:
    """The plan in one line."""
    moves = f"{counted(len(plan.moves), 'replica')} to be moved, {plan.bytes_moved:,} bytes"
    return moves + (
        f"; {counted(len(plan.under_way), 'replica')} under way already" if plan.under_way else ""
    )


def tell_outcome(outcome: MovesOutcome, node: Node) -> None:
    """Say what was moved. Raises Refused where not all was."""
    for (topic, number), problem in list(outcome.refused.items())[:1]:
        raise Refused(
            f"{counted(len(outcome.refused), 'replica')} refused, such as that of {topic}-{number}: {problem}"
        )
    if outcome.ended:
        first = outcome.ended[0]
        raise Refused(
            f"{counted(len(outcome.ended), 'replica')} such as that of {first.topic}-{first.number} did not move: it "
            "was called off, the replica has left the node, or a disk failed. "
            f"`barnabas log-dirs --describe --broker-list {node.node_id}` shows where it is; run this again to move it"
        )
    say(f"{counted(len(outcome.done), 'replica')} moved")


def carry_out_plan(
    administration: Administration, node: Node, plan: MovePlan, wanted: MoveFlags
) -> MovesOutcome:
    """Carry it out at the pace that is wanted. Raises Refused where nothing comes forward."""
    from barnabas.cli.kafka.directory_moves import NodeOfMoves, carry_out
    from barnabas.cli.kafka.temporary_throttles import TemporaryThrottles

    everything = (*plan.moves, *plan.under_way)
    size_bytes = sum(move.size_bytes for move in everything)
    with TemporaryThrottles(administration) as throttles:
        if wanted.throttle is not None and everything:
            throttles.throttle_moves(node, wanted.throttle)
        with carrying_out.told("moving", len(everything), size_bytes, "replicas") as progress:
            return carry_out(
                *(NodeOfMoves(administration, node), plan.moves, plan.under_way),
                give_up_seconds=wanted.give_up_after,
                report=progress.report,
                remark=say,
            )
