"""CreateTopics, CreatePartitions and DeleteTopics as pure decisions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller import limits
from barnabas.controller.core.decision import ClusterDefaults, Decision
from barnabas.controller.core.deletion import delete_topics
from barnabas.controller.core.nodes import fence_node, hand_over, register_node
from barnabas.controller.core.partitions import create_partitions
from barnabas.controller.core.producer_ids import allocate_producer_ids
from barnabas.controller.core.topics import create_topics
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
    MetadataImage,
)
from barnabas.metadata.topic_names import check_topic_name

_ids = itertools.count(1)
DEFAULTS = ClusterDefaults(num_partitions=2)


def new_topic_id() -> bytes:
    return next(_ids).to_bytes(16, "big")


def after(image: MetadataImage, decision: Decision[object]) -> MetadataImage:
    return image.apply(decision.records, image.revision + 1)


def cluster(nodes: int = 1) -> MetadataImage:
    image = MetadataImage()
    for node_id in range(1, nodes + 1):
        node = md.NodeRecord(node_id=node_id, incarnation_id="a", address=f"n{node_id}")
        image = after(image, register_node(image, node))
    return image


def create(
    image: MetadataImage,
    *topics: pb.NewTopic,
    validate_only: bool = False,
    defaults: ClusterDefaults = DEFAULTS,
) -> tuple[pb.CreateTopicsResponse, MetadataImage]:
    request = pb.CreateTopicsRequest(topics=topics, validate_only=validate_only)
    decision = create_topics(image, request, defaults, new_topic_id)
    return decision.response, after(image, decision)


def topic(name: str = "orders", partitions: int = 1, factor: int = 1, **more: object) -> pb.NewTopic:
    return pb.NewTopic(name=name, partition_count=partitions, replication_factor=factor, **more)  # type: ignore[arg-type]


def assigned(*replicas: list[int], name: str = "orders") -> pb.NewTopic:
    assignments = [pb.ReplicaAssignment(partition=i, node_ids=ids) for i, ids in enumerate(replicas)]
    return topic(name, -1, -1, assignments=assignments)


def refusal(image: MetadataImage, new: pb.NewTopic) -> tuple[ErrorCode, str]:
    response, image_after = create(image, new)
    assert set(image_after.records) == set(image.records)
    result = response.topics[0].result
    return ErrorCode(result.error_code), result.error_message


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "...", "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n"])
def test_illegal_names(name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.invalid_topic_exception
    assert caught.value.message.startswith("Topic name is invalid: ")


def test_defaults_are_filled_in() -> None:
    response, image = create(cluster(), topic(partitions=-1, factor=-1))
    created = response.topics[0]
    assert (created.partition_count, created.replication_factor) == (2, 1)
    assert created.topic_id == image.topics["orders"].topic_id
    assert [list(p.replicas) for p in image.topics["orders"].partitions] == [[1], [1]]


def test_leaders_of_several_topics_spread() -> None:
    image = cluster(3)
    for name in "abcdef":
        _, image = create(image, topic(name))
    leaders = sorted(t.partitions[0].leader for t in image.topics.values())
    assert leaders == [1, 1, 2, 2, 3, 3]
    _, image = create(cluster(3), *(topic(name) for name in "abc"))
    assert sorted(t.partitions[0].leader for t in image.topics.values()) == [1, 2, 3]


@pytest.mark.parametrize(
    ("new", "code", "words"),
    [
        (topic(partitions=0), ErrorCode.invalid_partitions, "non-positive"),
        (topic(partitions=-2), ErrorCode.invalid_partitions, "non-positive"),
        (topic(factor=0), ErrorCode.invalid_replication_factor, "larger than 0"),
        (topic(factor=-2), ErrorCode.invalid_replication_factor, "larger than 0"),
        (topic(factor=4), ErrorCode.invalid_replication_factor, "because only 3 broker(s) are registered"),
        (topic("bad name"), ErrorCode.invalid_topic_exception, "letters and digits"),
        (topic(partitions=10_001), ErrorCode.policy_violation, "at most 10000"),
        (
            topic(configs=[pb.ConfigEntry(name="retention.ms", value="-2")]),
            ErrorCode.invalid_config,
            "Invalid value -2 for configuration retention.ms: it must be at least -1",
        ),
        (
            topic(configs=[pb.ConfigEntry(name="nope", value="1")]),
            ErrorCode.invalid_config,
            "Unknown topic config name: nope",
        ),
        (topic(configs=[pb.ConfigEntry(name="retention.ms")]), ErrorCode.invalid_config, "Null value"),
        (assigned([1, 2], [3]), ErrorCode.invalid_replica_assignment, "is not consistent"),
        (assigned([9]), ErrorCode.invalid_replica_assignment, "no such broker is registered"),
        (assigned([]), ErrorCode.invalid_replica_assignment, "empty replica list"),
        (assigned([1, 1]), ErrorCode.invalid_replica_assignment, "more than once"),
        (assigned([1], [1, 2]), ErrorCode.invalid_replica_assignment, "is not consistent"),
        (
            topic(partitions=3, factor=-1, assignments=[pb.ReplicaAssignment(node_ids=[1])]),
            ErrorCode.invalid_request,
            "numPartitions was not set to -1",
        ),
        (
            topic(partitions=-1, factor=1, assignments=[pb.ReplicaAssignment(node_ids=[1])]),
            ErrorCode.invalid_request,
            "replication factor was not set to -1",
        ),
        (
            topic(partitions=-1, factor=-1, assignments=[pb.ReplicaAssignment(partition=1, node_ids=[1])]),
            ErrorCode.invalid_replica_assignment,
            "consecutive",
        ),
    ],
)
def test_refusals_say_what_to_change(new: pb.NewTopic, code: ErrorCode, words: str) -> None:
    actual, message = refusal(cluster(3), new)
    assert actual is code
    assert words in message


def shape(image: MetadataImage, name: str = "orders") -> list[tuple[int, list[int], list[int]]]:
    """(leader, replicas, in-sync replicas) of each partition."""
    return [(p.leader, list(p.replicas), list(p.isr)) for p in image.topics[name].partitions]


def test_partitions_have_as_many_replicas_as_are_asked_for() -> None:
    response, image = create(cluster(3), topic(partitions=3, factor=3))
    assert response.topics[0].replication_factor == 3
    assert [leader for leader, _, _ in shape(image)] == [1, 2, 3]
    for leader, replicas, isr in shape(image):
        assert (sorted(replicas), isr, leader) == ([1, 2, 3], replicas, replicas[0])
    epochs = {(p.leader_epoch, p.partition_epoch) for p in image.topics["orders"].partitions}
    assert epochs == {(0, 0)}


def test_the_default_replication_factor_counts_where_none_is_asked_for() -> None:
    request = pb.CreateTopicsRequest(topics=[topic(factor=-1)])
    defaults = ClusterDefaults(default_replication_factor=2)
    decision = create_topics(cluster(3), request, defaults, new_topic_id)
    assert decision.response.topics[0].replication_factor == 2


def test_only_nodes_that_are_there_are_in_sync_from_the_start() -> None:
    image = cluster(3)
    image = after(image, fence_node(image, 1))
    _, by_itself = create(image, topic(factor=3))
    assert shape(by_itself) == [(2, [2, 3, 1], [2, 3])]
    _, by_hand = create(image, assigned([1, 3, 2]))
    assert shape(by_hand) == [(3, [1, 3, 2], [3, 2])]
    assert refusal(image, assigned([1]))[1] == (
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown."
    )


def test_a_node_that_is_about_to_stop_leads_no_new_partition() -> None:
    image = cluster(3)
    image = after(image, hand_over(image, pb.HandOverRequest(node_id=1, incarnation_id="a"), (1, 2, 3)))
    _, by_itself = create(image, topic(partitions=4, factor=2))
    assert {node for _, replicas, _ in shape(by_itself) for node in replicas} == {2, 3}
    assert refusal(image, topic(factor=3))[0] is ErrorCode.invalid_replication_factor
    _, by_hand = create(image, assigned([1, 2]))
    assert shape(by_hand) == [(2, [1, 2], [2])]
    assert "controlled shutdown" in refusal(image, assigned([1]))[1]


def test_more_partitions_have_as_many_replicas_as_the_first_ones() -> None:
    _, image = create(cluster(3), topic(partitions=1, factor=2))
    more = pb.NewPartitions(name="orders", partition_count=3)
    image = after(image, create_partitions(image, pb.CreatePartitionsRequest(topics=[more])))
    assert [len(replicas) for _, replicas, _ in shape(image)] == [2, 2, 2]
    assigned_more = pb.NewPartitions(
        name="orders", partition_count=4, assignments=[pb.ReplicaAssignment(partition=0, node_ids=[3, 1])]
    )
    image = after(image, create_partitions(image, pb.CreatePartitionsRequest(topics=[assigned_more])))
    assert shape(image)[3] == (3, [3, 1], [3, 1])
    wrong = pb.NewPartitions(
        name="orders", partition_count=5, assignments=[pb.ReplicaAssignment(partition=0, node_ids=[3])]
    )
    decision = create_partitions(image, pb.CreatePartitionsRequest(topics=[wrong]))
    result = decision.response.results[0]
    assert (result.error_code, result.error_message) == (
        ErrorCode.invalid_replica_assignment,
        "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with "
        "previous partitions, which have 2 replica(s).",
    )


def test_no_live_node_is_an_invalid_replication_factor() -> None:
    image = cluster()
    for empty in (MetadataImage(), after(image, fence_node(image, 1))):
        code, message = refusal(empty, topic())
        assert code is ErrorCode.invalid_replication_factor
        assert "All brokers are currently fenced" in message


def test_existing_colliding_and_repeated_names() -> None:
    _, image = create(cluster(), topic("a.b"))
    assert refusal(image, topic("a.b"))[0] is ErrorCode.topic_already_exists
    assert refusal(image, topic("a_b"))[0] is ErrorCode.invalid_topic_exception
    response, after_all = create(image, topic("x"), topic("y"), topic("x"), topic("y.z"), topic("y_z"))
    codes = [ErrorCode(t.result.error_code) for t in response.topics]
    assert codes == [
        ErrorCode.invalid_request,
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.invalid_topic_exception,
    ], "a name that comes twice is refused once, as in Kafka"
    assert set(after_all.topics) == {"a.b", "y", "y.z"}


def test_validate_only_changes_nothing_but_answers_all() -> None:
    response, image = create(cluster(), topic(partitions=7), validate_only=True)
    assert not image.topics
    assert response.topics[0].partition_count == 7
    assert len(response.topics[0].topic_id) == 16, "an id that no topic will have, as in Kafka"


def test_of_a_setting_given_twice_the_last_counts() -> None:
    entries = [pb.ConfigEntry(name="retention.ms", value=value) for value in ("1", "2")]
    _, image = create(cluster(), topic(configs=entries))
    assert image.topic_config("orders") == {"retention.ms": "2"}


def test_manual_assignment() -> None:
    response, image = create(cluster(3), assigned([3], [1]))
    assert response.topics[0].partition_count == 2
    assert [p.leader for p in image.topics["orders"].partitions] == [3, 1]


def test_internal_topics() -> None:
    _, image = create(cluster(), topic(GROUP_METADATA_TOPIC, -1, -1, internal=True))
    offsets = image.topics[GROUP_METADATA_TOPIC]
    assert offsets.internal
    assert len(offsets.partitions) == 50
    assert image.topic_config(GROUP_METADATA_TOPIC) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    _, image = create(cluster(), topic(GROUP_METADATA_TOPIC, 3, 1))
    assert image.topics[GROUP_METADATA_TOPIC].internal
    assert len(image.topics[GROUP_METADATA_TOPIC].partitions) == 3


def test_the_topic_of_transactions() -> None:
    _, image = create(cluster(), topic(TRANSACTION_STATE_TOPIC, -1, -1, internal=True))
    assert image.topics[TRANSACTION_STATE_TOPIC].internal
    assert len(image.topics[TRANSACTION_STATE_TOPIC].partitions) == 50
    assert image.topic_config(TRANSACTION_STATE_TOPIC) == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_the_settings_of_the_topic_of_transactions() -> None:
    defaults = ClusterDefaults(
        transaction_state_log_num_partitions=4,
        transaction_state_log_replication_factor=2,
        transaction_state_log_min_isr=1,
        transaction_state_log_segment_bytes=1_000_000,
    )
    _, image = create(cluster(3), topic(TRANSACTION_STATE_TOPIC, -1, -1, internal=True), defaults=defaults)
    partitions = image.topics[TRANSACTION_STATE_TOPIC].partitions
    assert [len(each.replicas) for each in partitions] == [2] * 4
    settings = image.topic_config(TRANSACTION_STATE_TOPIC)
    assert (settings["min.insync.replicas"], settings["segment.bytes"]) == ("1", "1000000")


def test_the_topic_of_transactions_cannot_be_deleted() -> None:
    _, image = create(cluster(), topic(TRANSACTION_STATE_TOPIC, -1, -1, internal=True))
    request = pb.DeleteTopicsRequest(topics=[pb.TopicRef(name=TRANSACTION_STATE_TOPIC)])
    decision = delete_topics(image, request, now_ms=0)
    assert decision.response.topics[0].result.error_code == ErrorCode.invalid_topic_exception
    assert not decision.records


def enlarge(image: MetadataImage, count: int, *replicas: list[int]) -> tuple[ErrorCode, str, MetadataImage]:
    assignments = [pb.ReplicaAssignment(partition=i, node_ids=ids) for i, ids in enumerate(replicas)]
    new = pb.NewPartitions(name="orders", partition_count=count, assignments=assignments)
    decision = create_partitions(image, pb.CreatePartitionsRequest(topics=[new]))
    result = decision.response.results[0]
    return ErrorCode(result.error_code), result.error_message, after(image, decision)


def test_partitions_are_added_where_the_last_ones_ended() -> None:
    _, image = create(cluster(3), topic(partitions=2))
    before = image.topics["orders"].partitions
    code, _, image = enlarge(image, 6)
    assert code is ErrorCode.none
    assert image.topics["orders"].partitions[:2] == before
    assert sorted(p.leader for p in image.topics["orders"].partitions) == [1, 1, 2, 2, 3, 3]


def test_assigned_partitions_follow_those_that_are_there() -> None:
    _, image = create(cluster(3), topic(partitions=2))
    code, _, image = enlarge(image, 4, [3], [1])
    assert code is ErrorCode.none
    assert [p.partition for p in image.topics["orders"].partitions] == [0, 1, 2, 3]
    assert [list(p.replicas) for p in image.topics["orders"].partitions[2:]] == [[3], [1]]


@pytest.mark.parametrize(
    ("count", "replicas", "code", "words"),
    [
        (2, [], ErrorCode.invalid_partitions, "Topic already has 2 partition(s)."),
        (1, [], ErrorCode.invalid_partitions, "currently has 2 partition(s); 1 would not be an increase"),
        (4, [[1]], ErrorCode.invalid_replica_assignment, "add 2 additional partition(s), but only 1"),
        (3, [[1, 2]], ErrorCode.invalid_replica_assignment, "is not consistent"),
        (20_000, [], ErrorCode.policy_violation, "Excessively large"),
    ],
)
def test_refused_enlargements(count: int, replicas: list[list[int]], code: ErrorCode, words: str) -> None:
    _, image = create(cluster(3), topic(partitions=2))
    actual, message, unchanged = enlarge(image, count, *replicas)
    assert actual is code
    assert words in message
    assert unchanged.topics == image.topics


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_an_internal_topic_keeps_its_number_of_partitions(name: str) -> None:
    _, image = create(cluster(), topic(name, 3, 1))
    wanted = pb.NewPartitions(name=name, partition_count=4)
    decision = create_partitions(image, pb.CreatePartitionsRequest(topics=[wanted]))
    result = decision.response.results[0]
    assert result.error_code == ErrorCode.invalid_partitions
    assert f"number of partitions of {name} cannot be changed" in result.error_message
    assert not decision.records


def test_enlarging_an_unknown_topic() -> None:
    request = pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name="nobody", partition_count=3)])
    result = create_partitions(cluster(), request).response.results[0]
    assert result.error_code == ErrorCode.unknown_topic_or_partition


def test_deletion_by_name_and_by_id() -> None:
    _, image = create(
        cluster(),
        topic("a", configs=[pb.ConfigEntry(name="retention.ms", value="5")]),
        topic("b"),
        topic("c"),
    )
    by_id = image.topics["b"].topic_id
    refs = [
        pb.TopicRef(name="a"),
        pb.TopicRef(topic_id=by_id),
        pb.TopicRef(name="nobody"),
        pb.TopicRef(topic_id=b"n" * 16),
        pb.TopicRef(),
        pb.TopicRef(name="c", topic_id=by_id),
    ]
    decision = delete_topics(image, pb.DeleteTopicsRequest(topics=refs), now_ms=5)
    assert [ErrorCode(t.result.error_code) for t in decision.response.topics] == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
    ]
    assert decision.response.topics[1].name == "b"
    left = after(image, decision)
    assert set(left.topics) == {"c"}
    assert not left.configs
    assert len([key for key in left.records if key.startswith("partitions/")]) == 1


def test_a_deletion_is_remembered_for_a_time_and_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def deleted(image: MetadataImage, name: str, now_ms: int) -> MetadataImage:
        request = pb.DeleteTopicsRequest(topics=[pb.TopicRef(name=name)])
        return after(image, delete_topics(image, request, now_ms=now_ms))

    _, image = create(cluster(), *(topic(name) for name in "abcd"))
    ids = {name: image.topics[name].topic_id for name in "abcd"}
    image = deleted(image, "a", 5)
    assert {key: (said.name, said.deleted_at_ms) for key, said in image.deleted_topics.items()} == {
        ids["a"]: ("a", 5)
    }
    image = deleted(image, "b", 6)
    image = deleted(image, "c", 6 + limits.DELETED_TOPIC_KEPT_MS)
    assert set(image.deleted_topics) == {ids["b"], ids["c"]}
    monkeypatch.setattr(limits, "DELETED_TOPICS_MAX", 2)
    image = deleted(image, "d", 6 + limits.DELETED_TOPIC_KEPT_MS)
    assert set(image.deleted_topics) == {ids["c"], ids["d"]}


def test_deletion_can_be_disabled() -> None:
    _, image = create(cluster(), topic())
    request = pb.DeleteTopicsRequest(topics=[pb.TopicRef(name="orders")])
    decision = delete_topics(image, request, now_ms=5, enabled=False)
    assert decision.response.topics[0].result.error_code == ErrorCode.topic_deletion_disabled
    assert not decision.records


def test_producer_ids_come_in_blocks_that_never_repeat() -> None:
    image, seen = cluster(), []
    for _ in range(3):
        decision = allocate_producer_ids(image)
        seen.append((decision.response.first_producer_id, decision.response.count))
        image = after(image, decision)
    assert seen == [(0, 1000), (1000, 1000), (2000, 1000)]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "a.b", "a_b", "c"]), st.integers(-1, 5)), max_size=8))
def test_any_request_leaves_whole_topics_only(wanted: list[tuple[str, int]]) -> None:
    response, image = create(cluster(2), *(topic(name, count) for name, count in wanted))
    assert [t.name for t in response.topics] == list(dict(wanted))
    created = {t.name: t.partition_count for t in response.topics if t.result.error_code == 0}
    assert {name: len(t.partitions) for name, t in image.topics.items()} == created
    for t in image.topics.values():
        leaders = [p.leader for p in t.partitions]
        assert abs(leaders.count(1) - leaders.count(2)) <= 1


def test_the_metadata_log_of_kafka_is_no_topic() -> None:
    assert refusal(cluster(), topic("__cluster_metadata"))[0] is ErrorCode.invalid_request
