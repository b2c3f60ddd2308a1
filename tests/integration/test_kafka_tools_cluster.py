"""Kafka's tools that look after a cluster: features, quorum, quotas, client metrics, groups' settings, reassignments.

What is asserted was seen at a Kafka 4.3.1 broker with the same commands, but for what Barnabas does not serve yet: that
ends with a sentence that says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from kafka_tools import Output, ToolsInOneJvm

pytestmark = pytest.mark.integration

KRAFT_FEATURES: Final = (
    "eligible.leader.replicas.version",
    "group.version",
    "kraft.version",
    "metadata.version",
    "share.version",
    "streams.version",
    "transaction.version",
)


@pytest.fixture(scope="module")
def tools(cluster: Any) -> Iterator[ToolsInOneJvm]:
    with ToolsInOneJvm(cluster.bootstrap) as running:
        yield running


def both(output: Output) -> str:
    return output.stdout + output.stderr


def test_cluster_tells_its_id_and_endpoints(tools: ToolsInOneJvm) -> None:
    (line,) = tools("cluster", "cluster-id").lines
    assert line.startswith("Cluster ID: ")
    assert len(line.removeprefix("Cluster ID: ")) == 22
    heading, row = tools("cluster", "list-endpoints").lines
    assert heading.split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    host, _, port = tools.bootstrap.partition(":")
    assert row.split() == ["1", host, port, "null", "unfenced", "broker"]


def test_features_are_those_of_a_kafka_release(tools: ToolsInOneJvm) -> None:
    rows = [line.split() for line in tools("features", "describe").lines]
    assert tuple(row[1] for row in rows) == KRAFT_FEATURES
    by_name = {row[1]: dict(zip(row[2::2], row[3::2], strict=True)) for row in rows}
    assert by_name["metadata.version"]["FinalizedVersionLevel:"] == "4.3-IV0"
    assert all(int(row["Epoch:"]) > 0 for row in by_name.values())
    unknown = tools("features", "upgrade", "--feature", "nonsense=1", status=1)
    assert "Could not upgrade nonsense to 1." in unknown.stdout
    down = tools("features", "downgrade", "--feature", "metadata.version=20", status=1)
    assert "Could not downgrade metadata.version to 20." in down.stdout
    same = tools("features", "upgrade", "--feature", "metadata.version=30")
    assert same.lines == ["metadata.version was upgraded to 30."]
    dry = tools("features", "disable", "--feature", "group.version", "--dry-run")
    assert dry.lines == ["group.version can be disabled."]


def test_metadata_quorum_is_described(tools: ToolsInOneJvm) -> None:
    status = dict(line.split(":", 1) for line in tools("metadata-quorum", "describe", "--status").lines)
    assert list(status) == [
        "ClusterId",
        "LeaderId",
        "LeaderEpoch",
        "HighWatermark",
        "MaxFollowerLag",
        "MaxFollowerLagTimeMs",
        "CurrentVoters",
        "CurrentObservers",
    ]
    leader = int(status["LeaderId"])
    assert leader in [voter["id"] for voter in json.loads(status["CurrentVoters"])]
    assert int(status["HighWatermark"]) > 0
    heading, *rows = (
        line.split("\t") for line in tools("metadata-quorum", "describe", "--replication").lines
    )
    assert heading[0].strip() == "NodeId"
    assert [row[0].strip() for row in rows if row[6].strip() == "Leader"] == [str(leader)]
    human = tools("metadata-quorum", "describe", "--replication", "--human-readable")
    assert "ms ago" in human.stdout


def test_client_metrics_subscriptions_come_and_go(tools: ToolsInOneJvm) -> None:
    name = ("--name", "shell-metrics")
    changes = ("--metrics", "org.apache.kafka.producer.", "--interval", "60000", "--match", "client_id=abc.*")
    done = tools("client-metrics", "--alter", *name, *changes)
    assert done.lines == ["Altered client metrics config for shell-metrics."]
    assert tools("client-metrics", "--describe", *name).lines == [
        "Client metrics configs for shell-metrics are:",
        "  interval.ms=60000",
        "  match=client_id=abc.*",
        "  metrics=org.apache.kafka.producer.",
    ]
    assert "shell-metrics" in tools("client-metrics", "--list").lines
    tools("client-metrics", "--alter", *name, "--interval", "")
    assert "  interval.ms=300000" in tools("client-metrics", "--describe", *name).lines
    for change, complaint in (
        (("--interval", "5"), "interval must be between 100 and 3600000"),
        (("--match", "nonsense=1"), "Illegal client matching pattern: nonsense=1"),
    ):
        refused = tools("client-metrics", "--alter", "--name", "shell-other", *change, status=1)
        assert complaint in both(refused)
    assert "shell-other" not in tools("client-metrics", "--list").lines
    deleted = tools("client-metrics", "--delete", *name)
    assert deleted.lines == ["Deleted client metrics config for shell-metrics."]
    assert "shell-metrics" not in tools("client-metrics", "--list").lines
    gone = tools("client-metrics", "--describe", *name)
    assert "doesn't exist and doesn't have dynamic config" in gone.stdout


def test_groups_have_settings(tools: ToolsInOneJvm) -> None:
    entity = ("--entity-type", "groups", "--entity-name", "shell-group-settings")
    tools("configs", *entity, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    shown = tools("configs", *entity, "--describe").stdout
    assert "consumer.session.timeout.ms=50000 sensitive=false" in shown
    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in shown
    refused = tools("configs", *entity, "--alter", "--add-config", "no.such=1", status=1)
    assert "no.such" in both(refused)
    tools("configs", *entity, "--alter", "--delete-config", "consumer.session.timeout.ms")


@pytest.mark.parametrize(
    ("entity", "change", "shown"),
    [
        (
            ("--entity-type", "clients", "--entity-name", "shell-client"),
            "producer_byte_rate=1024",
            "Quota configs for client-id 'shell-client' are producer_byte_rate=1024.0",
        ),
        (
            (
                "--entity-type",
                "users",
                "--entity-name",
                "alice",
                "--entity-type",
                "clients",
                "--entity-default",
            ),
            "consumer_byte_rate=2048,request_percentage=50",
            "Quota configs for user-principal 'alice', the default client-id are"
            " consumer_byte_rate=2048.0, request_percentage=50.0",
        ),
        (
            ("--entity-type", "users", "--entity-default"),
            "controller_mutation_rate=5",
            "Quota configs for the default user-principal are controller_mutation_rate=5.0",
        ),
        (
            ("--entity-type", "ips", "--entity-name", "10.0.0.1"),
            "connection_creation_rate=10",
            "Quota configs for ip '10.0.0.1' are connection_creation_rate=10.0",
        ),
    ],
)
def test_client_quotas_are_stored(
    tools: ToolsInOneJvm, entity: tuple[str, ...], change: str, shown: str
) -> None:
    tools("configs", *entity, "--alter", "--add-config", change)
    assert tools("configs", *entity, "--describe").lines == [shown]
    names = ",".join(part.partition("=")[0] for part in change.split(","))
    tools("configs", *entity, "--alter", "--delete-config", names)
    assert tools("configs", *entity, "--describe").lines == []


def test_broker_settings(tools: ToolsInOneJvm) -> None:
    everyone = ("--entity-type", "brokers", "--entity-default")
    tools("configs", *everyone, "--alter", "--add-config", "log.cleaner.backoff.ms=20000")
    assert "log.cleaner.backoff.ms=20000" in tools("configs", *everyone, "--describe").stdout
    tools("configs", *everyone, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    one = ("--entity-type", "brokers", "--entity-name", "1")
    refused = tools("configs", *one, "--alter", "--add-config", "log.dirs=/elsewhere", status=1)
    assert "Cannot update these configs dynamically" in both(refused)
    assert "log.dirs" in both(refused)


def test_reassignments_have_nothing_to_do(tools: ToolsInOneJvm, tmp_path: Path) -> None:
    tools("topics", "--create", "--topic", "shell-reassign", "--partitions", "2")
    assert tools("reassign-partitions", "--list").lines == ["No partition reassignments found."]
    plan = tmp_path / "plan.json"
    partition = {"topic": "shell-reassign", "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    verified = tools("reassign-partitions", "--verify", "--reassignment-json-file", str(plan)).stdout
    assert "Reassignment of partition shell-reassign-0 is completed." in verified
    assert "Clearing broker-level throttles on broker 1" in verified
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "shell-reassign"}]}))
    generated = tools(
        "reassign-partitions", "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1"
    )
    proposal = json.loads(generated.lines[generated.lines.index(PROPOSED) + 1])
    assert [(row["partition"], row["replicas"]) for row in proposal["partitions"]] == [(0, [1]), (1, [1])]


def test_replicas_that_are_there_already_are_taken(tools: ToolsInOneJvm, tmp_path: Path) -> None:
    tools("topics", "--create", "--topic", "shell-replicas")
    elected = tools(
        "leader-election", "--election-type", "preferred", "--topic", "shell-replicas", "--partition", "0"
    )
    assert elected.lines == ["Valid replica already elected for partitions shell-replicas-0"]
    everywhere = ("--election-type", "unclean", "--all-topic-partitions")
    assert tools("leader-election", *everywhere).lines == []
    unknown = tools(
        "leader-election",
        "--election-type",
        "preferred",
        "--topic",
        "shell-nothing",
        "--partition",
        "0",
        status=1,
    )
    assert "UnknownTopicOrPartitionException" in both(unknown)

    plan = tmp_path / "plan.json"
    flags = ("--reassignment-json-file", str(plan))
    partition = {"topic": "shell-replicas", "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    moved = tools("reassign-partitions", "--execute", *flags).lines
    assert moved[-1] == "Successfully started partition reassignment for shell-replicas-0"
    tools("reassign-partitions", "--verify", *flags)
    cancelled = tools("reassign-partitions", "--cancel", *flags)
    assert "None of the specified partition reassignments are active." in cancelled.stdout


PROPOSED: Final = "Proposed partition reassignment configuration"


def test_producers_of_a_partition_and_hanging_transactions(tools: ToolsInOneJvm) -> None:
    tools("topics", "--create", "--topic", "shell-producers")
    tools("console-producer", "--topic", "shell-producers", stdin="a\nb\n")
    rows = tools("transactions", "describe-producers", "--topic", "shell-producers", "--partition", "0").lines
    _, epoch, coordinator_epoch, sequence, _, start = rows[1].split("\t")[:6]
    assert [field.strip() for field in (epoch, coordinator_epoch, sequence, start)] == [
        "0",
        "-1",
        "1",
        "None",
    ]
    assert len(tools("transactions", "find-hanging", "--broker-id", "1").lines) == 1


def test_streams_and_share_groups_are_none(tools: ToolsInOneJvm) -> None:
    assert tools("streams-groups", "--list").lines == []
    assert tools("share-groups", "--list").lines == []


def test_streams_application_is_reset(tools: ToolsInOneJvm) -> None:
    tools("topics", "--create", "--topic", "shell-streams")
    reset = tools(
        "streams-application-reset", "--application-id", "shell-app", "--input-topics", "shell-streams"
    )
    assert "Topic: shell-streams Partition: 0 Offset: 0" in reset.stdout


ALLOWED: Final = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "shell-acls")

OF_SECURITY: Final = {
    "list ACLs": (("acls", "--list"), "no authorizer is configured"),
    "add an ACL": (("acls", "--add", *ALLOWED), "no authorizer is configured"),
    "remove an ACL": (("acls", "--remove", "--force", *ALLOWED), "no authorizer is configured"),
    "scram": (
        (
            "configs", "--entity-type", "users", "--entity-name", "alice", "--alter",
            "--add-config", "SCRAM-SHA-256=[password=x]",
        ),
        "ALTER_USER_SCRAM_CREDENTIALS",
    ),
}  # fmt: skip
"""Command and part of what the tool says, where a cluster without security has nothing to do."""


@pytest.mark.parametrize("name", OF_SECURITY)
def test_what_needs_security_ends_with_a_clear_sentence(tools: ToolsInOneJvm, name: str) -> None:
    command, sentence = OF_SECURITY[name]
    assert sentence in both(tools(*command, status=1))
