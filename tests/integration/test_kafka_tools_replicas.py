"""Kafka's tools on partitions with several replicas: what they show while nodes are down, and elections by hand."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_tools import Output, ToolsInOneJvm
from running_cluster import Cluster

pytestmark = pytest.mark.integration

SHOWN_SECONDS_MAX = 20.0
"""Far above what it takes: a node that died is noticed at once, one that only it can be waited for within 2 s."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # The tools hold the setting of three nodes against topics with a single replica as well.
    with Cluster(nodes=3, flags=("--override", "min.insync.replicas=1")) as running:
        yield running


@pytest.fixture(scope="module")
def tools(cluster: Cluster) -> Iterator[ToolsInOneJvm]:
    """The tools, at the one broker that no test stops."""
    with ToolsInOneJvm(f"127.0.0.1:{cluster.port + 1}") as running:
        yield running


def both(output: Output) -> str:
    return output.stdout + output.stderr


def described(tools: ToolsInOneJvm, *flags: str) -> dict[tuple[str, int], tuple[str, str, str]]:
    """(leader, replicas, in-sync replicas) by topic and partition, as `kafka-topics --describe` shows them."""
    row = re.compile(r"Topic: (\S+)\s+Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: ([\d,]*)")
    lines = tools("topics", "--describe", *flags).lines
    found = (row.search(line) for line in lines)
    return {(m[1], int(m[2])): (m[3], m[4], m[5]) for m in found if m is not None}


def either(
    found: dict[tuple[str, int], tuple[str, str, str]], place: tuple[str, int]
) -> dict[tuple[str, int], tuple[str, str, str]]:
    """With "1 or 2" for the leader of a partition that is one of them: whichever has been there for longer."""
    leader, replicas, in_sync = found.get(place, ("", "", ""))
    return {**found, place: ("1 or 2", replicas, in_sync)} if leader in ("1", "2") else found


