"""Two recorded sessions beside one another: what differs, and which of it is explained."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from golden_answers import Plain, rows_by_identity
from golden_session import CLOSED, NO_ANSWER, Step

from barnabas.gateway.parity.differences import DIFFERENCES, Difference
from barnabas.gateway.parity.replicated_differences import REPLICATED_DIFFERENCES
from barnabas.wire.schema import api_name

ABSENT: Final = "absent"

EXPLAINED_OF_THREE: Final = (*REPLICATED_DIFFERENCES, *DIFFERENCES)
"""What explains a difference in the session with three brokers."""


@dataclass(frozen=True)
class Found:
    """One field that differs, in the versions where it does so in the same way."""

    api: str
    scenario: str
    step: str
    versions: tuple[int, ...]
    path: str
    kafka: str
    ours: str

    def __str__(self) -> str:
        return (
            f"{self.api} v{ranges(self.versions)} | {self.scenario}: {self.step} | {self.path or '-'} | "
            f"Kafka: {self.kafka[:200]} | Barnabas: {self.ours[:200]}"
        )


def compare(kafka: Mapping[Step, Plain], ours: Mapping[Step, Plain]) -> list[Found]:
    """Every difference, those of several versions as one."""
    versions: dict[tuple[str, str, str, str, str, str], list[int]] = {}
    for step in dict.fromkeys([*kafka, *ours]):
        differing = fields_that_differ(kafka.get(step, ABSENT), ours.get(step, ABSENT))
        for differing_field in differing:
            # Names carry the version of their run: without it the same difference is the same in all versions.
            own = re.compile(f"{step.scenario.replace('_', '[_.]')}-{step.version}-")
            path, left, right = (own.sub("", text) for text in differing_field)
            key = (api_name(step.api_key), step.scenario, step.name, path, left, right)
            versions.setdefault(key, []).append(step.version)
    return [
        Found(api, scenario, step, tuple(sorted(set(numbers))), path, left, right)
        for (api, scenario, step, path, left, right), numbers in versions.items()
    ]


def fields_that_differ(left: Plain, right: Plain, path: str = "") -> Iterator[tuple[str, str, str]]:
    """(path, left, right) of each field that is not the same; rows of lists are matched by their identity."""
    if isinstance(left, list) and isinstance(right, list):
        left, right = rows_by_identity(left), rows_by_identity(right)
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys([*left, *right]):
            deeper = f"{path}/{key}" if path else str(key)
            yield from fields_that_differ(left.get(key, ABSENT), right.get(key, ABSENT), deeper)
    elif left != right:
        yield path, shown(left, right), shown(right, left)


def shown(value: Plain, other: Plain) -> str:
    """A value in one line; a row or answer that the other side lacks is not shown in full."""
    if isinstance(value, dict | list) and value and other in (ABSENT, CLOSED, NO_ANSWER):
        codes = sorted(set(error_codes(value)))
        return f"present ({', '.join(codes)})" if codes else "present"
    return value if isinstance(value, str) else json.dumps(value)


def error_codes(value: Plain) -> Iterator[str]:
    """Every error code anywhere in an answer."""
    if isinstance(value, list):
        for item in value:
            yield from error_codes(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "error_code":
                yield item
            else:
                yield from error_codes(item)


def sort_out(
    found: Iterable[Found], explanations: Iterable[Difference] = DIFFERENCES
) -> tuple[list[Found], dict[Difference, list[Found]]]:
    """(what nothing explains, what each explanation explains; an empty list where it explains nothing any more)."""
    used: dict[Difference, list[Found]] = {explanation: [] for explanation in explanations}
    unexplained = []
    for one in found:
        matching = next((known for known in used if is_explained(known, one)), None)
        if matching is None:
            unexplained.append(one)
        else:
            used[matching].append(one)
    return unexplained, used


def is_explained(known: Difference, found: Found) -> bool:
    """Whether the explanation is about this difference."""
    return known.matches(
        api=found.api,
        step=f"{found.scenario}: {found.step}",
        field=found.path,
        kafka=found.kafka,
        ours=found.ours,
    )


def ranges(versions: Iterable[int]) -> str:
    """Version numbers as people write them: 0-3,5."""
    parts = []
    for _, group in itertools.groupby(enumerate(sorted(versions)), key=lambda pair: pair[1] - pair[0]):
        run = [version for _, version in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(parts)


def as_json(answers: Mapping[Step, Any]) -> str:
    """A whole recording, for looking at."""
    rows = [
        {
            "api": api_name(step.api_key),
            "scenario": step.scenario,
            "version": step.version,
            "step": step.name,
            "answer": answer,
        }
        for step, answer in answers.items()
    ]
    return json.dumps(rows, indent=1)
