"""`barnabas doctor`: what is not as it should be in a cluster, on one page, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from barnabas.cli.balance.health import Examined, Finding, examine
from barnabas.cli.commands import flags
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.refusal import FAILED
from barnabas.cli.text.output import OutputFormat, counted, show_document

if TYPE_CHECKING:
    from barnabas.cli.kafka.administration import Administration


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
    names = ("min.insync.replicas", *REPLICAS)
    settings = topic_values(administration, (part.topic for part in state.partitions), names)
    return Examined(
        state,
        {topic: int(values.get("min.insync.replicas", 1)) for topic, values in settings.items()},
        read_throttles(administration, state, settings),
        read_move_rates(administration, state),
    )


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
