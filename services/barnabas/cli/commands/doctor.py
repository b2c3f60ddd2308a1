"""`barnabas doctor`: what is not as it should be in a cluster, on one page, and what to do about it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from barnabas.cli.balance.health import Examined, Finding, examine
from barnabas.cli.commands import flags
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.refusal import FAILED, Refused
from barnabas.cli.text.output import OutputFormat, counted, show_document

if TYPE_CHECKING:
    from barnabas.cli.balance.cluster_state import ClusterState
    from barnabas.cli.balance.late_transactions import LateTransaction
    from barnabas.cli.kafka.administration import Administration

LONGEST: Final = "transaction.max.timeout.ms"
LONGEST_MS: Final = 15 * 60 * 1000
"""What it is where no broker says it."""

LATE_MS: Final = 5 * 60 * 1000
"""By how much more than that a producer is silent before its transaction is late: as long as Kafka waits, too."""


@spread
def doctor(
    output: flags.Output = OutputFormat.table,
    *,
    cluster: flags.ClusterFlags,
) -> None:
    """What is not as it should be, and what to do about it. Status 0 when the cluster is healthy, 1 when it is not."""
    with cluster.look() as administration:
        examined = read_examined(administration)
    findings = examine(examined)
    if output is OutputFormat.table:
        _write(page(examined, findings))
    else:
        show_document([finding_data(finding) for finding in findings], output)
    if any(finding.is_problem for finding in findings):
        raise typer.Exit(FAILED)


app = flags.application(doctor)


def read_examined(administration: Administration) -> Examined:
    """The cluster's state, and the settings of its topics and brokers that matter."""
    from barnabas.cli.kafka.cluster_reading import read_state
    from barnabas.cli.kafka.config_values import topic_values
    from barnabas.cli.kafka.throttling import REPLICAS, read_move_rates, read_throttles

    state = read_state(administration)
    if any(node.is_alive and node.directories is None for node in state.nodes) and not state.is_shown_as_one:
        state = read_state(
            administration
        )  # who gave no answer may have been fenced while that was waited for
    late, why_not = read_late(administration, state)
    names = ("min.insync.replicas", *REPLICAS)
    settings = topic_values(administration, (part.topic for part in state.partitions), names)
    return Examined(
        state,
        {topic: int(values.get("min.insync.replicas", 1)) for topic, values in settings.items()},
        read_throttles(administration, state, settings),
        read_move_rates(administration, state),
        late,
        why_not,
    )


def read_late(administration: Administration, state: ClusterState) -> tuple[Sequence[LateTransaction], str]:
    """(transactions that are open for too long, why they are not known): leaders are asked for two offsets of each
    partition, and nobody for more where these are the same.
    """
    from barnabas.cli.kafka.config_values import broker_values
    from barnabas.cli.kafka.late_transactions import find_late
    from barnabas.cli.kafka.partition_leaders import Brokers

    brokers = Brokers(state.nodes, state.is_shown_as_one)
    settings = broker_values(administration, brokers.alive[0], [LONGEST]) if brokers.alive else {}
    silent_ms = int(settings.get(LONGEST, LONGEST_MS)) + LATE_MS
    try:
        search = find_late(administration, brokers, state.partitions, time.time_ns() // 1_000_000 - silent_ms)
    except Refused as refused:
        return (), str(refused)
    return search.found, ""


def finding_data(finding: Finding) -> dict[str, Any]:
    """One line as plain data, with all that it is about."""
    return {
        "check": finding.check,
        "isProblem": finding.is_problem,
        "what": finding.what,
        "toDo": finding.to_do,
        "subjects": list(finding.subjects),
    }


def page(examined: Examined, findings: Sequence[Finding]) -> list[str]:
    """The lines of the page: how large the cluster is, then problems, then remarks."""
    state = examined.state
    alive = sum(node.is_alive for node in state.nodes)
    problems = [finding for finding in findings if finding.is_problem]
    remarks = [finding for finding in findings if not finding.is_problem]
    verdict = counted(len(problems), "problem") if problems else "healthy"
    nodes, topics = counted(len(state.nodes), "node"), len({part.topic for part in state.partitions})
    sizes = f"{counted(topics, 'topic')}, {counted(len(state.partitions), 'partition')}"
    lines = [f"{verdict}: {alive} of {nodes} alive, {sizes}"]
    for mark, some in (("!", problems), ("-", remarks)):
        for finding in some:
            lines += [f"{mark} {finding.check}: {finding.what}", f"    {finding.to_do}"]
    return lines


def _write(lines: Sequence[str]) -> None:
    if not sys.stdout.isatty():
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        return
    from rich.console import Console
    from rich.text import Text

    styles = {"!": "bold red", "-": "dim", " ": "cyan"}
    console = Console()
    for line in lines:
        console.print(Text(line, style=styles.get(line[0], "bold")), soft_wrap=True)
