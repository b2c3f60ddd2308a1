"""kafka-python: groups that share topics, what they commit, and where a consumer starts, moves and stops reading."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_python_client import (
    WAIT_SECONDS,
    TopicPartition,
    Worker,
    admin_of,
    consumer_of,
    errors,
    kafka,
    make_topic,
    produce,
    producer_of,
    read,
    values,
    wait_for_assignments,
    wait_until,
)

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


@pytest.fixture(scope="module", autouse=True)
def sockets_are_collected() -> Iterator[None]:
    """Now and then this client leaves a socket to the garbage collector; let it be found before other tests run."""
    yield
    gc.collect()


QUICK = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6000, "metadata_max_age_ms": 500}
"""A group that notices changes soon."""

RANGE = kafka.coordinator.assignors.range.RangePartitionAssignor
ROUND_ROBIN = kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor
STICKY = kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor
COOPERATIVE_STICKY = kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor


class Events(kafka.ConsumerRebalanceListener):
    """What rebalances took and gave."""

    def __init__(self) -> None:
        self.revoked: list[TopicPartition] = []
        self.assigned: list[TopicPartition] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked += revoked

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned += assigned

    def on_partitions_lost(self, lost: Any) -> None:
        self.revoked += lost


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY])
def test_group_rebalances_as_consumers_come_and_go(cluster: Any, assignor: Any) -> None:
    name = f"kp-rebalance-{assignor.__name__}"
    topic = make_topic(cluster, name, 6)
    settings = {"group": name, "partition_assignment_strategy": [assignor], **QUICK}
    with Worker(cluster, topic, **settings) as first:
        wait_for_assignments([first], [6])
        with Worker(cluster, topic, **settings) as second:
            wait_for_assignments([first, second], [3, 3])
            with Worker(cluster, topic, **settings) as third:
                wait_for_assignments([first, second, third], [2, 2, 2])
                shares = [worker.consumer.assignment() for worker in (first, second, third)]
                assert set.union(*shares) == {TopicPartition(topic, number) for number in range(6)}
            wait_for_assignments([first, second], [3, 3])
        wait_for_assignments([first], [6])


def test_a_cooperative_rebalance_takes_only_what_moves(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-cooperation", 4)
    settings = {
        "group": "kp-cooperators",
        "partition_assignment_strategy": [COOPERATIVE_STICKY],
        **QUICK,
    }
    events = Events()
    with Worker(cluster, topic, listener=events, **settings) as first:
        wait_for_assignments([first], [4])
        before = first.consumer.assignment()
        with Worker(cluster, topic, **settings) as second:
            wait_for_assignments([first, second], [2, 2])
            moved = second.consumer.assignment()
            assert set(events.revoked) == moved
            assert first.consumer.assignment() == before - moved


def test_members_that_agree_on_no_strategy_are_told_so(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-disagreement")
    settings = {"group": "kp-disagreement", **QUICK}
    with (
        Worker(cluster, topic, partition_assignment_strategy=[RANGE], **settings) as first,
        consumer_of(cluster, topic, partition_assignment_strategy=[ROUND_ROBIN], **settings) as second,
    ):
        wait_for_assignments([first], [1])
        with pytest.raises(errors.InconsistentGroupProtocolError):
            read(second, 1)


def test_a_static_member_comes_back_without_a_rebalance(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-statics", 4)
    settings = {"group": "kp-statics", **QUICK}
    events = Events()
    with Worker(cluster, topic, group_instance_id="worker-1", listener=events, **settings) as stays:
        with Worker(cluster, topic, group_instance_id="worker-2", **settings) as restarts:
            wait_for_assignments([stays, restarts], [2, 2])
            held = restarts.consumer.assignment()
        assigned = len(events.assigned)
        with Worker(cluster, topic, group_instance_id="worker-2", **settings) as restarted:
            wait_for_assignments([stays, restarted], [2, 2])
            assert restarted.consumer.assignment() == held
            with admin_of(cluster) as admin:
                members = admin.describe_groups(["kp-statics"])["kp-statics"]["members"]
            assert sorted(member["group_instance_id"] for member in members) == ["worker-1", "worker-2"]
        assert len(events.assigned) == assigned


def test_group_resumes_where_it_committed(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-resumes", 2)
    for partition in (0, 1):
        produce(cluster, topic, 30, partition=partition)
    with consumer_of(cluster, topic, group="kp-resumers", enable_auto_commit=False) as first:
        seen = [(record.partition, record.offset) for record in read(first, 25)]
        first.commit()
        read(first, 10)
    with consumer_of(cluster, topic, group="kp-resumers") as second:
        seen += [(record.partition, record.offset) for record in read(second, 35)]
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(30)]


def test_offsets_are_committed_in_the_background_and_at_the_end(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-auto-commits")
    here = TopicPartition(topic, 0)
    produce(cluster, topic, 10)
    group = "kp-auto-committers"
    with consumer_of(cluster, topic, group=group, auto_commit_interval_ms=100) as consumer:
        read(consumer, 10)
        produce(cluster, topic, 1)
        read(consumer, 1)  # and while this polls, what came before is committed
        with admin_of(cluster) as admin:
            wait_until(lambda: admin.list_group_offsets(group)[group][here].offset >= 10)
        produce(cluster, topic, 1)
        read(consumer, 1)
    with admin_of(cluster) as admin:
        assert admin.list_group_offsets(group)[group][here].offset == 12


def test_commits_carry_metadata_now_or_later(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-metadata")
    here = TopicPartition(topic, 0)
    produce(cluster, topic, 5)
    with consumer_of(cluster, topic, group="kp-annotators", enable_auto_commit=False) as consumer:
        assert values(read(consumer, 5)) == [0, 1, 2, 3, 4]
        assert consumer.committed(here) is None
        note = "after the third: naïve \N{SNOWMAN}"
        consumer.commit({here: kafka.OffsetAndMetadata(3, note, -1)})
        found = consumer.committed(here, metadata=True)
        assert (found.offset, found.metadata) == (3, note)
        with pytest.raises(errors.OffsetMetadataTooLargeError):
            consumer.commit({here: kafka.OffsetAndMetadata(4, "x" * 5000, -1)})
        answers: list[Any] = []
        consumer.commit_async(
            {here: kafka.OffsetAndMetadata(4, "", -1)}, callback=lambda _, answer: answers.append(answer)
        )
        deadline = time.monotonic() + WAIT_SECONDS
        while not answers:
            assert time.monotonic() < deadline
            consumer.poll(50)
        assert not isinstance(answers[0], Exception)
        assert consumer.committed(here) == 4


def test_what_is_committed_while_partitions_are_revoked_is_where_the_next_owner_starts(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-handover", 2)
    for partition in (0, 1):
        produce(cluster, topic, 20, partition=partition)
    # No commit but that which this client makes itself before it gives partitions up.
    settings = {"group": "kp-handover", "auto_commit_interval_ms": 600_000, **QUICK}
    with Worker(cluster, topic, **settings) as first:
        wait_until(lambda: len(first.records) == 40)
        with Worker(cluster, topic, **settings) as second:
            wait_for_assignments([first, second], [1, 1])
            for partition in (0, 1):
                produce(cluster, topic, 5, partition=partition)
            wait_until(lambda: len(first.records) >= 45 and len(second.records) >= 5)
            seen = [(record.partition, record.offset) for record in first.records + second.records]
            assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(25)]


def test_a_member_that_polls_too_rarely_leaves_and_cannot_commit(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-slow")
    produce(cluster, topic, 3)
    settings = {"group": "kp-slow", "enable_auto_commit": False, **QUICK}
    with (
        consumer_of(cluster, topic, max_poll_interval_ms=1000, **settings) as slow,
        admin_of(cluster) as admin,
    ):
        read(slow, 3)
        wait_until(lambda: admin.describe_groups(["kp-slow"])["kp-slow"]["group_state"] == "Empty")
        with consumer_of(cluster, topic, **settings) as quick:
            assert values(read(quick, 3)) == [0, 1, 2]
            with pytest.raises(errors.CommitFailedError):
                slow.commit()


def test_offsets_for_times_beginnings_and_ends(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-times")
    here = TopicPartition(topic, 0)
    with producer_of(cluster, compression_type="gzip", linger_ms=50) as producer:
        for number in range(100):
            producer.send(topic, b"x", timestamp_ms=1_600_000_000_000 + number * 1000)
        producer.flush(WAIT_SECONDS)
    with consumer_of(cluster) as consumer:
        for at, expected in ((0, 0), (1_600_000_042_000, 42), (1_600_000_042_001, 43)):
            found = consumer.offsets_for_times({here: at})[here]
            assert (found.offset, found.timestamp) == (expected, 1_600_000_000_000 + expected * 1000)
        assert consumer.offsets_for_times({here: 1_700_000_000_000}) == {here: None}
        assert consumer.beginning_offsets([here]) == {here: 0}
        assert consumer.end_offsets([here]) == {here: 100}
        assert topic in consumer.topics()
        assert consumer.partitions_for_topic(topic) == {0}


def test_seek_pause_and_resume(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-seeking")
    here = TopicPartition(topic, 0)
    produce(cluster, topic, 20)
    with consumer_of(cluster) as consumer:
        consumer.assign([here])
        read(consumer, 20)
        consumer.seek(here, 15)
        assert values(read(consumer, 5)) == [15, 16, 17, 18, 19]
        assert consumer.position(here) == 20
        assert consumer.highwater(here) == 20
        consumer.pause(here)
        assert consumer.paused() == {here}
        consumer.seek_to_beginning(here)
        assert consumer.poll(300) == {}
        consumer.resume(here)
        assert values(read(consumer, 1)) == [0]
        consumer.seek_to_end(here)
        assert consumer.position(here) == 20


def test_without_an_offset_reading_starts_where_the_reset_policy_says(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-resets")
    here = TopicPartition(topic, 0)
    produce(cluster, topic, 5)
    with consumer_of(cluster, auto_offset_reset="latest") as consumer:
        consumer.assign([here])
        assert consumer.position(here) == 5
        produce(cluster, topic, 1)
        (fresh,) = read(consumer, 1)
        assert fresh.offset == 5
    with (
        consumer_of(cluster, topic, group="kp-reset-none", auto_offset_reset="none") as consumer,
        pytest.raises(errors.NoOffsetForPartitionError),
    ):
        read(consumer, 1)


def test_an_offset_that_was_deleted_is_out_of_range(cluster: Any) -> None:
    topic = make_topic(cluster, "kp-out-of-range")
    here = TopicPartition(topic, 0)
    produce(cluster, topic, 10)
    with admin_of(cluster) as admin:
        assert admin.delete_records({here: 6})[here]["low_watermark"] == 6
    for policy in ("earliest", "none"):
        with consumer_of(cluster, auto_offset_reset=policy) as consumer:
            consumer.assign([here])
            consumer.seek(here, 2)
            if policy == "none":
                with pytest.raises(errors.OffsetOutOfRangeError):
                    read(consumer, 1)
            else:
                assert values(read(consumer, 4)) == [6, 7, 8, 9]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_without_transactions_both_isolation_levels_read_everything(cluster: Any, isolation: str) -> None:
    topic = make_topic(cluster, f"kp-{isolation}")
    produce(cluster, topic, 30)
    with consumer_of(cluster, topic, isolation_level=isolation) as consumer:
        assert values(read(consumer, 30)) == list(range(30))


@pytest.mark.parametrize("sessions", [True, False])
def test_small_fetches_read_everything_in_order(cluster: Any, *, sessions: bool) -> None:
    """With incremental fetch sessions (KIP-227) and without."""
    topic = make_topic(cluster, f"kp-small-fetches-{sessions}", 2)
    with producer_of(cluster, batch_size=2000) as producer:
        for number in range(200):
            producer.send(topic, b"%500d" % number, partition=number % 2)
    limits = {"max_partition_fetch_bytes": 3000, "fetch_max_bytes": 4000, "max_poll_records": 7}
    with consumer_of(cluster, topic, enable_incremental_fetch_sessions=sessions, **limits) as consumer:
        got = read(consumer, 200)
    for partition in (0, 1):
        assert values([r for r in got if r.partition == partition]) == list(range(partition, 200, 2))


def test_regular_expression_subscription_finds_new_topics(cluster: Any) -> None:
    make_topic(cluster, "kp-regex-one")
    with Worker(cluster, group="kp-regexers", pattern="^kp-regex-.*", **QUICK) as worker:
        wait_for_assignments([worker], [1])
        make_topic(cluster, "kp-regex-two", 2)
        wait_for_assignments([worker], [3])
        produce(cluster, "kp-regex-two", 1, partition=1)
        wait_until(lambda: [record.topic for record in worker.records] == ["kp-regex-two"])
