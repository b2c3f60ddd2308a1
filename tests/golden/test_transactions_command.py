"""`barnabas transactions` and `doctor` on Apache Kafka and on Barnabas: the same of the same transactions."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from command_line import CommandLine
from hanging_transactions import UNVERIFIED, TransactionalClient
from real_kafka import RealKafka
from running_cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LATE_MINUTES = 30.0
"""Longer than transaction.max.timeout.ms, and the five minutes that `doctor` waits besides."""


@pytest.fixture(scope="module", params=["kafka", "barnabas"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafka":
        with RealKafka(settings=UNVERIFIED) as kafka:
            yield kafka.bootstrap
        return
    overrides = [word for pair in UNVERIFIED.items() for word in ("--override", "=".join(pair))]
    with Cluster(flags=tuple(overrides)) as ours:
        yield ours.bootstrap


@dataclass(frozen=True)
class Made:
    """One transaction that is open and known, one that hangs since its second record, and an id without any."""

    client: TransactionalClient
    run: CommandLine
    topic: str

    def id(self, name: str) -> str:
        return f"{self.topic}-{name}"

    def data(self, *arguments: str) -> Any:
        return self.run("transactions", *arguments, "--output", "json").data

    def listed(self, *filters: str) -> dict[str, Any]:
        pattern = ("--transactional-id-pattern", f"{self.topic}-.*")
        return {each["transactionalId"]: each for each in self.data("list", *pattern, *filters)}

    def remembered(self, partition: int) -> Any:
        (found,) = self.data("describe-producers", self.topic, "--partition", str(partition))
        return found

    def checks(self) -> list[tuple[str, list[str]]]:
        """What `doctor` says of the topic."""
        found = self.run("doctor", "--output", "json", status=None).data
        mine = [(each["check"], [name for name in each["subjects"] if self.topic in name]) for each in found]
        return [(check, subjects) for check, subjects in mine if subjects and "transaction" in check]


_TOPICS = itertools.count(1)


@pytest.fixture
def made(bootstrap: str) -> Iterator[Made]:
    with contextlib.closing(TransactionalClient(int(bootstrap.rpartition(":")[2]))) as client:
        made = Made(client, CommandLine(bootstrap), f"t{next(_TOPICS)}")
        alive, lost = made.id("alive"), made.id("lost")
        client.create_topic(made.topic, 2)
        for name in (alive, lost, made.id("idle")):
            client.init(name)
        client.add(alive, made.topic, 0)
        client.produce(alive, made.topic, 0, minutes_ago=LATE_MINUTES)
        client.produce(lost, made.topic, 1, minutes_ago=LATE_MINUTES + 1)
        client.produce(lost, made.topic, 1, minutes_ago=LATE_MINUTES)
        yield made


def test_ids_are_listed_and_described(made: Made) -> None:
    alive, lost, idle = (made.id(name) for name in ("alive", "lost", "idle"))
    rows = made.listed()
    assert {name: each["state"] for name, each in rows.items()} == {
        alive: "Ongoing",
        lost: "Empty",
        idle: "Empty",
    }
    producer_id, _ = made.client.producers[alive]
    assert rows[alive]["producerId"] == producer_id
    assert list(made.listed("--duration-filter", "0", "--state", "ongoing")) == [alive]
    assert made.listed("--duration-filter", "600000", "--producer-id", str(producer_id)) == {}
    assert "no regular expression" in made.run.refused(
        "transactions", "list", "--transactional-id-pattern", "("
    )

    (found,) = made.data("describe", alive)
    assert (found["state"], found["partitions"]) == ("Ongoing", [f"{made.topic}-0"])
    assert found["timeoutMs"] == 600_000
    assert found["openMs"] >= 0
    (found,) = made.data("describe", "--transactional-id", idle)
    assert (found["state"], found["partitions"], found["startMs"]) == ("Empty", [], None)
    assert "no transactional id nobody" in made.run.refused("transactions", "describe", "nobody")


def test_one_hangs_until_it_is_aborted(made: Made) -> None:
    topic = made.topic
    found = made.remembered(1)
    assert (found["producerId"], found["producerEpoch"]) == made.client.producers[made.id("lost")]
    assert (found["lastSequence"], found["coordinatorEpoch"], found["startOffset"]) == (1, None, 0)

    for scope in ((topic,), ("--topic", topic, "--partition", "1"), ("--topic", topic, "--broker-id", "1")):
        (found,) = made.data("find-hanging", *scope)
        assert (found["topic"], found["partition"], found["startOffset"]) == (topic, 1, 0), scope
        assert found["silentMs"] >= LATE_MINUTES * 60_000
    assert topic in {each["topic"] for each in made.data("find-hanging")}
    assert made.data("find-hanging", "--max-transaction-timeout", "60") == []
    assert made.checks() == [("hanging-transaction", [f"{topic}-1"])]

    refused = made.run.refused("transactions", "abort", topic, "--partition", "0", "--start-offset", "0")
    assert f"does not hang: it is that of {made.id('alive')} (Ongoing)" in refused
    refused = made.run.refused("transactions", "abort", topic, "--partition", "1", "--start-offset", "1")
    assert "no open transaction begins at offset 1" in refused
    made.run("transactions", "abort", topic, "--partition", "1", "--start-offset", "0")
    found = made.remembered(1)
    assert (found["startOffset"], found["coordinatorEpoch"]) == (None, 0)
    assert made.data("find-hanging", topic) == []
    assert made.checks() == []


def test_one_is_ended_by_numbers_as_they_are_given(made: Made) -> None:
    producer_id, epoch = made.client.producers[made.id("lost")]
    numbers = ("--producer-id", str(producer_id), "--producer-epoch", str(epoch), "--coordinator-epoch")
    abort = ("transactions", "abort", made.topic, "--partition", "1", *numbers)
    made.run(*abort, "5")
    found = made.remembered(1)
    assert (found["startOffset"], found["coordinatorEpoch"]) == (None, 5)
    assert "TRANSACTION_COORDINATOR_FENCED" in made.run.refused(*abort, "4")


def test_an_id_is_terminated_in_all_its_partitions(made: Made) -> None:
    alive = made.id("alive")
    made.run("transactions", "terminate", alive)
    assert made.remembered(0)["startOffset"] is None
    (found,) = made.data("describe", alive)
    assert (found["state"], found["partitions"]) == ("Empty", [])
    assert "has no open transaction" in made.run.refused("transactions", "terminate", alive)
