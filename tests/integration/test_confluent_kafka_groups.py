"""librdkafka through confluent-kafka: groups that share topics, and what they commit."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka_client import (
    WAIT_SECONDS,
    admin_of,
    consumer_of,
    make_topic,
    poll_error,
    poll_records,
    poll_until,
    produce,
    wait_for_assignments,
)

pytestmark = pytest.mark.integration


def produce_to_each(cluster: Any, topic: str, partitions: int, count: int) -> None:
    for partition in range(partitions):
        produce(cluster, topic, count, partition=partition)


def group_of(cluster: Any, group: str) -> Any:
    admin = admin_of(cluster)
    return admin.describe_consumer_groups([group])[group].result(WAIT_SECONDS)


def committed(cluster: Any, group: str, topic: str, partition: int = 0) -> int:
    """What a newcomer would find; OFFSET_INVALID for nothing."""
    with consumer_of(cluster, group) as client:
        (found,) = client.committed([TopicPartition(topic, partition)], WAIT_SECONDS)
    offset: int = found.offset
    return offset


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_group_rebalances_as_consumers_come_and_go(cluster: Any, strategy: str) -> None:
    topic = make_topic(cluster, f"rebalance-{strategy}", 6)
    settings = {
        "partition_assignment_strategy": strategy,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 300,
    }
    with ExitStack() as stack:
        first, second, third = (
            stack.enter_context(consumer_of(cluster, f"rebalancers-{strategy}", **settings)) for _ in range(3)
        )
        first.subscribe([topic])
        wait_for_assignments([first], [6])
        second.subscribe([topic])
        wait_for_assignments([first, second], [3, 3])
        third.subscribe([topic])
        wait_for_assignments([first, second, third], [2, 2, 2])
        shares = [{p.partition for p in client.assignment()} for client in (first, second, third)]
        assert set.union(*shares) == set(range(6))
        first.close()
        wait_for_assignments([second, third], [3, 3])


def test_a_cooperative_rebalance_takes_only_what_moves(cluster: Any) -> None:
    topic = make_topic(cluster, "cooperation", 4)
    settings = {"partition_assignment_strategy": "cooperative-sticky", "heartbeat_interval_ms": 300}
    revoked: list[int] = []
    with (
        consumer_of(cluster, "cooperators", **settings) as first,
        consumer_of(cluster, "cooperators", **settings) as second,
    ):
        first.subscribe(
            [topic], on_revoke=lambda _, partitions: revoked.extend(p.partition for p in partitions)
        )
        wait_for_assignments([first], [4])
        before = {p.partition for p in first.assignment()}
        second.subscribe([topic])
        wait_for_assignments([first, second], [2, 2])
        moved = {p.partition for p in second.assignment()}
        assert sorted(revoked) == sorted(moved)
        assert {p.partition for p in first.assignment()} == before - moved


def test_members_that_agree_on_no_strategy_are_told_so(cluster: Any) -> None:
    topic = make_topic(cluster, "disagreeing")
    with (
        consumer_of(cluster, "disagreement", partition_assignment_strategy="range") as first,
        consumer_of(cluster, "disagreement", partition_assignment_strategy="roundrobin") as second,
    ):
        first.subscribe([topic])
        wait_for_assignments([first], [1])
        second.subscribe([topic])
        assert poll_error(second).code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        wait_for_assignments([first], [1])


def test_a_static_member_comes_back_without_a_rebalance(cluster: Any) -> None:
    topic = make_topic(cluster, "static-members", 4)
    settings = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 300}
    events: list[str] = []
    with (
        consumer_of(cluster, "statics", group_instance_id="worker-1", **settings) as stays,
        consumer_of(cluster, "statics", group_instance_id="worker-2", **settings) as restarts,
    ):
        for client in (stays, restarts):
            client.subscribe(
                [topic],
                on_assign=lambda client, _: events.append("assigned") if client is stays else None,
                on_revoke=lambda client, _: events.append("revoked") if client is stays else None,
            )
        wait_for_assignments([stays, restarts], [2, 2])
        held = sorted(p.partition for p in restarts.assignment())
        events.clear()
        restarts.close()  # a static member does not leave
        assert len(group_of(cluster, "statics").members) == 2
        with consumer_of(cluster, "statics", group_instance_id="worker-2", **settings) as restarted:
            restarted.subscribe([topic])
            wait_for_assignments([stays, restarted], [2, 2])
            assert sorted(p.partition for p in restarted.assignment()) == held
        assert events == []
        description = group_of(cluster, "statics")
        assert sorted(m.group_instance_id for m in description.members) == ["worker-1", "worker-2"]


def test_of_two_members_with_one_instance_id_the_older_is_fenced(cluster: Any) -> None:
    topic = make_topic(cluster, "twins")
    settings = {"group_instance_id": "twin", "heartbeat_interval_ms": 200}
    with (
        consumer_of(cluster, "twins", **settings) as older,
        consumer_of(cluster, "twins", **settings) as newer,
    ):
        older.subscribe([topic])
        wait_for_assignments([older], [1])
        newer.subscribe([topic])
        wait_for_assignments([newer], [1])
        error = poll_error(older)
        assert error.code() == KafkaError._FATAL
        assert "fenced" in error.str().lower()


def test_a_member_that_dies_loses_its_partitions_when_its_session_ends(cluster: Any) -> None:
    topic = make_topic(cluster, "mortal", 2)
    settings = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300, "group_instance_id": "mortal"}
    with (
        consumer_of(cluster, "mortals", **settings) as dies,
        consumer_of(cluster, "mortals", session_timeout_ms=6000, heartbeat_interval_ms=300) as lives,
    ):
        for client in (dies, lives):
            client.subscribe([topic])
        wait_for_assignments([dies, lives], [1, 1])
        dies.close()  # no LeaveGroup: for the group it is as good as dead
        started = time.monotonic()
        wait_for_assignments([lives], [2])
        assert time.monotonic() - started > 4


def test_a_member_that_polls_too_rarely_leaves_and_comes_back(cluster: Any) -> None:
    topic = make_topic(cluster, "slow-work", 2)
    settings = {
        "max_poll_interval_ms": 6000,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 300,
        "enable_auto_commit": False,
    }
    produce_to_each(cluster, topic, 2, 3)
    with (
        consumer_of(cluster, "slow-workers", **settings) as slow,
        consumer_of(cluster, "slow-workers", **settings) as quick,
    ):
        slow.subscribe([topic])
        work = poll_records(slow, 6)
        deadline = time.monotonic() + WAIT_SECONDS
        while group_of(cluster, "slow-workers").state.name != "EMPTY":
            assert time.monotonic() < deadline
            time.sleep(0.1)
        quick.subscribe([topic])
        poll_records(quick, 6)
        with pytest.raises(KafkaException) as raised:
            slow.commit(work[-1], asynchronous=False)
        assert raised.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
        assert poll_error(slow).code() == KafkaError._MAX_POLL_EXCEEDED
        settle(slow, quick)


def settle(*clients: Consumer) -> None:
    """Wait until the clients have one partition each, whatever records come meanwhile."""
    deadline = time.monotonic() + WAIT_SECONDS
    while [len(client.assignment()) for client in clients] != [1] * len(clients):
        assert time.monotonic() < deadline
        for client in clients:
            client.poll(0.05)


def test_group_resumes_at_its_committed_offset(cluster: Any) -> None:
    topic = make_topic(cluster, "resumes", 3)
    produce_to_each(cluster, topic, 3, 30)
    with consumer_of(cluster, "resumers", enable_auto_commit=False) as first:
        first.subscribe([topic])
        seen = [(m.partition(), m.offset()) for m in poll_records(first, 40)]
        first.commit(asynchronous=False)
        found = first.committed([TopicPartition(topic, partition) for partition in range(3)], WAIT_SECONDS)
        assert sum(max(0, position.offset) for position in found) == 40
    with consumer_of(cluster, "resumers") as second:
        second.subscribe([topic])
        seen += [(m.partition(), m.offset()) for m in poll_records(second, 50)]
    assert sorted(seen) == [(partition, offset) for partition in range(3) for offset in range(30)]


def test_offsets_are_committed_in_the_background_and_at_the_end(cluster: Any) -> None:
    topic = make_topic(cluster, "auto-commits")
    produce(cluster, topic, 10)
    commits: list[Any] = []
    with consumer_of(
        cluster,
        "auto-committers",
        auto_commit_interval_ms=100,
        on_commit=lambda error, partitions: commits.append((error, partitions[0].offset)),
    ) as client:
        client.subscribe([topic])
        poll_records(client, 10)
        poll_until(lambda: (None, 10) in commits, client)
        assert committed(cluster, "auto-committers", topic) == 10
        produce(cluster, topic, 2)
        poll_records(client, 2)
    assert committed(cluster, "auto-committers", topic) == 12


def test_only_stored_offsets_are_committed(cluster: Any) -> None:
    topic = make_topic(cluster, "stored-offsets")
    produce(cluster, topic, 10)
    with consumer_of(cluster, "storers", enable_auto_offset_store=False) as client:
        client.subscribe([topic])
        messages = poll_records(client, 10)
        client.store_offsets(messages[6])
    assert committed(cluster, "storers", topic) == 7


def test_commits_carry_metadata(cluster: Any) -> None:
    topic = make_topic(cluster, "commit-metadata", 2)
    produce_to_each(cluster, topic, 2, 5)
    positions = [
        TopicPartition(topic, 0, 3, metadata="after the third: naïve \N{SNOWMAN}"),
        TopicPartition(topic, 1, 0, metadata=""),
    ]
    with consumer_of(cluster, "annotators", enable_auto_commit=False) as client:
        client.commit(offsets=positions, asynchronous=False)
        found = client.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], WAIT_SECONDS)
        assert [(p.offset, p.metadata or "") for p in found] == [(p.offset, p.metadata) for p in positions]
        with pytest.raises(KafkaException) as raised:
            client.commit(offsets=[TopicPartition(topic, 0, 4, metadata="x" * 5000)], asynchronous=False)
        assert raised.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert committed(cluster, "annotators", topic) == 3


def test_what_is_committed_while_partitions_are_revoked_is_where_the_next_owner_starts(cluster: Any) -> None:
    topic = make_topic(cluster, "handover", 2)
    produce_to_each(cluster, topic, 2, 20)
    settings = {"enable_auto_commit": False, "heartbeat_interval_ms": 300, "session_timeout_ms": 6000}
    with (
        consumer_of(cluster, "handovers", **settings) as first,
        consumer_of(cluster, "handovers", **settings) as second,
    ):
        first.subscribe([topic], on_revoke=lambda client, _: client.commit(asynchronous=False))
        seen = [(m.partition(), m.offset()) for m in poll_records(first, 40)]
        second.subscribe([topic])
        wait_for_assignments([first, second], [1, 1])
        produce_to_each(cluster, topic, 2, 5)
        deadline = time.monotonic() + WAIT_SECONDS
        while len(seen) < 50:
            assert time.monotonic() < deadline
            for client in (first, second):
                message = client.poll(0.05)
                if message is not None:
                    seen.append((message.partition(), message.offset()))
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(25)]


def test_an_outsider_cannot_commit_for_a_group_at_work(cluster: Any) -> None:
    topic = make_topic(cluster, "outsiders")
    with consumer_of(cluster, "closed-shop") as member, consumer_of(cluster, "closed-shop") as outsider:
        member.subscribe([topic])
        wait_for_assignments([member], [1])
        with pytest.raises(KafkaException) as raised:
            outsider.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert raised.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert committed(cluster, "closed-shop", topic) == OFFSET_INVALID


def test_groups_are_listed_and_described(cluster: Any) -> None:
    topic = make_topic(cluster, "described", 2)
    with consumer_of(cluster, "described-group", client_id="describer") as client:
        client.subscribe([topic])
        wait_for_assignments([client], [2])
        listed = admin_of(cluster)
        groups = {group.group_id: group for group in listed.list_consumer_groups().result(WAIT_SECONDS).valid}
        assert groups["described-group"].state.name == "STABLE"
        assert groups["described-group"].type.name == "CLASSIC"
        description = group_of(cluster, "described-group")
        assert description.state.name == "STABLE"
        assert description.partition_assignor == "range"
        assert description.coordinator.port == cluster.port
        (member,) = description.members
        assert (member.client_id, member.host) == ("describer", "/127.0.0.1")
        assert member.member_id == client.memberid()
        assert len(member.assignment.topic_partitions) == 2
    assert group_of(cluster, "described-group").state.name == "EMPTY"
    assert group_of(cluster, "never-seen").state.name == "DEAD"
