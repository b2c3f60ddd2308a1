"""`produce` to a topic that does not come to be: it waits a little, asks why, and says so."""

from __future__ import annotations

import weakref
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.missing_topic import check_topic
from barnabas.cli.refusal import Refused

THERE = None
COMING = KafkaError.LEADER_NOT_AVAILABLE


class Topic:
    def __init__(self, code: int | None) -> None:
        self.error = None if code is None else KafkaError(code)


class Metadata:
    def __init__(self, topics: dict[str, Topic]) -> None:
        self.topics = topics


class Cluster:
    """A connection whose brokers answer one code after the other, and whose controller knows why."""

    def __init__(self, *codes: int | None, refuses_with: KafkaError | None = None) -> None:
        self._codes = list(codes)
        self._refuses_with = refuses_with
        self.was_asked_why = False

    def cluster(self, _: Any, topic: str) -> Metadata:
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        return Metadata({topic: Topic(code)})

    def admin(self) -> Admin:
        self.was_asked_why = True
        return Admin(self._refuses_with)


class Admin:
    """An admin client: its answers are lost when it is."""

    def __init__(self, refuses_with: KafkaError | None) -> None:
        self._refuses_with = refuses_with

    def create_topics(self, topics: list[Any], *, validate_only: bool) -> dict[str, Answer]:
        assert validate_only
        return {topic.topic: Answer(weakref.ref(self), self._refuses_with) for topic in topics}


class Answer:
    def __init__(self, admin: weakref.ref[Admin], refuses_with: KafkaError | None) -> None:
        self._admin, self._error = admin, refuses_with

    def result(self, _: float) -> None:
        error = KafkaError(KafkaError._DESTROY) if self._admin() is None else self._error
        if error is not None:
            raise KafkaException(error)


def check(cluster: Cluster, seconds: float = 0.0) -> None:
    check_topic(cast("Connection", cluster), None, "orders", seconds)


def test_a_topic_that_is_there_or_comes_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.cli.kafka.missing_topic.PAUSE_SECONDS", 0)
    for cluster in (Cluster(THERE), Cluster(COMING, COMING, THERE), Cluster(KafkaError.TOPIC_EXCEPTION)):
        check(cluster, 60)
        assert not cluster.was_asked_why


@pytest.mark.parametrize("code", [COMING, KafkaError.INVALID_REPLICATION_FACTOR])
def test_the_reason_is_the_controllers(code: int) -> None:
    reason = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
    with pytest.raises(Refused, match=r"^topic orders cannot be created: All brokers are currently fenced\."):
        check(Cluster(code, refuses_with=reason))


@pytest.mark.parametrize(
    "code", [None, KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.CLUSTER_AUTHORIZATION_FAILED]
)
def test_one_that_could_be_created_is_left_to_the_producer(code: int | None) -> None:
    cluster = Cluster(COMING, refuses_with=None if code is None else KafkaError(code))
    check(cluster)
    assert cluster.was_asked_why
