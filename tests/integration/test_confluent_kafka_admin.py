"""librdkafka's admin client through confluent-kafka: topics, settings, groups' offsets, and what is not served."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka_client import (
    WAIT_SECONDS,
    admin_of,
    code_of,
    consumer_of,
    make_topic,
    poll_records,
    produce,
    producer_of,
    wait_for_assignments,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(cluster: Any) -> AdminClient:
    return admin_of(cluster)


def result(futures: dict[Any, Future[Any]]) -> Any:
    """The result of the only future of an admin call."""
    (future,) = futures.values()
    return future.result(WAIT_SECONDS)


def test_admin_creates_alters_enlarges_and_deletes(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, "administered", 2, retention_ms="3600000")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    before = result(admin.describe_configs([resource]))
    assert before["retention.ms"].value == "3600000"
    assert before["segment.bytes"].value == "1073741824"
    assert before["segment.bytes"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    result(admin.incremental_alter_configs([change]))
    after = result(admin.describe_configs([resource]))
    assert after["max.message.bytes"].value == "2000"
    assert after["retention.ms"].value == "604800000"
    result(admin.create_partitions([NewPartitions(topic, 5)]))
    assert len(admin.list_topics(topic, WAIT_SECONDS).topics[topic].partitions) == 5
    producer = producer_of(cluster)
    errors: list[Any] = []
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_SECONDS) == 0
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    result(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=WAIT_SECONDS).topics
    assert code_of(admin.delete_topics([topic])[topic]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_dry_run_changes_nothing(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, "dry-run")
    result(admin.create_topics([NewTopic("dry-run-new", 3, 1)], validate_only=True))
    result(admin.create_partitions([NewPartitions(topic, 3)], validate_only=True))
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "5", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    result(admin.incremental_alter_configs([change], validate_only=True))
    topics = admin.list_topics(timeout=WAIT_SECONDS).topics
    assert "dry-run-new" not in topics
    assert len(topics[topic].partitions) == 1
    settings = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    assert settings["retention.ms"].value == "604800000"
    assert code_of(admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic]) == (
        KafkaError.TOPIC_ALREADY_EXISTS
    )


def test_lists_are_appended_to_and_subtracted_from(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, "list-settings", cleanup_policy="compact")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for operation, value, expected in (
        (AlterConfigOpType.APPEND, "delete", "compact,delete"),
        (AlterConfigOpType.SUBTRACT, "compact", "delete"),
    ):
        change = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[ConfigEntry("cleanup.policy", value, incremental_operation=operation)],
        )
        result(admin.incremental_alter_configs([change]))
        assert result(admin.describe_configs([resource]))["cleanup.policy"].value == expected


def test_settings_say_where_they_come_from(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, "sources", segment_bytes="2000000")
    settings = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    own = settings["segment.bytes"]
    assert ConfigSource(own.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert (own.value, own.is_default, own.is_read_only, own.is_sensitive) == ("2000000", False, False, False)
    assert own.synonyms["log.segment.bytes"].value == "1073741824"
    assert ConfigSource(settings["retention.bytes"].source) is ConfigSource.DEFAULT_CONFIG
    broker = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert broker["log.segment.bytes"].value == "1073741824"
    assert broker["node.id"].is_read_only


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "code"),
    [
        ("bad/name", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("n" * 250, 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("zero-partitions", 0, 1, {}, KafkaError.INVALID_PARTITIONS),
        ("too-many-replicas", 1, 3, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("bad-config", 1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ("unknown-config", 1, 1, {"no.such.config": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_mistakes_are_answered_with_kafkas_code(
    admin: AdminClient, name: str, partitions: int, replicas: int, config: dict[str, str], code: int
) -> None:
    with pytest.raises(KafkaException) as raised:
        result(admin.create_topics([NewTopic(name, partitions, replicas, config=config)]))
    assert raised.value.args[0].code() == code
    assert raised.value.args[0].str()


def test_one_bad_topic_of_a_request_harms_no_other(cluster: Any, admin: AdminClient) -> None:
    created = admin.create_topics([NewTopic("good-one", 2, 1), NewTopic("bad one", 1, 1)])
    created["good-one"].result(WAIT_SECONDS)
    assert code_of(created["bad one"]) == KafkaError.TOPIC_EXCEPTION
    enlarged = admin.create_partitions([NewPartitions("good-one", 1), NewPartitions("not-there", 3)])
    assert code_of(enlarged["good-one"]) == KafkaError.INVALID_PARTITIONS
    assert code_of(enlarged["not-there"]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_topics_and_cluster_are_described(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, "described-topic", 3)
    futures = admin.describe_topics(TopicCollection([topic, "not-there"]))
    described = futures[topic].result(WAIT_SECONDS)
    assert (described.name, described.is_internal, len(described.partitions)) == (topic, False, 3)
    assert str(described.topic_id)
    for number, partition in enumerate(described.partitions):
        assert (partition.id, partition.leader.id) == (number, 1)
        assert [node.id for node in partition.replicas] == [node.id for node in partition.isr] == [1]
    assert code_of(futures["not-there"]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    found = admin.describe_cluster().result(WAIT_SECONDS)
    assert [(node.id, node.host, node.port) for node in found.nodes] == [(1, "127.0.0.1", cluster.port)]
    assert found.controller.id == 1
    assert found.cluster_id == admin.cluster_id(WAIT_SECONDS)


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_offsets_are_listed_by_every_specification(
    cluster: Any, admin: AdminClient, isolation: IsolationLevel
) -> None:
    topic = make_topic(cluster, f"listed-{isolation.name.lower()}")
    for at in (1_600_000_000_000, 1_600_000_009_000, 1_600_000_005_000):
        produce(cluster, topic, 1, timestamp=at)
    here = TopicPartition(topic, 0)
    for specification, offset, timestamp in (
        (OffsetSpec.earliest(), 0, -1),
        (OffsetSpec.latest(), 3, -1),
        (OffsetSpec.max_timestamp(), 1, 1_600_000_009_000),
        (OffsetSpec.for_timestamp(1_600_000_000_001), 1, 1_600_000_009_000),
        (OffsetSpec.for_timestamp(1_600_000_009_001), -1, -1),
    ):
        found = result(admin.list_offsets({here: specification}, isolation_level=isolation))
        assert (found.offset, found.timestamp) == (offset, timestamp)
    missing = TopicPartition(topic, 9)
    assert code_of(admin.list_offsets({missing: OffsetSpec.latest()})[missing]) == KafkaError._NOENT


def test_records_are_deleted_up_to_an_offset_or_the_end(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, "cut-records", 2)
    for partition in (0, 1):
        produce(cluster, topic, 5, partition=partition)
    deleted = admin.delete_records([TopicPartition(topic, 0, 3), TopicPartition(topic, 1, -1)])
    assert {p.partition: f.result(WAIT_SECONDS).low_watermark for p, f in deleted.items()} == {0: 3, 1: 5}
    beyond = TopicPartition(topic, 0, 6)
    assert code_of(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE


def test_a_groups_offsets_are_listed_and_altered(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, "altered-offsets", 2)
    for partition in (0, 1):
        produce(cluster, topic, 9, partition=partition)
    with consumer_of(cluster, "altered-group") as client:
        client.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    wanted = [TopicPartition(topic, 0, 4, metadata="moved"), TopicPartition(topic, 1, 7)]
    altered = result(
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("altered-group", wanted)])
    )
    assert [partition.error for partition in altered.topic_partitions] == [None, None]
    for asked in (None, [TopicPartition(topic, 0), TopicPartition(topic, 1)]):
        listed = result(
            admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("altered-group", asked)])
        )
        found = {p.partition: (p.offset, p.metadata or "") for p in listed.topic_partitions}
        assert found == {0: (4, "moved"), 1: (7, "")}
    with consumer_of(cluster, "altered-group") as client:
        client.subscribe([topic])
        got = poll_records(client, 7)
        assert sorted((m.partition(), m.offset()) for m in got)[::5] == [(0, 4), (1, 7)]
        refused = result(
            admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("altered-group", wanted)])
        )
        codes = [partition.error.code() for partition in refused.topic_partitions]
        assert codes == [KafkaError.UNKNOWN_MEMBER_ID] * 2


def test_groups_are_deleted_when_nobody_is_in_them(cluster: Any, admin: AdminClient) -> None:
    topic = make_topic(cluster, "deleted-groups")
    with consumer_of(cluster, "deleted-idle") as idle:
        idle.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    with consumer_of(cluster, "deleted-busy") as busy:
        busy.subscribe([topic])
        wait_for_assignments([busy], [1])
        deleted = admin.delete_consumer_groups(["deleted-idle", "deleted-busy", "deleted-nobody"])
        deleted["deleted-idle"].result(WAIT_SECONDS)
        assert code_of(deleted["deleted-busy"]) == KafkaError.NON_EMPTY_GROUP
        assert code_of(deleted["deleted-nobody"]) == KafkaError.GROUP_ID_NOT_FOUND
        listed = admin.list_consumer_groups().result(WAIT_SECONDS)
        names = {group.group_id for group in listed.valid}
        assert "deleted-busy" in names
        assert "deleted-idle" not in names
        assert listed.errors == []


def test_leaders_need_no_election(cluster: Any, admin: AdminClient) -> None:
    here = TopicPartition(make_topic(cluster, "elected"), 0)
    found = admin.elect_leaders(ElectionType.PREFERRED, [here]).result(WAIT_SECONDS)
    assert {(place.topic, place.partition): error.code() for place, error in found.items()} == {
        ("elected", 0): KafkaError.ELECTION_NOT_NEEDED
    }
    assert admin.elect_leaders(ElectionType.UNCLEAN).result(WAIT_SECONDS) == {}


def test_nobody_has_scram_credentials(admin: AdminClient) -> None:
    assert admin.describe_user_scram_credentials().result(WAIT_SECONDS) == {}
    asked = admin.describe_user_scram_credentials(["someone"])["someone"]
    assert code_of(asked) == KafkaError.RESOURCE_NOT_FOUND


BINDING = AclBinding(
    ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:someone", "*",
    AclOperation.READ, AclPermissionType.ALLOW,
)  # fmt: skip
ANY_BINDING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
CREDENTIAL = UserScramCredentialUpsertion(
    "someone", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
)
NO_CREDENTIAL = UserScramCredentialDeletion("someone", ScramMechanism.SCRAM_SHA_256)

OF_ACLS: dict[str, Callable[[AdminClient], Any]] = {
    "create": lambda admin: result(admin.create_acls([BINDING])),
    "delete": lambda admin: result(admin.delete_acls([ANY_BINDING])),
}


@pytest.mark.parametrize("call", OF_ACLS)
def test_who_asks_about_acls_hears_that_security_is_off(admin: AdminClient, call: str) -> None:
    with pytest.raises(KafkaException) as raised:
        OF_ACLS[call](admin)
    assert raised.value.args[0].code() == KafkaError.SECURITY_DISABLED
    assert "no authorizer is configured" in raised.value.args[0].str()


def test_there_are_no_acls(admin: AdminClient) -> None:
    """librdkafka does not tell the error of this answer, whoever gives it."""
    assert admin.describe_acls(ANY_BINDING).result(WAIT_SECONDS) == []


NOT_SERVED: dict[str, Callable[[AdminClient], Any]] = {
    "upsert SCRAM": lambda admin: result(admin.alter_user_scram_credentials([CREDENTIAL])),
    "delete SCRAM": lambda admin: result(admin.alter_user_scram_credentials([NO_CREDENTIAL])),
}
"""What the client offers and a broker without security does not: see docs/compatibility.md."""


@pytest.mark.parametrize("call", NOT_SERVED)
def test_what_is_not_served_is_said_at_once(admin: AdminClient, call: str) -> None:
    with pytest.raises(KafkaException) as raised:
        NOT_SERVED[call](admin)
    assert raised.value.args[0].code() == KafkaError._UNSUPPORTED_FEATURE
    assert "not supported by broker" in raised.value.args[0].str()
