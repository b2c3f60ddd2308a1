"""The page that tells how clients' own suites end: docs/client-suites.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import date

from results import Outcome, Result
from suite import Suite

HEAD = """# Clients' own tests against Barnabas

Written by `make suites` (`tests/suites/run.py`), which fetches clients' packages from their registries, starts a
cluster of one node for each and runs the tests that the packages carry. Nothing of them is kept here. *Not applicable*
means that a test needs what Barnabas does not serve yet, or skips itself; each has its reason below.

"""

WITHOUT_TESTS = """## Not run

| client | why |
|---|---|
| aiokafka, confluent-kafka (PyPI), kafkajs (npm) | their packages carry no tests |
| kadm of franz-go (Go) | its tests need no broker |
| sarama (Go) | all of its functional tests set up five brokers and replication factor 3 behind toxiproxy |
| krafka (crates.io) | its tests start a broker in a container themselves |
| rdkafka, rskafka, samsa (crates.io), node-rdkafka (npm) | not yet set up: they compile C first |
"""


def page(found: Mapping[Suite, list[Result]], moment: date) -> str:
    """The whole page."""
    rows = "".join(_row(suite, results) for suite, results in found.items())
    table = (
        f"Last run: {moment.isoformat()}.\n\n"
        "| client | version | from | tests | passed | failed | not applicable |\n"
        "|---|---|---|---|---:|---:|---:|\n" + rows
    )
    details = "\n".join(_details(suite, results) for suite, results in found.items())
    return f"{HEAD}{table}\n{details}\n{WITHOUT_TESTS}"


def counts(results: list[Result]) -> Counter[Outcome]:
    """How many tests ended how."""
    return Counter(result.outcome for result in results)


def _row(suite: Suite, results: list[Result]) -> str:
    number = counts(results)
    cells = [suite.name, suite.version, suite.registry, suite.what]
    cells += [str(number[outcome]) for outcome in Outcome]
    return f"| {' | '.join(cells)} |\n"


def _details(suite: Suite, results: list[Result]) -> str:
    lines = [f"## {suite.name}", ""]
    by_reason: dict[tuple[Outcome, str], list[str]] = defaultdict(list)
    for result in results:
        if result.outcome is not Outcome.PASSED:
            by_reason[result.outcome, result.reason].append(result.name)
    if not by_reason:
        return "\n".join([*lines, "All pass.", ""])
    lines += ["| outcome | tests | why |", "|---|---|---|"]
    for (outcome, reason), names in sorted(by_reason.items()):
        text = reason.replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {outcome} | {', '.join(f'`{name}`' for name in sorted(names))} | {text} |")
    return "\n".join([*lines, ""])
