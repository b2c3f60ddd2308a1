"""One session of requests to a real Apache Kafka and to Barnabas: what differs is explained, or mended."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
from golden_comparison import Found, compare, error_codes, sort_out
from golden_recorder import record, summary
from golden_session import SCENARIOS, Cluster, runs

from barnabas.gateway.handlers.table import HANDLERS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SHOWN_MAX: Final = 60


def paths_to_fields(answer: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the fields of a plain answer are: names of fields, and places in lists."""
    if isinstance(answer, dict | list):
        for key, value in answer.items() if isinstance(answer, dict) else enumerate(answer):
            yield from paths_to_fields(value, (*path, key))
    else:
        yield path


def with_changed_field(answer: Any, path: tuple[Any, ...]) -> Any:
    """A copy with another value at `path`."""
    if not path:
        return f"not {answer}"
    copy = answer.copy()
    copy[path[0]] = with_changed_field(answer[path[0]], path[1:])
    return copy


@pytest.fixture(scope="module")
def sides() -> tuple[Cluster, Cluster]:
    return record()


@pytest.fixture(scope="module")
def found(sides: tuple[Cluster, Cluster]) -> list[Found]:
    kafka, ours = sides
    return compare(kafka.answers, ours.answers)


def test_no_scenario_breaks_off(sides: tuple[Cluster, Cluster]) -> None:
    for side in sides:
        broken = {step: answer for step, answer in side.answers.items() if step.name == "broken off"}
        assert broken == {}


def test_the_unknown_topic_stays_unknown(sides: tuple[Cluster, Cluster]) -> None:
    """A step that creates the topic which others take for missing would leave their errors unasked."""
    scenarios = {"produce_acknowledged", "list_offsets", "delete_records"}
    for side in sides:
        codes = {
            code
            for step, answer in side.answers.items()
            if step.name == "unknown topic" and step.scenario in scenarios
            for code in error_codes(answer)
        }
        assert codes == {"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"}


def test_every_difference_is_explained(found: list[Found]) -> None:
    unexplained, _ = sort_out(found)
    shown = summary(unexplained)
    assert not unexplained, (
        f"{len(unexplained)} differences that gateway/parity/differences.py does not explain:\n"
        + "\n".join(shown[:SHOWN_MAX])
    )


def test_every_explanation_explains_something(found: list[Found]) -> None:
    _, used = sort_out(found)
    idle = [known for known, explained in used.items() if not explained]
    assert idle == [], (
        "these differences are gone: take their explanations out of gateway/parity/differences.py"
    )


def test_every_served_version_is_asked(sides: tuple[Cluster, Cluster]) -> None:
    """What Barnabas serves and Kafka does not would have nothing to be compared with: it fails too."""
    kafka, ours = sides
    served = {
        (key, version)
        for key, handler in HANDLERS.items()
        for version in range(handler.versions[0], handler.versions[1] + 1)
    }
    played = {(row.api_key, version) for row, version in runs(kafka.ranges)}
    assert sorted(served - played) == []
    own = {row.name: row.api_key for row in SCENARIOS}
    for side in (kafka, ours):
        answered = {
            (step.api_key, step.version) for step in side.answers if own[step.scenario] == step.api_key
        }
        assert sorted(served - answered) == []


def test_any_changed_field_is_found(sides: tuple[Cluster, Cluster]) -> None:
    """One field of every answer is changed: no label, and no matching of rows, hides it."""
    kafka, _ = sides
    randomness = random.Random(4_3_1)
    for step, answer in kafka.answers.items():
        paths = list(paths_to_fields(answer))
        if paths:
            path = randomness.choice(paths)
            assert compare({step: answer}, {step: with_changed_field(answer, path)}), (step, path)
