"""The quorum through kafka-metadata-quorum, and its epoch through elections."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka_tools import ToolsInOneJvm
from raw_client import RawConnection
from running_cluster import Cluster

pytestmark = pytest.mark.integration

DESCRIBE_QUORUM, DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 55, 48, 49
FIRST_CONTROLLER_ID = 3000


def partition_of(cluster: Cluster) -> Any:
    topic = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    with RawConnection(cluster.port) as connection:
        answer = connection.ask(DESCRIBE_QUORUM, 2, {"topics": [topic]})
    assert answer.error_code == 0, answer
    (partition,) = answer.topics[0].partitions
    return partition


def test_every_node_is_an_observer(make_cluster: Any) -> None:
    cluster: Cluster = make_cluster(nodes=2)
    with ToolsInOneJvm(cluster.bootstrap) as tools:
        lines = tools("metadata-quorum", "describe", "--status").lines
        status = dict(line.split(":", 1) for line in lines)
        header, *rows = tools("metadata-quorum", "describe", "--replication", "--human-readable").lines
    assert status["LeaderId"].strip() == str(FIRST_CONTROLLER_ID)
    assert status["MaxFollowerLag"].strip() == "0"
    assert json.loads(status["CurrentObservers"]) == [{"id": 1}, {"id": 2}]
    assert header.split()[:4] == ["NodeId", "DirectoryId", "LogEndOffset", "Lag"]
    assert [(row.split()[0], row.split()[3], row.split()[-1]) for row in rows] == [
        (str(FIRST_CONTROLLER_ID), "0", "Leader"),
        ("1", "0", "Observer"),
        ("2", "0", "Observer"),
    ]


def test_the_high_watermark_rises_with_changes_and_the_epoch_with_elections(make_cluster: Any) -> None:
    cluster: Cluster = make_cluster()
    before = partition_of(cluster)
    assert [observer.replica_id for observer in before.observers] == [1]
    entity = [{"entity_type": "user", "entity_name": "u"}]
    rate = {"key": "producer_byte_rate", "value": 1.0, "remove": False}
    with RawConnection(cluster.port) as connection:
        body = {"entries": [{"entity": entity, "ops": [rate]}], "validate_only": False}
        assert connection.ask(ALTER_CLIENT_QUOTAS, 1, body).entries[0].error_code == 0
    changed = partition_of(cluster)
    assert changed.high_watermark > before.high_watermark
    assert changed.leader_epoch == before.leader_epoch
    cluster.kill_and_wait("controller")
    after = partition_of(cluster)
    assert after.leader_epoch > before.leader_epoch
    assert after.high_watermark > changed.high_watermark
    with RawConnection(cluster.port) as connection:
        quotas = connection.ask(DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}).entries
    assert [entry.entity[0].entity_name for entry in quotas] == ["u"], "it was stored"
