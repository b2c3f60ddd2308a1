"""Groups of the newer protocol (KIP-848) with real clients: librdkafka, and Kafka's own consumer."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException, TopicPartition
from confluent_kafka_client import (
    WAIT_SECONDS,
    admin_of,
    consumer_of,
    make_topic,
    poll_records,
    poll_until,
    produce,
    wait_for_assignments,
)
from kafka_tools import run_tool
from running_cluster import Cluster

pytestmark = pytest.mark.integration

QUICK = (
    "--override", "group.consumer.heartbeat.interval.ms=300",
    "--override", "group.consumer.min.heartbeat.interval.ms=300",
    "--override", "group.consumer.session.timeout.ms=6000",
    "--override", "group.consumer.min.session.timeout.ms=6000",
)  # fmt: skip
"""Members hear of what they are to do at their heartbeats: every five seconds, as in Kafka, would be long here."""


@pytest.fixture(scope="module")
def quick() -> Iterator[Cluster]:
    with Cluster(flags=QUICK) as running:
        yield running


@contextmanager
def member_of(cluster: Any, group: str, **settings: Any) -> Iterator[Consumer]:
    with consumer_of(cluster, group, group_protocol="consumer", **settings) as client:
        yield client


def described(cluster: Any, group: str) -> Any:
    admin = admin_of(cluster)
    return admin.describe_consumer_groups([group])[group].result(WAIT_SECONDS)


def shares(*clients: Consumer) -> list[list[int]]:
    return [sorted(part.partition for part in client.assignment()) for client in clients]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_partitions_move_as_members_come_and_go(quick: Any, assignor: str) -> None:
    topic = make_topic(quick, f"moving-{assignor}", 6)
    with ExitStack() as stack:
        first, second, third = (
            stack.enter_context(member_of(quick, f"movers-{assignor}", group_remote_assignor=assignor))
            for _ in range(3)
        )
        first.subscribe([topic])
        wait_for_assignments([first], [6])
        second.subscribe([topic])
        wait_for_assignments([first, second], [3, 3])
        kept = set(shares(first)[0])
        third.subscribe([topic])
        wait_for_assignments([first, second, third], [2, 2, 2])
        assert sorted(itertools.chain(*shares(first, second, third))) == list(range(6))
        if assignor == "uniform":
            assert set(shares(first)[0]) <= kept
        group = described(quick, f"movers-{assignor}")
        assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
        assert (group.partition_assignor, len(group.members)) == (assignor, 3)
        first.close()
        wait_for_assignments([second, third], [3, 3])


def test_nothing_is_read_twice_while_partitions_move(quick: Any) -> None:
    topic = make_topic(quick, "once", 8)
    for partition in range(8):
        produce(quick, topic, 200, partition=partition)
    seen: list[tuple[int, int]] = []
    with ExitStack() as stack:
        clients: list[Consumer] = []
        deadline = time.monotonic() + WAIT_SECONDS
        while len(seen) < 1600 and time.monotonic() < deadline:
            if len(clients) < 4 and len(seen) >= 300 * len(clients):
                clients.append(stack.enter_context(member_of(quick, "once", enable_auto_commit=False)))
                clients[-1].subscribe([topic], on_revoke=_commit)
            for client in clients:
                for message in client.consume(20, 0.02):
                    assert message.error() is None, message.error()
                    seen.append((message.partition(), message.offset()))
    assert len(seen) == len(set(seen)) == 1600


def _commit(client: Consumer, _: list[TopicPartition]) -> None:
    """What is given up goes on where this member stopped."""
    with contextlib.suppress(KafkaException):  # of nothing read, there is nothing to commit
        client.commit(asynchronous=False)


def test_a_regular_expression_finds_topics_that_come_later(quick: Any) -> None:
    make_topic(quick, "found-1", 2)
    with member_of(quick, "finders", topic_metadata_refresh_interval_ms=500) as client:
        client.subscribe(["^found-.*"])
        wait_for_assignments([client], [2])
        make_topic(quick, "found-2", 1)
        make_topic(quick, "not-found-3", 1)
        wait_for_assignments([client], [3])


def test_a_static_member_comes_back_to_what_it_had(quick: Any) -> None:
    topic = make_topic(quick, "static", 4)
    with (
        member_of(quick, "statics", group_instance_id="a") as stays,
        member_of(quick, "statics", group_instance_id="b") as goes,
    ):
        for client in (stays, goes):
            client.subscribe([topic])
        wait_for_assignments([stays, goes], [2, 2])
        before = shares(stays, goes)
        goes.close()
        assert len(described(quick, "statics").members) == 2
        with member_of(quick, "statics", group_instance_id="b") as back:
            back.subscribe([topic])
            wait_for_assignments([stays, back], [2, 2])
            assert shares(stays, back) == before


def test_a_group_with_members_changes_its_protocol_and_changes_it_back(quick: Any) -> None:
    topic = make_topic(quick, "changing", 4)
    produce(quick, topic, 10, partition=0)
    settings = {
        "partition_assignment_strategy": "cooperative-sticky",
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": 6000,
    }
    with consumer_of(quick, "changers", **settings) as old:
        old.subscribe([topic])
        poll_records(old, 10)
        old.commit(asynchronous=False)
        wait_for_assignments([old], [4])
        with member_of(quick, "changers") as new:
            new.subscribe([topic])
            wait_for_assignments([old, new], [2, 2])
            group = described(quick, "changers")
            assert (group.type, len(group.members)) == (ConsumerGroupType.CONSUMER, 2)
            for partition in range(4):
                produce(quick, topic, 5, partition=partition)
            came = [len(poll_records(client, 10)) for client in (old, new)]
            assert came == [10, 10]
            new.close()
        wait_for_assignments([old], [4])
        assert described(quick, "changers").type == ConsumerGroupType.CLASSIC


@pytest.mark.parametrize(
    ("flags", "killed"), [((), "broker-1"), (("--separate",), "coordinator-1")], ids=["broker", "separate"]
)
def test_a_group_goes_on_when_its_coordinator_is_killed(
    make_cluster: Any, flags: tuple[str, ...], killed: str
) -> None:
    cluster = make_cluster(flags=(*QUICK, *flags))
    topic = make_topic(cluster, "goes-on", 4)
    seen: list[tuple[int, int]] = []
    with (
        member_of(cluster, "goers", enable_auto_commit=False) as first,
        member_of(cluster, "goers", enable_auto_commit=False) as second,
    ):
        for client in (first, second):
            client.subscribe([topic])
        wait_for_assignments([first, second], [2, 2])
        before = shares(first, second)
        for _ in range(3):
            for partition in range(4):
                produce(cluster, topic, 10, partition=partition)
            for client in (first, second):
                records = poll_records(client, 20)
                seen += [(record.partition(), record.offset()) for record in records]
                client.commit(asynchronous=False)
            cluster.kill_and_wait(killed)
        poll_until(lambda: shares(first, second) == before, first, second)
        assert len(seen) == len(set(seen)) == 120
        with member_of(cluster, "goers") as third:
            third.subscribe([topic])
            three = (first, second, third)
            poll_until(lambda: sorted(map(len, shares(*three))) == [1, 1, 2], *three)
            first.close()
            wait_for_assignments([second, third], [2, 2])


def test_kafkas_own_consumer_and_tools(quick: Any) -> None:
    topic = make_topic(quick, "java", 3)
    produce(quick, topic, 30)
    where = ("--bootstrap-server", quick.bootstrap)
    consumed = run_tool(
        "console-consumer", *where, "--topic", topic, "--group", "javas", "--from-beginning",
        "--command-property", "group.protocol=consumer", "--max-messages", "30", "--timeout-ms", "20000",
    )  # fmt: skip
    assert sorted(consumed.lines, key=int) == [str(number) for number in range(30)]
    with member_of(quick, "javas") as client:
        client.subscribe([topic])
        wait_for_assignments([client], [3])
        lines = run_tool("consumer-groups", *where, "--describe", "--group", "javas", "--state").lines
        assert lines[-1].split()[-4:] == ["uniform", "Stable", "1"] or "Stable" in lines[-1]
        lines = run_tool("groups", *where, "--list").lines
        (row,) = (line.split() for line in lines if line.startswith("javas"))
        assert row == ["javas", "Consumer", "consumer"]
    deleted = run_tool("consumer-groups", *where, "--delete", "--group", "javas")
    assert "successful" in deleted.stdout
