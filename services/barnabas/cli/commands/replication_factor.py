"""`barnabas topics --alter --replication-factor`: topics get more replicas, or fewer, by reassignments."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from barnabas.cli.balance.cluster_state import ClusterState
from barnabas.cli.balance.replication_factor import FactorPlan, plan_replication_factor
from barnabas.cli.commands import carrying_out
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.cluster_reading import read_state
from barnabas.cli.kafka.config_values import topic_values
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.refusal import Refused
from barnabas.cli.text.output import Column, OutputFormat, counted, say, show_rows

MIN_IN_SYNC: Final = "min.insync.replicas"

COLUMNS: Final = (
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("replicasBefore", "REPLICAS"),
    Column("replicas", "AFTER", "green"),
    Column("bytesMoved", "BYTES", is_number=True),
)


def alter_replication_factor(
    connection: Connection,
    topics: Collection[str],
    factor: int,
    pace: carrying_out.Pace,
    output: OutputFormat,
    *,
    is_dry_run: bool,
) -> None:
    """Show the plan, and carry it out. Stopped half way, it goes on when run again."""

    def planned(now: ClusterState) -> FactorPlan:
        plan = plan_replication_factor(now, topics, factor)
        check_plan(plan, now, factor)
        return plan

    with Administration(connection) as administration:
        state = read_state(administration)
        plan = planned(state)
        rows = [carrying_out.reassignment_data(reassignment) for reassignment in plan.reassignments]
        show_rows(rows, COLUMNS, output, title="plan")
        say(summary(plan))
        if any(reassignment.removed for reassignment in plan.reassignments):
            _warn_of_min_in_sync(administration, topics, factor)
        if is_dry_run:
            return
        plan, _ = carrying_out.see_through(
            *(administration, state, planned, pace),
            unfinished="not all was done: the same command plans what is left",
        )
    if plan.leaderless:
        raise Refused(
            f"{_partitions(plan.leaderless)} stay as they are: nobody leads them, so there is nobody to copy them "
            "from. `barnabas doctor` says who may"
        )


def summary(plan: FactorPlan) -> str:
    """The plan in one line."""
    added = sum(len(reassignment.added) for reassignment in plan.reassignments)
    removed = sum(len(reassignment.removed) for reassignment in plan.reassignments)
    parts = [f"{counted(added, 'replica')} to be added, {plan.bytes_moved:,} bytes"] if added else []
    parts += [f"{counted(removed, 'replica')} to be removed"] if removed else []
    parts += [f"waiting for {counted(len(plan.under_way), 'reassignment')}"] if plan.under_way else []
    return "; ".join(parts) or "no replica is to be added or removed"


def check_plan(plan: FactorPlan, state: ClusterState, factor: int) -> None:
    """Raise Refused where there are too few nodes, or too little room, for that many replicas."""
    if plan.too_few_nodes:
        takers = counted(sum(node.takes_replicas for node in state.nodes), "node")
        raise Refused(
            f"{_partitions(plan.too_few_nodes)} cannot have {counted(factor, 'replica')}: there are {takers} that take "
            "replicas (`barnabas nodes list`); start another one"
        )
    if plan.no_room:
        raise Refused(
            f"{_partitions(plan.no_room)} fit on no further node: `barnabas nodes list` shows the room there is; "
            "start another node, or give topics a shorter retention.ms"
        )


def _warn_of_min_in_sync(administration: Administration, topics: Collection[str], factor: int) -> None:
    """Say so where writes need every replica from then on."""
    for topic, values in topic_values(administration, topics, (MIN_IN_SYNC,)).items():
        needed = int(values.get(MIN_IN_SYNC, 1))
        if 1 < factor <= needed:
            say(
                f"{topic} has {MIN_IN_SYNC}={needed}: with {counted(factor, 'replica')} acks=all is refused while any "
                "of them is away"
            )


def _partitions(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'partition')} such as {names[0]}"
