"""What a suite's tests came to, and why those that did not pass did not."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    """How a test ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Result:
    """One test of a suite."""

    name: str
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Run:
    """What one run of a suite came to, and the day on which it ended."""

    day: date
    results: list[Result]


def write_run(path: Path, run: Run) -> None:
    """Keep a run for the page."""
    rows = [vars(result) for result in run.results]
    path.write_text(json.dumps({"day": run.day.isoformat(), "results": rows}, indent=1))


def read_run(path: Path) -> Run:
    """A run that was kept."""
    kept = json.loads(path.read_text())
    results = [Result(row["name"], Outcome(row["outcome"]), row["reason"]) for row in kept["results"]]
    return Run(date.fromisoformat(kept["day"]), results)


@dataclass(frozen=True)
class Reason:
    """Why tests with such names do not apply to Barnabas today, or fail for a cause outside it.

    `pattern` is a regular expression that is searched in a test's name.
    """

    pattern: str
    why: str
    outcome: Outcome = Outcome.NOT_APPLICABLE


def explained(results: list[Result], reasons: tuple[Reason, ...]) -> list[Result]:
    """The results, where what did not pass and has a known reason is given it."""
    return [
        result if result.outcome is Outcome.PASSED else _with_reason(result, reasons) for result in results
    ]


def _with_reason(result: Result, reasons: tuple[Reason, ...]) -> Result:
    for reason in reasons:
        if re.search(reason.pattern, result.name):
            return Result(result.name, reason.outcome, reason.why)
    return result
