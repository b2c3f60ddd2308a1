"""Waiting for the admin client's answers: one future for each topic, group or partition asked about."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from barnabas.cli.kafka.connection import ANSWER_SECONDS_MAX
from barnabas.cli.kafka.errors import describe_with_advice
from barnabas.cli.refusal import Refused

Key = TypeVar("Key")


def all_of(futures: Mapping[Key, Future[Any]]) -> dict[Key, Any]:
    """Every answer; the first error is raised."""
    return {key: future.result(ANSWER_SECONDS_MAX) for key, future in futures.items()}


def sorted_out(futures: Mapping[Key, Future[Any]]) -> tuple[dict[Key, Any], dict[Key, KafkaException]]:
    """(answers, errors): for requests where one part's failure does not touch the others."""
    answers: dict[Key, Any] = {}
    failures: dict[Key, KafkaException] = {}
    for key, future in futures.items():
        try:
            answers[key] = future.result(ANSWER_SECONDS_MAX)
        except KafkaException as error:
            failures[key] = error
    return answers, failures


def raise_failures(failures: Mapping[Any, KafkaException], what: str) -> None:
    """Refuse with what went wrong, one clause for each thing: `cannot delete topic a: ...; topic b: ...`."""
    if failures:
        clauses = [f"{what} {key}: {describe_with_advice(error)}" for key, error in failures.items()]
        raise Refused("; ".join(clauses))
