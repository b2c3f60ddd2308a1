"""The page that tells how clients' own suites end: docs/client-suites.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import date
from typing import Final

from results import Outcome, Result
from suite import Suite

HEAD: Final = """# Clients' own tests against Barnabas

Written by `make suites` (`tests/suites/run.py`), which fetches clients' packages from their registries, starts a
cluster of three nodes for each and runs the tests that the packages carry; then it does the same with {kafka},
also of three nodes and on the same machine; sarama wants five. New topics have three replicas, of which two have to be
in sync, where a test does not say otherwise; those of franz-go are told to ask for three, and sarama's brokers have the
settings that its authors give to Kafka. Nothing of the packages is kept here. *Not applicable* means that a test needs
what Barnabas does not serve yet, or skips itself. Below, each test that did not pass has its reason, and what became of
it at {kafka}.

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

Found = Mapping[Suite, list[Result]]


def page(ours: Found, theirs: Found, kafka: str, moment: date) -> str:
    """The whole page; `theirs` are the results against the real Kafka that is called `kafka`."""
    rows = "".join(_row(suite, results, theirs[suite]) for suite, results in ours.items())
    table = (
        f"Last run: {moment.isoformat()}. Passed / failed / not applicable, or skipped:\n\n"
        f"| client | version | from | tests | Barnabas | {kafka} |\n"
        "|---|---|---|---|---:|---:|\n" + rows
    )
    details = "\n".join(_details(suite, results, theirs[suite], kafka) for suite, results in ours.items())
    return f"{HEAD.format(kafka=kafka)}{table}\n{details}\n{WITHOUT_TESTS}"


def counts(results: list[Result]) -> Counter[Outcome]:
    """How many tests ended how."""
    return Counter(result.outcome for result in results)


def _row(suite: Suite, ours: list[Result], theirs: list[Result]) -> str:
    cells = [suite.name, suite.version, suite.registry, suite.what, _score(ours), _score(theirs)]
    return f"| {' | '.join(cells)} |\n"


def _score(results: list[Result]) -> str:
    number = counts(results)
    return " / ".join(str(number[outcome]) for outcome in Outcome)


def _details(suite: Suite, ours: list[Result], theirs: list[Result], kafka: str) -> str:
    at_kafka = {result.name: AT_KAFKA[result.outcome] for result in theirs}
    lines = [f"## {suite.name}", ""]
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
