"""aiokafka: groups that share topics, what they commit, and where a consumer starts, moves and stops reading."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    InconsistentGroupProtocolError,
    NoOffsetForPartitionError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
)
from aiokafka_client import (
    WAIT_SECONDS,
    admin_of,
    consumer_of,
    make_topic,
    produce,
    producer_of,
    read,
    wait_for_assignments,
    wait_until,
)

pytestmark = pytest.mark.integration

QUICK = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6000, "metadata_max_age_ms": 500}
"""A group that notices changes soon."""


def values(records: list[Any]) -> list[int]:
    return [int(record.value) for record in records]


class Events(ConsumerRebalanceListener):
    """What a rebalance took and gave; at the taking, it may commit."""

    def __init__(self) -> None:
        self.consumer: Any = None
        self.revoked: list[set[TopicPartition]] = []
        self.assigned: list[set[TopicPartition]] = []

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.revoked.append(set(revoked))
        if self.consumer is not None and revoked:
            await self.consumer.commit()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.assigned.append(set(assigned))


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
)
async def test_group_rebalances_as_consumers_come_and_go(cluster: Any, assignor: Any) -> None:
    topic = await make_topic(cluster, f"aio-rebalance-{assignor.name}", 6)
    settings = {
        "group": f"aio-rebalance-{assignor.name}",
        "partition_assignment_strategy": [assignor],
        **QUICK,
    }
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(consumer_of(cluster, topic, **settings))
        await wait_for_assignments([first], [6])
        second = await stack.enter_async_context(consumer_of(cluster, topic, **settings))
        await wait_for_assignments([first, second], [3, 3])
        async with consumer_of(cluster, topic, **settings) as third:
            await wait_for_assignments([first, second, third], [2, 2, 2])
            shares = [consumer.assignment() for consumer in (first, second, third)]
            assert set.union(*map(set, shares)) == {TopicPartition(topic, number) for number in range(6)}
        await wait_for_assignments([first, second], [3, 3])


async def test_members_that_agree_on_no_strategy_are_told_so(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-disagreement")
    settings = {"group": "aio-disagreement", **QUICK}
    async with consumer_of(
        cluster, topic, partition_assignment_strategy=[RangePartitionAssignor], **settings
    ) as first:
        await wait_for_assignments([first], [1])
        with pytest.raises(InconsistentGroupProtocolError):
            async with consumer_of(cluster, topic, **settings) as second:
                await second.getone()


async def test_a_static_member_comes_back_without_a_rebalance(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-statics", 4)
    settings = {"group": "aio-statics", **QUICK}
    events = Events()
    async with consumer_of(cluster, group_instance_id="worker-1", **settings) as stays:
        stays.subscribe([topic], listener=events)
        await wait_for_assignments([stays], [4])
        async with consumer_of(cluster, topic, group_instance_id="worker-2", **settings) as restarts:
            await wait_for_assignments([stays, restarts], [2, 2])
            held = restarts.assignment()
        assigned = len(events.assigned)
        async with consumer_of(cluster, topic, group_instance_id="worker-2", **settings) as restarted:
            await wait_for_assignments([stays, restarted], [2, 2])
            assert restarted.assignment() == held
        assert len(events.assigned) == assigned


async def test_group_resumes_where_it_committed(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-resumes", 2)
    for partition in (0, 1):
        await produce(cluster, topic, 30, partition=partition)
    async with consumer_of(cluster, topic, group="aio-resumers", enable_auto_commit=False) as first:
        seen = [(record.partition, record.offset) for record in await read(first, 25)]
        await first.commit()
        await read(first, 10)
    async with consumer_of(cluster, topic, group="aio-resumers") as second:
        seen += [(record.partition, record.offset) for record in await read(second, 35)]
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(30)]


async def test_offsets_are_committed_in_the_background_and_at_the_end(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-auto-commits")
    here = TopicPartition(topic, 0)
    await produce(cluster, topic, 10)
    async with (
        consumer_of(cluster, topic, group="aio-auto-committers", auto_commit_interval_ms=100) as consumer,
        admin_of(cluster) as admin,
    ):
        await read(consumer, 10)
        async with asyncio.timeout(WAIT_SECONDS):
            while (await admin.list_consumer_group_offsets("aio-auto-committers")).get(here, (0,))[0] != 10:
                await asyncio.sleep(0.05)
        await produce(cluster, topic, 2)
        await read(consumer, 2)
    async with admin_of(cluster) as admin:
        assert (await admin.list_consumer_group_offsets("aio-auto-committers"))[here].offset == 12


async def test_commits_carry_metadata(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-metadata")
    here = TopicPartition(topic, 0)
    await produce(cluster, topic, 5)
    async with consumer_of(cluster, topic, group="aio-annotators", enable_auto_commit=False) as consumer:
        await wait_for_assignments([consumer], [1])
        assert await consumer.committed(here) is None
        note = "after the third: naïve \N{SNOWMAN}"
        await consumer.commit({here: (3, note)})
        assert await consumer.committed(here) == 3
        with pytest.raises(OffsetMetadataTooLargeError):
            await consumer.commit({here: (4, "x" * 5000)})
    async with admin_of(cluster) as admin:
        assert (await admin.list_consumer_group_offsets("aio-annotators"))[here] == (3, note)


async def test_what_is_committed_while_partitions_are_revoked_is_where_the_next_owner_starts(
    cluster: Any,
) -> None:
    topic = await make_topic(cluster, "aio-handover", 2)
    for partition in (0, 1):
        await produce(cluster, topic, 20, partition=partition)
    settings = {"group": "aio-handover", "enable_auto_commit": False, **QUICK}
    events = Events()
    async with consumer_of(cluster, **settings) as first:
        events.consumer = first
        first.subscribe([topic], listener=events)
        seen = [(record.partition, record.offset) for record in await read(first, 40)]
        async with consumer_of(cluster, topic, **settings) as second:
            await wait_for_assignments([first, second], [1, 1])
            for partition in (0, 1):
                await produce(cluster, topic, 5, partition=partition)
            for consumer in (first, second):
                seen += [(record.partition, record.offset) for record in await read(consumer, 5)]
            events.consumer = None
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(25)]


async def test_a_member_that_polls_too_rarely_leaves_and_cannot_commit(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-slow")
    await produce(cluster, topic, 3)
    settings = {"group": "aio-slow", "enable_auto_commit": False, "max_poll_records": 1, **QUICK}
    async with consumer_of(cluster, topic, max_poll_interval_ms=1000, **settings) as slow:
        await read(slow, 1)  # and two more wait in the client, unasked for
        async with admin_of(cluster) as admin, asyncio.timeout(WAIT_SECONDS):
            while (await state_of(admin, "aio-slow")) != "Empty":
                await asyncio.sleep(0.05)
        async with consumer_of(cluster, topic, **settings) as quick:
            assert values(await read(quick, 3)) == [0, 1, 2]
            with pytest.raises(CommitFailedError):
                await slow.commit({TopicPartition(topic, 0): 1})


async def state_of(admin: Any, group: str) -> str:
    (answer,) = await admin.describe_consumer_groups([group])
    ((_, _, state, *_),) = answer.groups
    return str(state)


async def test_offsets_for_times_beginnings_and_ends(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-times")
    here = TopicPartition(topic, 0)
    async with producer_of(cluster, compression_type="lz4", linger_ms=50) as producer:
        futures = [
            await producer.send(topic, b"x", timestamp_ms=1_600_000_000_000 + number * 1000)
            for number in range(100)
        ]
        await asyncio.gather(*futures)
    async with consumer_of(cluster) as consumer:
        for at, expected in ((0, 0), (1_600_000_042_000, 42), (1_600_000_042_001, 43)):
            found = (await consumer.offsets_for_times({here: at}))[here]
            assert (found.offset, found.timestamp) == (expected, 1_600_000_000_000 + expected * 1000)
        assert await consumer.offsets_for_times({here: 1_700_000_000_000}) == {here: None}
        assert await consumer.beginning_offsets([here]) == {here: 0}
        assert await consumer.end_offsets([here]) == {here: 100}
        assert topic in await consumer.topics()


async def test_seek_pause_and_resume(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-seeking")
    here = TopicPartition(topic, 0)
    await produce(cluster, topic, 20)
    async with consumer_of(cluster, group="aio-seekers") as consumer:
        consumer.assign([here])
        await read(consumer, 20)
        consumer.seek(here, 15)
        assert values(await read(consumer, 5)) == [15, 16, 17, 18, 19]
        assert await consumer.position(here) == 20
        assert consumer.highwater(here) == 20
        consumer.pause(here)
        await consumer.seek_to_beginning(here)
        assert await consumer.getmany(timeout_ms=300) == {}
        consumer.resume(here)
        assert values(await read(consumer, 1)) == [0]
        await consumer.seek_to_end(here)
        await produce(cluster, topic, 1)
        (last,) = await read(consumer, 1)
        assert last.offset == 20
        await consumer.commit({here: 7})
        await consumer.seek_to_committed(here)
        assert values(await read(consumer, 1)) == [7]


async def test_without_an_offset_reading_starts_where_the_reset_policy_says(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-resets")
    here = TopicPartition(topic, 0)
    await produce(cluster, topic, 5)
    async with consumer_of(cluster, topic, auto_offset_reset="latest") as consumer:
        assert await consumer.position(here) == 5
        await produce(cluster, topic, 1)
        (fresh,) = await read(consumer, 1)
        assert fresh.offset == 5
    async with consumer_of(cluster, topic, group="aio-reset-none", auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetForPartitionError):
            await read(consumer, 1)


async def test_an_offset_that_was_deleted_is_out_of_range(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-out-of-range")
    here = TopicPartition(topic, 0)
    await produce(cluster, topic, 10)
    async with admin_of(cluster) as admin:
        assert await admin.delete_records({here: RecordsToDelete(6)}) == {here: 6}
    for policy in ("earliest", "none"):
        async with consumer_of(cluster, auto_offset_reset=policy) as consumer:
            consumer.assign([here])
            consumer.seek(here, 2)
            if policy == "none":
                with pytest.raises(OffsetOutOfRangeError):
                    await read(consumer, 1)
            else:
                assert values(await read(consumer, 4)) == [6, 7, 8, 9]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
async def test_without_transactions_both_isolation_levels_read_everything(
    cluster: Any, isolation: str
) -> None:
    topic = await make_topic(cluster, f"aio-{isolation}")
    await produce(cluster, topic, 30)
    async with consumer_of(cluster, topic, isolation_level=isolation) as consumer:
        assert values(await read(consumer, 30)) == list(range(30))
        assert consumer.last_stable_offset(TopicPartition(topic, 0)) == 30


async def test_small_fetches_read_everything_in_order(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-small-fetches", 2)
    async with producer_of(cluster, max_batch_size=2000) as producer:
        for number in range(200):
            await producer.send(topic, b"%500d" % number, partition=number % 2)
    limits = {"max_partition_fetch_bytes": 3000, "fetch_max_bytes": 4000, "max_poll_records": 7}
    got: list[Any] = []
    async with consumer_of(cluster, topic, **limits) as consumer, asyncio.timeout(WAIT_SECONDS):
        while len(got) < 200:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                assert len(records) <= 7
                got += records
    for partition in (0, 1):
        assert values([r for r in got if r.partition == partition]) == list(range(partition, 200, 2))


async def test_regular_expression_subscription_finds_new_topics(cluster: Any) -> None:
    await make_topic(cluster, "aio-regex-one")
    async with consumer_of(cluster, group="aio-regexers", **QUICK) as consumer:
        consumer.subscribe(pattern="^aio-regex-.*")
        await wait_for_assignments([consumer], [1])
        await make_topic(cluster, "aio-regex-two", 2)
        await wait_until(lambda: len(consumer.assignment()) == 3)
        await produce(cluster, "aio-regex-two", 1, partition=1)
        assert [record.topic for record in await read(consumer, 1)] == ["aio-regex-two"]
