"""The page that tells how clients' own suites end: docs/client-suites.md."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from results import Outcome, Result, Run
from suite import Suite

HEAD: Final = """# Clients' own tests against Barnabas

Written by `make suites` (`tests/suites/run.py`), which fetches clients' packages from their registries, starts a
cluster for each and runs the tests that the packages carry; then it does the same with {kafka}, of as many
nodes and on the same machine. New topics have three replicas, of which two have to be in sync, where neither a test nor
the settings below say otherwise. Nothing of the packages is kept here. *Not applicable* means that a test needs what
Barnabas does not serve yet, or skips itself. Below, each test that did not pass has its reason, and what became of it
at {kafka}.

"""

WITHOUT_TESTS: Final = """## Not run

| client | why |
|---|---|
| aiokafka, confluent-kafka (PyPI), kafkajs (npm) | their packages carry no tests |
| kadm of franz-go (Go) | its tests need no broker |
| krafka (crates.io) | its tests start a broker in a container themselves |
| rdkafka, rskafka, samsa (crates.io), node-rdkafka (npm) | not yet set up: they compile C first |
"""

AT_KAFKA: Final = {Outcome.PASSED: "passes", Outcome.FAILED: "fails", Outcome.NOT_APPLICABLE: "skipped"}
NOT_SEEN: Final = "not run"

LINE: Final = 120
"""Characters."""

Runs = Mapping[Suite, Run]


def page(ours: Runs, theirs: Runs, kafka: str) -> str:
    """The whole page; `theirs` are the runs against the real Kafka that is called `kafka`."""
    rows = "".join(_row(suite, run, theirs[suite]) for suite, run in ours.items())
    table = (
        "Passed / failed / not applicable, or skipped, each at its last run:\n\n"
        f"| client | version | from | tests | nodes | Barnabas | run on | {kafka} | run on |\n"
        "|---|---|---|---|---:|---:|---|---:|---|\n" + rows
    )
    details = "\n".join(
        _details(suite, run.results, theirs[suite].results, kafka) for suite, run in ours.items()
    )
    return f"{HEAD.format(kafka=kafka)}{table}\n{details}\n{WITHOUT_TESTS}"


def counts(results: list[Result]) -> Counter[Outcome]:
    """How many tests ended how."""
    return Counter(result.outcome for result in results)


def _row(suite: Suite, ours: Run, theirs: Run) -> str:
    cells = [suite.name, suite.version, suite.registry, suite.what, str(suite.nodes)]
    for run in (ours, theirs):
        number = counts(run.results)
        cells += [" / ".join(str(number[outcome]) for outcome in Outcome), run.day.isoformat()]
    return f"| {' | '.join(cells)} |\n"


def _particulars(suite: Suite) -> list[str]:
    """What its run has that the others have not: a paragraph and an empty line, or nothing."""
    given = ", ".join(f"`{setting}`" for setting in suite.settings)
    sentences = [f"Its brokers are given {given}."] if given else []
    sentences += [suite.remark] if suite.remark else []
    text = textwrap.fill(" ".join(sentences), LINE, break_long_words=False, break_on_hyphens=False)
    return [text, ""] if text else []


def _details(suite: Suite, ours: list[Result], theirs: list[Result], kafka: str) -> str:
    at_kafka = {result.name: AT_KAFKA[result.outcome] for result in theirs}
    lines = [f"## {suite.name}", "", *_particulars(suite)]
    groups: dict[tuple[Outcome, str, str], list[str]] = defaultdict(list)
    for result in ours:
        there = at_kafka.get(result.name, NOT_SEEN)
        if result.outcome is not Outcome.PASSED or there == AT_KAFKA[Outcome.FAILED]:
            groups[result.outcome, result.reason, there].append(result.name)
    if not groups:
        return "\n".join([*lines, "All pass.", ""])
    lines += [f"| outcome | tests | why | {kafka} |", "|---|---|---|---|"]
    for (outcome, reason, there), names in sorted(groups.items()):
        text = reason.replace("|", "\\|").replace("\n", " ")
        named = ", ".join(f"`{name}`" for name in sorted(names))
        lines.append(f"| {outcome} | {named} | {text} | {there} |")
    return "\n".join([*lines, ""])