def until(look: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + SHOWN_SECONDS_MAX
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"{seen}, not {wanted}"
        time.sleep(0.1)


def test_describe_tells_the_truth_through_a_failure(cluster: Cluster, tools: ToolsInOneJvm) -> None:
    tools("topics", "--create", "--topic", "spread", "--replica-assignment", "1:2:3,2:3:1,3:1:2")
    tools("topics", "--create", "--topic", "alone", "--replica-assignment", "3")
    strict = ("--config", "min.insync.replicas=3")
    tools("topics", "--create", "--topic", "strict", "--replica-assignment", "1:2:3", *strict)
    assert described(tools, "--topic", "spread") == {
        ("spread", 0): ("1", "1,2,3", "1,2,3"),
        ("spread", 1): ("2", "2,3,1", "2,3,1"),
        ("spread", 2): ("3", "3,1,2", "3,1,2"),
    }
    ours = ("--topic", "spread|alone|strict")
    ailing = ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions")
    for flag in ailing:
        assert described(tools, *ours, flag) == {}
    with cluster.down("broker-3", kill=True):
        under_replicated = {
            ("spread", 0): ("1", "1,2,3", "1,2"),
            ("spread", 1): ("2", "2,3,1", "2,1"),
            ("spread", 2): ("1 or 2", "3,1,2", "1,2"),
            ("strict", 0): ("1", "1,2,3", "1,2"),
            ("alone", 0): ("none", "3", ""),
        }

        until(
            lambda: either(described(tools, *ours, "--under-replicated-partitions"), ("spread", 2)),
            under_replicated,
        )
        until(lambda: described(tools, *ours, "--unavailable-partitions"), {("alone", 0): ("none", "3", "")})
        below = described(tools, *ours, "--under-min-isr-partitions")
        assert below.keys() == {("strict", 0), ("alone", 0)}
        refused = tools(
            "leader-election",
            "--election-type",
            "preferred",
            "--topic",
            "spread",
            "--partition",
            "2",
            status=1,
        )
        assert "PreferredLeaderNotAvailableException" in both(refused)
    until(lambda: described(tools, *ours, "--unavailable-partitions"), {})
    assert described(tools, "--topic", "alone") == {("alone", 0): ("3", "3", "3")}


def test_a_new_topic_counts_on_nodes_that_are_down(cluster: Cluster, tools: ToolsInOneJvm) -> None:
    with cluster.down("broker-3", kill=True):
        tools("topics", "--create", "--topic", "patient", "--replication-factor", "3")
        until(lambda: sorted(described(tools, "--topic", "patient")["patient", 0][2].split(",")), ["1", "2"])
        leader, replicas, _ = described(tools, "--topic", "patient")["patient", 0]
        assert sorted(replicas.split(",")) == ["1", "2", "3"]
        assert leader in ("1", "2")
        refused = tools("topics", "--create", "--topic", "wide", "--replication-factor", "4", status=1)
        assert "cannot be reached because only 3 broker(s) are registered" in both(refused)


def test_the_preferred_leader_is_elected(tools: ToolsInOneJvm, tmp_path: Path) -> None:
    tools("topics", "--create", "--topic", "preferred", "--replica-assignment", "2:1")
    plan = tmp_path / "plan.json"
    partition = {"topic": "preferred", "partition": 0, "replicas": [1, 2]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    tools("reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    assert described(tools, "--topic", "preferred")["preferred", 0][:2] == ("2", "1,2")
    asked = ("--election-type", "preferred", "--topic", "preferred", "--partition", "0")
    elected = tools("leader-election", *asked)
    assert elected.lines == ["Successfully completed leader election (PREFERRED) for partitions preferred-0"]
    assert described(tools, "--topic", "preferred")["preferred", 0][0] == "1"
    again = tools("leader-election", *asked)
    assert again.lines == ["Valid replica already elected for partitions preferred-0"]


def test_an_unclean_leader_is_elected_where_somebody_asks_for_it(
    cluster: Cluster, tools: ToolsInOneJvm
) -> None:
    tools("topics", "--create", "--topic", "unclean", "--replica-assignment", "3:1")
    asked = ("--election-type", "unclean", "--topic", "unclean", "--partition", "0")
    cluster.stop_service("broker-1", kill=True)
    until(lambda: described(tools, "--topic", "unclean")["unclean", 0][2], "3")
    cluster.stop_service("broker-3", kill=True)
    until(lambda: described(tools, "--topic", "unclean")["unclean", 0][0], "none")
    refused = tools("leader-election", *asked, status=1)
    assert "EligibleLeadersNotAvailableException" in both(refused)
    # The cluster is not ready with one broker alone, which `start_service` would wait for.
    start = urllib.request.Request(f"{cluster.http}/services/broker-1/start", method="POST")
    urllib.request.urlopen(start, timeout=10).close()
    until(lambda: cluster.service("broker-1").ready, True)
    assert described(tools, "--topic", "unclean")["unclean", 0] == ("none", "3,1", "")
    elected = tools("leader-election", *asked)
    assert elected.lines == ["Successfully completed leader election (UNCLEAN) for partitions unclean-0"]
    assert described(tools, "--topic", "unclean")["unclean", 0] == ("1", "3,1", "1")
    cluster.start_service("broker-3")


def test_deleted_records_stay_deleted_when_the_next_replica_leads(
    cluster: Cluster, tools: ToolsInOneJvm, tmp_path: Path
) -> None:
    """It is answered once the followers have deleted them, too."""
    tools("topics", "--create", "--topic", "trimmed", "--replica-assignment", "1:2:3")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(10):
        producer.produce("trimmed", b"%d" % number)
    assert producer.flush(SHOWN_SECONDS_MAX) == 0
    plan = tmp_path / "delete.json"
    partition = {"topic": "trimmed", "partition": 0, "offset": 4}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    deleted = tools("delete-records", "--offset-json-file", str(plan))
    assert deleted.lines[-1].split() == ["partition:", "trimmed-0", "low_watermark:", "4"]
    with cluster.down("broker-1", kill=True):
        until(lambda: described(tools, "--topic", "trimmed")["trimmed", 0][0], "2")
        assert tools("get-offsets", "--topic", "trimmed", "--time", "earliest").lines == ["trimmed:0:4"]
    until(lambda: described(tools, "--topic", "trimmed")["trimmed", 0][2], "1,2,3")


def test_a_deletion_that_a_replica_does_not_hear_of_times_out(cluster: Cluster, tools: ToolsInOneJvm) -> None:
    tools("topics", "--create", "--topic", "half-trimmed", "--replica-assignment", "2:3")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("half-trimmed", b"v")
    assert producer.flush(SHOWN_SECONDS_MAX) == 0
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = TopicPartition("half-trimmed", 0, 1)
    cluster.pause("broker-3")
    try:
        with pytest.raises(KafkaException) as caught:
            admin.delete_records([wanted], operation_timeout=1)[wanted].result(SHOWN_SECONDS_MAX)
    finally:
        cluster.resume("broker-3")
    assert caught.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT
    assert admin.delete_records([wanted])[wanted].result(SHOWN_SECONDS_MAX).low_watermark == 1


def test_a_broker_that_has_gone_is_forgotten_and_may_come_again(
    cluster: Cluster, tools: ToolsInOneJvm
) -> None:
    tools("topics", "--create", "--topic", "kept", "--replica-assignment", "3:1:2,2:3:1")
    with cluster.down("broker-3"):
        done = tools("cluster", "unregister", "--id", "3")
        assert done.lines == ["Broker 3 is no longer registered."]
        listed = tools("cluster", "list-endpoints", "--include-fenced-brokers")
        assert [line.split()[0] for line in listed.lines[1:]] == ["1", "2"]
        assert either(described(tools, "--topic", "kept"), ("kept", 0)) == {
            ("kept", 0): ("1 or 2", "3,1,2", "1,2"),
            ("kept", 1): ("2", "2,3,1", "2,1"),
        }
        again = tools("cluster", "unregister", "--id", "3", status=1)
        assert "Broker ID 3 is not currently registered" in both(again)
    until(lambda: described(tools, "--topic", "kept")["kept", 1][2], "2,3,1")
