"""kafka-python's admin client, which knows more of the newest requests than any other in Python."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_python_client import (
    TopicPartition,
    Worker,
    admin_of,
    consumer_of,
    errors,
    kafka,
    make_topic,
    produce,
    wait_for_assignments,
)

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


@pytest.fixture(scope="module", autouse=True)
def sockets_are_collected() -> Iterator[None]:
    """Now and then this client leaves a socket to the garbage collector; let it be found before other tests run."""
    yield
    gc.collect()


@pytest.fixture
def admin(cluster: Any) -> Any:
    with admin_of(cluster) as client:
        yield client


def config_of(admin: Any, kind: str, name: str, setting: str) -> dict[str, Any]:
    found = admin.describe_configs(
        [kafka.admin.ConfigResource(kind, name, {setting: None})], include_synonyms=True, config_filter="all"
    )
    entry: dict[str, Any] = found[kind.lower()][name][setting]
    return entry


def test_topics_are_created_enlarged_described_and_deleted(admin: Any) -> None:
    created = admin.create_topics(
        {
            "kp-made": {"num_partitions": 2, "configs": {"retention.ms": "5000"}},
            "kp-assigned": {"assignments": {0: [1]}},
        },
        wait_for_metadata=True,
    )
    shown = {topic["name"]: topic for topic in created["topics"]}
    assert (shown["kp-made"]["num_partitions"], shown["kp-made"]["replication_factor"]) == (2, 1)
    assert shown["kp-made"]["configs"]["retention.ms"]["value"] == "5000"
    with pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics(["kp-made"], validate_only=True)
    with pytest.raises(errors.InvalidTopicError):
        admin.create_topics(["kp bad name"])
    admin.create_partitions({"kp-made": 5})
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({"kp-made": 4})
    (described,) = admin.describe_topics(["kp-made"])
    assert [(p["partition_index"], p["leader_id"], p["isr_nodes"]) for p in described["partitions"]] == [
        (number, 1, [1]) for number in range(5)
    ]
    topic_id = uuid.UUID(described["topic_id"])
    (by_id,) = admin.describe_topics([topic_id])
    assert by_id["name"] == "kp-made"
    admin.delete_topics([topic_id])
    admin.delete_topics(["kp-assigned"])
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics(["kp-made"])
    assert "kp-made" not in admin.list_topics()


def test_topic_partitions_are_described_page_by_page(cluster: Any, admin: Any) -> None:
    topic = make_topic(cluster, "kp-pages", 5)
    cursor, seen = None, []
    while True:
        page = admin.describe_topic_partitions([topic], response_partition_limit=2, cursor=cursor)
        for described in page["topics"]:
            seen += [partition["partition_index"] for partition in described["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_settings_are_described_altered_and_reset(cluster: Any, admin: Any) -> None:
    topic = make_topic(cluster, "kp-settings", retention_ms="5000")
    found = config_of(admin, "TOPIC", topic, "retention.ms")
    assert (found["value"], found["config_source"], found["read_only"]) == (
        "5000",
        "DYNAMIC_TOPIC_CONFIG",
        False,
    )
    assert config_of(admin, "TOPIC", topic, "segment.bytes")["config_source"] == "DEFAULT_CONFIG"
    done = admin.alter_configs(
        [kafka.admin.ConfigResource("TOPIC", topic, {"segment.ms": "7000", "retention.ms": "6000"})]
    )
    assert done == {"topic": {topic: "OK"}}
    assert config_of(admin, "TOPIC", topic, "segment.ms")["value"] == "7000"
    append = kafka.admin.ConfigResource(
        "TOPIC", topic, {"cleanup.policy": (kafka.admin.AlterConfigOp.APPEND, "compact")}
    )
    assert admin.alter_configs([append]) == {"topic": {topic: "OK"}}
    assert config_of(admin, "TOPIC", topic, "cleanup.policy")["value"] == "delete,compact"
    refused = admin.alter_configs([kafka.admin.ConfigResource("TOPIC", topic, {"segment.ms": "soon"})])
    assert "InvalidConfigurationError" in refused["topic"][topic]
    admin.alter_configs(
        [kafka.admin.ConfigResource("TOPIC", topic, {"retention.ms": "8000"})], incremental=False
    )
    assert (
        config_of(admin, "TOPIC", topic, "segment.ms")["value"] == "7000"
    )  # the client sends all that it knows
    admin.reset_configs([kafka.admin.ConfigResource("TOPIC", topic, {})])
    assert config_of(admin, "TOPIC", topic, "retention.ms")["value"] == "604800000"
    assert config_of(admin, "BROKER", "1", "log.retention.hours")["value"] == "168"
    assert topic in admin.list_config_resources(["TOPIC"])["topic"]
    assert admin.list_config_resources(["BROKER"])["broker"] == ["1"]


def test_cluster_and_log_directories_are_described(cluster: Any, admin: Any) -> None:
    topic = make_topic(cluster, "kp-directories", 2)
    produce(cluster, topic, 10, partition=1)
    described = admin.describe_cluster()
    assert [(b["broker_id"], b["host"], b["port"], b["is_fenced"]) for b in described["brokers"]] == [
        (1, "127.0.0.1", cluster.port, False)
    ]
    assert (described["controller_id"], len(described["cluster_id"])) == (1, 22)
    (broker,) = admin.describe_log_dirs([topic])
    (directory,) = broker["log_dirs"]
    assert directory["error_code"] == 0
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    ((sizes),) = [found["partitions"] for found in directory["topics"]]
    assert {p["partition_index"]: p["partition_size"] > 0 for p in sizes} == {0: False, 1: True}
    assert admin.list_partition_reassignments() == {}


def test_features_and_the_quorum_are_described(admin: Any) -> None:
    features = admin.describe_features()
    assert features["metadata.version"]["finalized"] == features["metadata.version"]["supported"][1:] * 2
    with pytest.raises(errors.InvalidUpdateVersionError, match=r"metadata\.version"):
        admin.update_features({"metadata.version": 99}, validate_only=True)
    (quorum,) = admin.describe_metadata_quorum()["topics"]
    assert quorum["topic_name"] == "__cluster_metadata"
    (partition,) = quorum["partitions"]
    assert partition["leader_id"] in [voter["replica_id"] for voter in partition["current_voters"]]


def test_nobody_has_scram_credentials(admin: Any) -> None:
    assert admin.describe_user_scram_credentials() == {}
    (found,) = admin.describe_user_scram_credentials(["someone"]).values()
    assert "no SCRAM credentials" in found["error"]


def test_offsets_are_listed_by_every_specification(cluster: Any, admin: Any) -> None:
    topic = make_topic(cluster, "kp-listed")
    here = TopicPartition(topic, 0)
    for at in (1_600_000_000_000, 1_600_000_009_000, 1_600_000_005_000):
        produce(cluster, topic, 1, timestamp_ms=at)
    for specification, offset in (
        (kafka.admin.OffsetSpec.EARLIEST, 0),
        (kafka.admin.OffsetSpec.LATEST, 3),
        (kafka.admin.OffsetSpec.MAX_TIMESTAMP, 1),
        (kafka.admin.OffsetSpec.EARLIEST_LOCAL, 0),
        (kafka.admin.OffsetSpec.LATEST_TIERED, -1),
        (kafka.admin.OffsetTimestamp(1_600_000_000_001), 1),
        (1_600_000_009_001, -1),
    ):
        assert admin.list_partition_offsets({here: specification})[here].offset == offset


def test_records_are_deleted(cluster: Any, admin: Any) -> None:
    topic = make_topic(cluster, "kp-cut")
    here = TopicPartition(topic, 0)
    produce(cluster, topic, 10)
    assert admin.delete_records({here: 4})[here]["low_watermark"] == 4
    with pytest.raises(errors.OffsetOutOfRangeError):
        admin.delete_records({here: 11})
    assert admin.delete_records({here: -1})[here]["low_watermark"] == 10


def test_active_producers_are_described(cluster: Any, admin: Any) -> None:
    topic = make_topic(cluster, "kp-producers")
    here = TopicPartition(topic, 0)
    produce(cluster, topic, 3)
    (state,) = admin.describe_producers([here])[here].active_producers
    assert (state.last_sequence, state.producer_epoch) == (2, 0)


def test_replicas_lead_and_stay_where_they_are(cluster: Any, admin: Any) -> None:
    topic = make_topic(cluster, "kp-replicas")
    (elected,) = admin.elect_leaders(0, {topic: [0]}, raise_errors=False).replica_election_results
    assert [row.error_code for row in elected.partition_result] == [errors.ElectionNotNeededError.errno]
    here = TopicPartition(topic, 0)
    assert admin.alter_partition_reassignments({here: [1]}) == {here: None}
    assert admin.alter_partition_reassignments({here: None}) == {here: errors.NoReassignmentInProgressError}
    assert admin.list_partition_reassignments() == {}


def test_groups_are_listed_described_and_deleted(cluster: Any, admin: Any) -> None:
    topic = make_topic(cluster, "kp-groups", 2)
    with Worker(cluster, topic, group="kp-described", client_id="kp-describer") as worker:
        wait_for_assignments([worker], [2])
        listed = {group["group_id"]: group for group in admin.list_groups(states_filter=["STABLE"])}
        assert listed["kp-described"]["group_state"] == "Stable"
        assert listed["kp-described"]["group_type"] == "classic"
        described = admin.describe_groups(["kp-described", "kp-nobody"])
        assert described["kp-nobody"]["group_state"] == "Dead"
        (member,) = described["kp-described"]["members"]
        assert (member["client_id"], member["client_host"]) == ("kp-describer", "/127.0.0.1")
        assert member["member_metadata"]["topics"] == [topic]
        assert admin.delete_groups(["kp-described", "kp-nobody"]) == {
            "kp-described": "NonEmptyGroupError",
            "kp-nobody": "GroupIdNotFoundError",
        }
    assert admin.delete_groups(["kp-described"]) == {"kp-described": "OK"}


def test_a_groups_offsets_are_altered_reset_and_deleted(cluster: Any, admin: Any) -> None:
    topic = make_topic(cluster, "kp-moved", 2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for at in range(10):
        produce(cluster, topic, 1, partition=0, timestamp_ms=1_600_000_000_000 + at)
    group = "kp-moved"
    with consumer_of(cluster, group=group) as consumer:
        consumer.assign([zero])
        consumer.commit({zero: kafka.OffsetAndMetadata(1, "", -1)})
    moved = {zero: kafka.OffsetAndMetadata(4, "moved", -1), one: kafka.OffsetAndMetadata(0, "", -1)}
    assert admin.alter_group_offsets(group, moved) == {zero: errors.NoError, one: errors.NoError}
    listed = admin.list_group_offsets({group: None, "kp-nobody": None})
    assert {place: (found.offset, found.metadata) for place, found in listed[group].items()} == {
        zero: (4, "moved"),
        one: (0, ""),
    }
    assert listed["kp-nobody"] == {}
    for target, offset in (
        (kafka.admin.OffsetSpec.LATEST, 10),
        (kafka.admin.OffsetTimestamp(1_600_000_000_007), 7),
        (99, 10),
    ):
        assert admin.reset_group_offsets(group, {zero: target})[zero]["offset"] == offset
        assert admin.list_group_offsets(group)[group][zero].offset == offset
    with Worker(cluster, topic, group=group) as worker:
        wait_for_assignments([worker], [2])
        assert admin.alter_group_offsets(group, moved)[zero] is errors.UnknownMemberIdError
        assert admin.delete_group_offsets(group, [zero]) == {zero: errors.GroupSubscribedToTopicError}
    assert admin.delete_group_offsets(group, [one]) == {one: errors.NoError}
    assert set(admin.list_group_offsets(group)[group]) == {zero}


def test_members_are_removed(cluster: Any, admin: Any) -> None:
    topic = make_topic(cluster, "kp-removed")
    with Worker(cluster, topic, group="kp-removed", group_instance_id="gone") as worker:
        wait_for_assignments([worker], [1])
    wrong, gone = (
        kafka.admin.MemberToRemove(group_instance_id="never"),
        kafka.admin.MemberToRemove(group_instance_id="gone"),
    )
    removed = admin.remove_group_members("kp-removed", [wrong])
    assert list(removed.values()) == [errors.UnknownMemberIdError]
    removed = admin.remove_group_members("kp-removed", [gone])
    assert list(removed.values()) == [errors.NoError]
    assert admin.describe_groups(["kp-removed"])["kp-removed"]["members"] == []


PATTERN = kafka.admin.ResourcePattern(kafka.admin.ResourceType.TOPIC, "orders")
ANY_PATTERN = kafka.admin.ResourcePatternFilter(
    kafka.admin.ResourceType.TOPIC, "orders", PATTERN.pattern_type
)
BINDING = kafka.admin.ACL(
    "User:someone", "*", kafka.admin.ACLOperation.READ, kafka.admin.ACLPermissionType.ALLOW, PATTERN
)
FILTER = kafka.admin.ACLFilter(
    "User:someone", "*", kafka.admin.ACLOperation.READ, kafka.admin.ACLPermissionType.ALLOW, ANY_PATTERN
)
CREDENTIAL = kafka.admin.UserScramCredentialUpsertion(
    "someone", kafka.admin.ScramMechanism.SCRAM_SHA_256, "secret"
)


def test_who_asks_about_acls_hears_that_security_is_off(admin: Any) -> None:
    with pytest.raises(errors.SecurityDisabledError, match="no authorizer is configured"):
        admin.describe_acls(FILTER)
    (refused,) = admin.create_acls([BINDING])["failed"]
    assert refused
    ((_, _, error),) = admin.delete_acls([FILTER])
    assert error is errors.SecurityDisabledError


def test_what_is_not_served_is_said_at_once(admin: Any) -> None:
    """What the client offers and a broker without SASL does not: see docs/compatibility.md."""
    with pytest.raises(errors.IncompatibleBrokerVersion, match="does not support"):
        admin.alter_user_scram_credentials([CREDENTIAL])
