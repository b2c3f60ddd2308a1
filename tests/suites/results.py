"""What a suite's tests came to, and why those that did not pass did not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


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
