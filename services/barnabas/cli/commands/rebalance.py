"""`barnabas rebalance`: bytes, leaders and racks come to be even, with few bytes moved."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.balance.cluster_state import ClusterState, Reassignment
from barnabas.cli.balance.evenness import Share, after, shares
from barnabas.cli.balance.planner import TOLERANCE, Plan, plan_rebalance
from barnabas.cli.commands import carrying_out, flags
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import Column, OutputFormat, counted, say, show_document, show_rows

if TYPE_CHECKING:
    from barnabas.cli.kafka.administration import Administration

COLUMNS: Final = (
    Column("node", "NODE", "cyan", is_number=True),
    Column("rack", "RACK"),
    Column("replicas", "REPLICAS", is_number=True),
    Column("replicasAfter", "AFTER", "green", is_number=True),
    Column("leaders", "LEADERS", is_number=True),
    Column("leadersAfter", "AFTER", "green", is_number=True),
    Column("bytes", "BYTES", is_number=True),
    Column("bytesAfter", "AFTER", "green", is_number=True),
)

PLANS_MAX: Final = 5
"""Others reassign partitions meanwhile, and the controller those of internal topics: so often it is planned at most."""

UNFINISHED: Final = "not all was done: `barnabas rebalance` plans what is left"

LeadersOnlyFlag = Annotated[
    bool,
    typer.Option("--leaders-only", help="Move no replica: change who is preferred to lead, and let them."),
]
YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Show the plan, change nothing.")]
CancelFlag = Annotated[
    bool,
    typer.Option(
        "--cancel", help="Give up all that is being reassigned, and take replication throttles away."
    ),
]
ToleranceFlag = Annotated[
    float,
    typer.Option(
        min=0, max=1, help="How far from the mean a node may be, as a share of it, before bytes move."
    ),
]


@spread
def rebalance(
    leaders_only: LeadersOnlyFlag = False,
    yes: YesFlag = False,
    dry_run: DryRunFlag = False,
    cancel: CancelFlag = False,
    tolerance: ToleranceFlag = TOLERANCE,
    output: flags.Output = OutputFormat.table,
    *,
    pace: carrying_out.Pace,
    cluster: flags.ClusterFlags,
) -> None:
    """Even out bytes, leaders and racks: show the plan, ask, move. Stopped half way, it goes on when run again."""
    if cancel and (leaders_only or dry_run or pace.throttle is not None):
        raise usage("rebalance --cancel begins nothing: it goes with --yes alone")
    from barnabas.cli.balance.draining import reassignment_under_way
    from barnabas.cli.kafka.cluster_reading import read_state

    with cluster.administer() as administration:
        state = read_state(administration)
        if cancel:
            _cancel(administration, state, is_agreed=yes)
            return
        for turn in range(PLANS_MAX):
            under_way = [
                reassignment_under_way(part) for part in state.partitions if part.is_being_reassigned
            ]
            plan = plan_rebalance(state, leaders_only=leaders_only, tolerance=tolerance)
            if turn:
                say("planned again, for others changed what was planned:")
                _tell(state, plan, len(under_way))
            else:
                _show(state, plan, len(under_way), output)
            if dry_run:
                return
            _agree(plan, is_agreed=yes, is_begun=turn > 0)
            is_done = carry_out_plan(administration, state, plan.reassignments, under_way, pace)
            if is_done and not (turn and under_way):
                return
            # What was passed over may be under way by now: then it is waited for, and planned only after that.
            state = read_state(administration)
    raise Refused(UNFINISHED)


app = flags.application(rebalance)


def plan_rows(state: ClusterState, plan: Plan) -> list[dict[str, Any]]:
    """A row for each node: what it has and what it is to have."""

    def row(before: Share, then: Share) -> dict[str, Any]:
        return {
            "node": before.node_id,
            "rack": before.rack or None,
            "replicas": before.replicas,
            "replicasAfter": then.replicas,
            "leaders": before.preferred_leaders,
            "leadersAfter": then.preferred_leaders,
            "bytes": before.size_bytes,
            "bytesAfter": then.size_bytes,
        }

    return [row(*pair) for pair in zip(shares(state), shares(after(state, plan.reassignments)), strict=True)]


def _show(state: ClusterState, plan: Plan, under_way: int, output: OutputFormat) -> None:
    if output is not OutputFormat.table:
        document = {
            "nodes": plan_rows(state, plan),
            "partitions": [
                carrying_out.reassignment_data(reassignment) for reassignment in plan.reassignments
            ],
            "bytesMoved": plan.bytes_moved,
            "underWay": under_way,
        }
        show_document(document, output)
        return
    show_rows(plan_rows(state, plan), COLUMNS, output, title="plan")
    _tell(state, plan, under_way)


def _tell(state: ClusterState, plan: Plan, under_way: int) -> None:
    away = [str(node.node_id) for node in state.nodes if not node.is_alive]
    if away:
        say(f"what is on node {', '.join(away)}, which is away, stays there")
    if under_way:
        say(f"being reassigned already: {counted(under_way, 'partition')}, waited for and not changed")
    if plan.reassignments:
        say(
            f"{counted(plan.replicas_moved, 'replica')} to be moved, {plan.bytes_moved:,} bytes; "
            f"{counted(len(plan.reassignments), 'partition')} to be changed"
        )
    else:
        say("nothing is to be moved")


def _agree(plan: Plan, *, is_agreed: bool, is_begun: bool) -> None:
    """Ask, unless that was answered. Raises Refused for a no, or where nobody can be asked."""
    if is_agreed or not plan.reassignments:
        return
    if not sys.stdin.isatty():
        raise usage("nobody is there to be asked: add --yes, or --dry-run to see the plan alone")
    if not typer.confirm("carry it out?", err=True):
        raise Refused("nothing more was changed" if is_begun else "nothing was changed")


def carry_out_plan(
    administration: Administration,
    state: ClusterState,
    reassignments: Sequence[Reassignment],
    under_way: Sequence[Reassignment],
    pace: carrying_out.Pace,
) -> bool:
    """Carry it out at its pace, and have the preferred replicas lead; whether others left the plan as it was.

    Raises Refused where the cluster refused some of it, or somebody gave some up.
    """
    from barnabas.cli.kafka.reassigning import elect_preferred
    from barnabas.cli.kafka.temporary_throttles import TemporaryThrottles

    with TemporaryThrottles(administration) as throttles:
        if pace.throttle is not None:
            throttles.throttle_reassignments(state, (*reassignments, *under_way), pace.throttle)
        outcome = carrying_out.carry_out(administration, reassignments, under_way, pace)
    # Those that were deleted meanwhile are among them: they are no loss.
    elect_preferred(administration, [part.place for part in state.partitions])
    carrying_out.tell_outcome(outcome)
    if outcome.refused or outcome.given_up:
        raise Refused(UNFINISHED)
    return not outcome.passed_over


def _cancel(administration: Administration, state: ClusterState, *, is_agreed: bool) -> None:
    from barnabas.cli.kafka.reassigning import cancel_reassignments
    from barnabas.cli.kafka.throttling import remove_throttles

    reassigning = [part.place for part in state.partitions if part.is_being_reassigned]
    if reassigning and not is_agreed:
        if not sys.stdin.isatty():
            raise usage(f"{counted(len(reassigning), 'reassignment')} under way: add --yes to give up")
        if not typer.confirm(f"give up {counted(len(reassigning), 'reassignment')}?", err=True):
            raise Refused("nothing was changed")
    problems = cancel_reassignments(administration, reassigning)
    throttles = remove_throttles(administration, state)
    say(
        f"gave up {counted(len(reassigning) - len(problems), 'reassignment')}, "
        f"took {counted(throttles, 'throttle')} away"
    )
    for (topic, number), problem in list(problems.items())[:1]:
        raise Refused(
            f"not given up: {counted(len(problems), 'reassignment')}, such as that of {topic}-{number}: {problem}"
        )
