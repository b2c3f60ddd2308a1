"""One session of requests to a real Apache Kafka and to Barnabas: what differs is explained, or mended."""

from __future__ import annotations

from typing import Final

import pytest
from golden_comparison import Found, compare, sort_out
from golden_recorder import record, summary
from golden_session import SCENARIOS, Cluster

from barnabas.gateway.differences import DIFFERENCES
from barnabas.gateway.handlers.table import HANDLERS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SHOWN_MAX: Final = 60
NOT_IN_A_REAL_KAFKA: Final = {71, 72}
"""The telemetry APIs: Kafka shows them only where a plugin takes the metrics (KIP-714)."""


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


def test_every_difference_is_explained(found: list[Found]) -> None:
    unexplained, _ = sort_out(found)
    shown = summary(unexplained)
    assert not unexplained, (
        f"{len(unexplained)} differences that gateway/differences.py does not explain:\n"
        + "\n".join(shown[:SHOWN_MAX])
    )


def test_every_explanation_explains_something(found: list[Found]) -> None:
    _, used = sort_out(found)
    idle = [known for known, explained in used.items() if not explained]
    assert idle == [], "these differences are gone: take their explanations out of gateway/differences.py"


def test_every_api_and_version_that_both_have_is_asked(sides: tuple[Cluster, Cluster]) -> None:
    kafka, _ = sides
    scripted = {row.api_key for row in SCENARIOS}
    assert HANDLERS.keys() - NOT_IN_A_REAL_KAFKA <= scripted
    asked = {(step.api_key, step.version) for step in kafka.answers}
    for key, (low, high) in kafka.ranges.items():
        # Versions that have nothing but an empty answer to give are in the scenario all the same.
        assert {(key, version) for version in range(low, high + 1)} <= asked, key


def test_explanations_are_sentences() -> None:
    for known in DIFFERENCES:
        assert known.reason.endswith("."), known
        assert known.apis, known
