"""The session with three brokers to a real Apache Kafka and to Barnabas: what differs is explained, or mended."""

from __future__ import annotations

import random
from typing import Final

import pytest
from golden_comparison import EXPLAINED_OF_THREE, Found, compare, error_codes, sort_out
from golden_recorder import record_replicated, summary
from golden_session import Cluster
from test_golden_session import SHOWN_MAX, paths_to_fields, with_changed_field

from barnabas.gateway.parity.replicated_differences import REPLICATED_DIFFERENCES

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

REACHED: Final = {
    "BROKER_ID_NOT_REGISTERED",
    "ELECTION_NOT_NEEDED",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "INVALID_PARTITIONS",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_REPLICA_ASSIGNMENT",
    "INVALID_REQUEST",
    "INVALID_REQUIRED_ACKS",
    "LEADER_NOT_AVAILABLE",
    "LOG_DIR_NOT_FOUND",
    "NOT_ENOUGH_REPLICAS",
    "NOT_LEADER_OR_FOLLOWER",
    "NO_REASSIGNMENT_IN_PROGRESS",
    "OFFSET_OUT_OF_RANGE",
    "PREFERRED_LEADER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
}
"""The codes that this session is there for. NOT_ENOUGH_REPLICAS_AFTER_APPEND is not among them: it takes an ISR that
shrinks between the last replica's copy and the look at its size, and no request brings that about."""


@pytest.fixture(scope="module")
def sides() -> tuple[Cluster, Cluster]:
    return record_replicated()


@pytest.fixture(scope="module")
def found(sides: tuple[Cluster, Cluster]) -> list[Found]:
    kafka, ours = sides
    return compare(kafka.answers, ours.answers)


def test_no_scenario_breaks_off(sides: tuple[Cluster, Cluster]) -> None:
    for side in sides:
        broken = {step: answer for step, answer in side.answers.items() if step.name == "broken off"}
        assert broken == {}


def test_the_session_reaches_what_it_is_there_for(sides: tuple[Cluster, Cluster]) -> None:
    for side in sides:
        codes = {code for answer in side.answers.values() for code in error_codes(answer)}
        assert REACHED - codes == set()


def test_every_difference_is_explained(found: list[Found]) -> None:
    unexplained, _ = sort_out(found, EXPLAINED_OF_THREE)
    shown = summary(unexplained)
    assert not unexplained, (
        f"{len(unexplained)} differences that gateway/parity/replicated_differences.py does not explain:\n"
        + "\n".join(shown[:SHOWN_MAX])
    )


def test_every_explanation_explains_something(found: list[Found]) -> None:
    _, used = sort_out(found, EXPLAINED_OF_THREE)
    idle = [known for known in REPLICATED_DIFFERENCES if not used[known]]
    assert idle == [], (
        "these differences are gone: take their explanations out of gateway/parity/replicated_differences.py"
    )


def test_any_changed_field_is_found(sides: tuple[Cluster, Cluster]) -> None:
    """One field of every answer is changed: no label, and no matching of rows, hides it."""
    kafka, _ = sides
    randomness = random.Random(4_3_1)
    for step, answer in kafka.answers.items():
        paths = list(paths_to_fields(answer))
        if paths:
            path = randomness.choice(paths)
            assert compare({step: answer}, {step: with_changed_field(answer, path)}), (step, path)
