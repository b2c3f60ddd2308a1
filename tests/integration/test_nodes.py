"""A node is emptied, forgotten and comes back, and the cluster is evened out, under an idempotent producer's load."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from command_line import CommandLine, executable
from confluent_kafka.admin import AdminClient, NewTopic
from test_kill_and_restart import PARTITIONS, WAIT_SECONDS, SteadyProducer, assert_exactly_once, read_all

from barnabas.cli.balance.cluster_state import Reassignment
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.reassigning import begin_reassignments

pytestmark = [pytest.mark.integration, pytest.mark.alone]

NODES: Final = 4
SETTINGS: Final = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200, "reconnect_backoff_max_ms": 200}
BEGUN_SECONDS_MAX: Final = 20.0


def make_topic(
    cluster: Any, name: str, partitions: int, replicas: int = 3, assignment: list[list[int]] | None = None
) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    if assignment is None:
        topic = NewTopic(name, partitions, replicas)
    else:
        topic = NewTopic(name, len(assignment), replica_assignment=assignment)
    admin.create_topics([topic])[name].result(WAIT_SECONDS)
    return name


def node_rows(run: CommandLine) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in run("nodes", "list", "--output", "json").data}


def replicas_of(run: CommandLine, topic: str) -> list[list[int]]:
    (described,) = run("topics", "--describe", "--topic", topic, "--output", "json").data
    return [part["replicas"] for part in described["partitions"]]


def checks(run: CommandLine, status: int) -> list[str]:
    return [each["check"] for each in run.findings(status=status)]


def until(look: Callable[[], Any], wanted: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"{seen}, not {wanted}"
        time.sleep(0.1)


def test_a_node_leaves_and_comes_back_under_load(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(nodes=NODES)
    run = CommandLine(f"127.0.0.1:{cluster.port}")
    topic = make_topic(cluster, "steady", PARTITIONS)
    with SteadyProducer(cluster.bootstrap, topic, **SETTINGS) as producer:
        producer.wait_for_more(500)
        said = run("nodes", "drain", "2").stderr
        assert "node 2 has no replicas any more" in said
        producer.wait_for_more(300)
        assert (node_rows(run)[2]["state"], node_rows(run)[2]["replicas"]) == ("drained", 0)
        make_topic(cluster, "new", 8)
        assert all(2 not in replicas for replicas in replicas_of(run, "new"))
        assert checks(run, 0) == ["draining"]
        assert "node 2 is running" in run.refused("nodes", "remove", "2")
        cluster.stop_service("broker-2")
        until(lambda: node_rows(run)[2]["state"], "fenced,drained")
        run("nodes", "remove", "2")
        assert sorted(node_rows(run)) == [1, 3, 4]
        refused = run.refused("nodes", "drain", "3")
        assert "start another node, or let them have one replica less with --fewer-replicas" in refused
        assert node_rows(run)[3]["state"] == "alive", "what cannot be done is not begun"
        producer.wait_for_more(300)
        cluster.start_service("broker-2")
        until(lambda: node_rows(run).get(2, {}).get("state"), "alive")
        assert {"no-leaders", "unbalanced"} <= set(checks(run, 1))
        run("rebalance", "--yes")
        rows = node_rows(run)
        assert all(row["leaders"] for row in rows.values()), rows
        until(lambda: checks(run, 0), [])
        producer.wait_for_more(300)
    assert_exactly_once(producer, read_all(cluster.bootstrap, topic))


def test_topics_get_more_replicas_and_fewer_under_load(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(nodes=NODES, flags=("--racks", "a,b,c"))
    run = CommandLine(f"127.0.0.1:{cluster.port}")
    racks = {row["id"]: row["rack"] for row in run("nodes", "list", "--output", "json").data}
    assert racks == {1: "a", 2: "b", 3: "c", 4: "a"}
    topic = make_topic(cluster, "steady", PARTITIONS, replicas=1)
    alter = ("topics", "--alter", "--topic", topic, "--replication-factor")
    before = replicas_of(run, topic)
    with SteadyProducer(cluster.bootstrap, topic, **SETTINGS) as producer:
        producer.wait_for_more(300)
        plan = run(*alter, "3", "--dry-run", "--output", "json").data
        assert [len(row["replicas"]) for row in plan] == [3] * PARTITIONS
        assert replicas_of(run, topic) == before
        run(*alter, "3", "--throttle", "50000000")
        for now, was in zip(replicas_of(run, topic), before, strict=True):
            assert now[:1] == was
            assert {racks[node] for node in now} == {"a", "b", "c"}
        assert "throttles-left" not in checks(run, 0)
        assert "there are 4 nodes that take replicas" in run.refused(*alter, "5")
        cluster.stop_service("broker-2")
        until(lambda: node_rows(run)[2]["state"], "fenced")
        said = run(*alter, "2").stderr
        assert f"{PARTITIONS} replicas to be removed" in said
        assert "min.insync.replicas=2" in said
        assert all(2 not in replicas for replicas in replicas_of(run, topic)), "who is away goes first"
        producer.wait_for_more(300)
    assert_exactly_once(producer, read_all(cluster.bootstrap, topic))


def test_a_drain_is_interrupted_and_goes_on(make_cluster: Callable[..., Any]) -> None:
    """Ctrl-C in the middle, and a topic is deleted meanwhile."""
    cluster = make_cluster(nodes=3)
    run = CommandLine(f"127.0.0.1:{cluster.port + 1}")
    many = make_topic(cluster, "many", 60, assignment=[[1, 2]] * 60)
    make_topic(cluster, "doomed", 20, assignment=[[1]] * 20)
    drain = subprocess.Popen(
        [str(executable()), "nodes", "drain", "1", "--at-once", "1"],
        env=run.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + BEGUN_SECONDS_MAX
        while node_rows(run)[1]["replicas"] > 75 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(drain.pid, signal.SIGINT)
        _, said = drain.communicate(timeout=BEGUN_SECONDS_MAX)
    finally:
        drain.kill()
    assert drain.returncode == 130, said
    assert "run the same command again" in said
    row = node_rows(run)[1]
    assert row["state"] == "draining"
    assert 0 < row["replicas"] <= 75
    run("topics", "--delete", "--topic", "doomed")
    run("nodes", "drain", "1")
    assert node_rows(run)[1]["replicas"] == 0
    assert {tuple(sorted(replicas)) for replicas in replicas_of(run, many)} == {(2, 3)}
    run("nodes", "undrain", "1")
    plan = run("rebalance", "--dry-run", "--output", "json").data
    assert plan["bytesMoved"] >= 0
    assert {reassignment["topic"] for reassignment in plan["partitions"]} == {many}
    assert all(
        1 in reassignment["replicas"] for reassignment in plan["partitions"] if reassignment["bytesMoved"]
    )
    assert "add --yes" in run.refused("rebalance", status=2)
    run("rebalance", "--yes", "--throttle", "50000000")
    rows = node_rows(run)
    assert all(abs(row["replicas"] - 40) <= 4 for row in rows.values()), rows
    assert [row["leaders"] for row in rows.values()] == [20, 20, 20]
    assert checks(run, 0) == []
    # A rate that all brokers have is how the cluster was set up; one that a broker has of its own was left behind.
    rate = "leader.replication.throttled.rate=90000000"
    run("configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", rate)
    assert checks(run, 0) == []
    run("configs", "--alter", "--entity-type", "brokers", "--entity-name", "2", "--add-config", rate)
    assert checks(run, 1) == ["throttles-left"]
    run("rebalance", "--cancel", "--yes")
    assert checks(run, 0) == []


def test_a_rebalance_is_interrupted_and_goes_on(make_cluster: Callable[..., Any]) -> None:
    """What it moved stays, what it began goes on in the cluster, and the same command again does the rest."""
    cluster = make_cluster(nodes=3)
    run = CommandLine(f"127.0.0.1:{cluster.port + 1}")
    many = make_topic(cluster, "many", 60, assignment=[[1, 2]] * 60)
    for number in range(60):
        cluster.produce(many, [str(number)], partition=number)
    rebalance = subprocess.Popen(
        [str(executable()), "rebalance", "--yes", "--at-once", "1"],
        env=run.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + BEGUN_SECONDS_MAX
        while node_rows(run)[3]["replicas"] < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(rebalance.pid, signal.SIGINT)
        _, said = rebalance.communicate(timeout=BEGUN_SECONDS_MAX)
    finally:
        rebalance.kill()
    assert rebalance.returncode == 130, said
    assert "run the same command again" in said
    assert 3 <= node_rows(run)[3]["replicas"] < 36, "half way"
    assert "unbalanced" in checks(run, 1)
    run("rebalance", "--yes", "--at-once", "10")
    rows = node_rows(run)
    assert all(abs(row["replicas"] - 40) <= 4 for row in rows.values()), rows
    assert [row["leaders"] for row in rows.values()] == [20, 20, 20]
    assert all(len(set(replicas)) == 2 for replicas in replicas_of(run, many)), "nothing was left half moved"
    until(lambda: checks(run, 0), [])
    records = cluster.wait_for_records(many, 60)
    assert sorted(int(record.value) for record in records) == list(range(60))


def test_where_one_broker_stands_for_all(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(nodes=3, advertise="one")
    run = CommandLine(cluster.bootstrap)
    make_topic(cluster, "orders", 6, assignment=[[1, 2]] * 6)
    rows = node_rows(run)
    assert sorted(rows) == [1, 2, 3]
    assert {row["leaders"] for row in rows.values()} == {None}
    run("nodes", "drain", "2")
    assert {tuple(sorted(replicas)) for replicas in replicas_of(run, "orders")} == {(1, 3)}
    run("nodes", "undrain", "2")
    run("rebalance", "--yes")
    assert {row["replicas"] for row in node_rows(run).values()} == {4}
    assert checks(run, 0) == []


def test_what_is_on_its_way_to_a_dead_node_is_not_waited_for_without_end(
    make_cluster: Callable[..., Any],
) -> None:
    """Somebody has begun to move partitions to a node that died: that is said, and once given up, all goes on."""
    cluster = make_cluster(nodes=NODES)
    run = CommandLine(f"127.0.0.1:{cluster.port}")
    topic = make_topic(cluster, "steady", PARTITIONS, assignment=[[1, 2, 3]] * PARTITIONS)
    with SteadyProducer(cluster.bootstrap, topic, **SETTINGS) as producer:
        producer.wait_for_more(300)
        cluster.stop_service("broker-4", kill=True)
        until(lambda: node_rows(run)[4]["state"], "fenced")
        with Administration(Connection(run.bootstrap)) as administration:
            reassignments = [Reassignment(topic, at, (1, 2, 3), (4, 2, 3)) for at in range(PARTITIONS)]
            assert begin_reassignments(administration, reassignments) == {}
        refused = run.refused("nodes", "drain", "1", "--give-up-after", "2")
        assert "node 4 is away, and 3 of 3 under way wait for that" in refused
        assert "run it again" in refused
        assert {"node-fenced", "reassigning"} <= set(checks(run, 1))
        assert "gave up 3 reassignments" in run("rebalance", "--cancel", "--yes").stderr
        assert [sorted(replicas) for replicas in replicas_of(run, topic)] == [[1, 2, 3]] * PARTITIONS
        cluster.start_service("broker-4")
        until(lambda: node_rows(run)[4]["state"], "alive")
        run("nodes", "drain", "1")
        assert all(1 not in replicas for replicas in replicas_of(run, topic))
        producer.wait_for_more(300)
    assert_exactly_once(producer, read_all(cluster.bootstrap, topic))
