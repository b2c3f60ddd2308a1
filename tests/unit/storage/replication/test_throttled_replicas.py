"""Throttled replicas (KIP-73): who is out of sync waits for the quota, and holds up nobody else."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from leader_and_followers import EPOCHS, Stream, change, create_topic, streams_of
from prometheus_client import CollectorRegistry
from scripted_leader import Follower, records, until
from storage_harness import StorageHarness, batch, run_node, topic_config

from barnabas.kernel.kafka_values import BROKER_RESOURCE
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord
from barnabas.metadata.image import config_key
from barnabas.storage import limits
from barnabas.storage.metrics import StorageCollector

SIZE = len(batch(b"v" * 10_000))


def rates(side: str, rate: int) -> MetadataRecord:
    values = {f"{side}.replication.throttled.rate": str(rate)}
    return MetadataRecord(key=config_key(BROKER_RESOURCE, ""), config=ConfigRecord(values=values))


def listed(side: str, replicas: str = "*") -> MetadataRecord:
    return topic_config("events", **{f"{side}_replication_throttled_replicas": replicas})


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "a", tmp_path / "s") as harness:
        yield harness


def fill(node: StorageHarness, topic_id: uuid.UUID, count: int = 3) -> None:
    for _ in range(count):
        node.replica(topic_id).appending.append(batch(b"v" * 10_000), 0, -1)


async def test_a_leader_holds_back_who_is_not_in_sync(node: StorageHarness) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1, 2))
    node.apply(listed("leader"), rates("leader", SIZE))
    fill(node, topic_id)
    async with (
        Stream(streams_of(node), 2, EPOCHS[2]) as second,
        Stream(streams_of(node), 3, EPOCHS[3]) as third,
    ):
        second.at(topic_id, 0)
        assert len((await second.hear_one()).records) == 3 * SIZE, "who is in sync is not held back"
        second.at(topic_id, 3, 0)
        await until(lambda: node.replica(topic_id).high_watermark == 3)
        third.at(topic_id, 0)
        assert await third.hears_nothing(), "but counts"
        quota = node.replicas.quotas.leader
        assert quota.rate(asyncio.get_running_loop().time() * 1000) == pytest.approx(3 * SIZE)
        node.apply(rates("leader", 4 * SIZE))
        assert len((await third.hear_one()).records) == 3 * SIZE, "the quota is looked at every second"


async def test_a_leader_sends_a_second_s_worth_at_a_time(node: StorageHarness) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    node.apply(listed("leader"), rates("leader", SIZE))
    fill(node, topic_id)
    async with Stream(streams_of(node), 3, EPOCHS[3]) as third:
        for offset in (0, 1):
            third.at(topic_id, offset, 0 if offset else -1)
            assert len((await third.hear_one()).records) == SIZE
        third.at(topic_id, 2, 0)
        assert await third.hears_nothing(), "the first was no more than the rate, the second was"


@pytest.mark.parametrize("replicas", ["", "0:2", "1:1"])
async def test_who_is_not_listed_is_not_held_back(node: StorageHarness, replicas: str) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    node.apply(listed("leader", replicas), rates("leader", 1))
    fill(node, topic_id)
    async with Stream(streams_of(node), 3, EPOCHS[3]) as third:
        for offset in (0, 1, 2):
            third.at(topic_id, offset, 0 if offset else -1)
            assert (await third.hear_one()).records
    assert node.replicas.quotas.leader.rate(asyncio.get_running_loop().time() * 1000) == 0


async def test_who_comes_in_sync_is_not_held_back_any_longer(node: StorageHarness) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    node.apply(listed("leader"), rates("leader", 1))
    fill(node, topic_id)
    async with Stream(streams_of(node), 3, EPOCHS[3]) as third:
        third.at(topic_id, 0)
        assert len((await third.hear_one()).records) == SIZE, "the first batch in any case"
        third.at(topic_id, 1, 0)
        fill(node, topic_id, 1)
        assert await third.hears_nothing(0.1)
        change(node, topic_id, isr=(1, 3))
        assert len((await third.hear_one()).records) == 3 * SIZE


async def test_who_has_just_caught_up_is_not_held_back(node: StorageHarness) -> None:
    """The high watermark waits for it already, and so would every producer."""
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    node.apply(listed("leader"), rates("leader", 1))
    fill(node, topic_id, 1)
    async with Stream(streams_of(node), 3, EPOCHS[3]) as third:
        third.at(topic_id, 0)
        assert (await third.hear_one()).records
        third.at(topic_id, 1, 0)
        await asyncio.sleep(0.05)
        fill(node, topic_id, 1)
        async with asyncio.timeout(0.5):
            while not any(each.records for each in await third.hear()):
                pass


async def test_a_follower_that_lags_asks_no_more_than_its_quota_allows(follower: Follower) -> None:
    await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    data = records(0, 4)
    follower.apply(listed("follower"), rates("follower", len(data) // 2))
    stream.tell(data, high_watermark=9)
    await asyncio.sleep(0.1)
    assert len(stream.heard) == 1, "its log ends elsewhere now, and the leader is not to hear of it yet"
    follower.apply(rates("follower", 1 << 30))
    await stream.until_heard(0, 4)


@pytest.mark.parametrize("rate", [1 << 20, 2**63 - 1])
async def test_a_follower_asks_for_a_few_of_many_at_a_time(
    follower: Follower, rate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each brings is known later. Where nothing limits it, it asks for all."""
    monkeypatch.setattr(limits, "THROTTLED_AT_ONCE", 2)
    follower.apply(listed("follower"), rates("follower", rate))
    await follower.create(partitions=5)
    stream = await follower.network.stream()
    async with asyncio.timeout(5):
        while len(stream.heard) < 5:
            await asyncio.sleep(0.01)
    is_limited = rate < 2**63 - 1
    assert max(len(frame) for frame in stream.frames) == (2 if is_limited else 5)


async def test_a_follower_that_has_all_that_is_committed_is_not_held_back(follower: Follower) -> None:
    await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    follower.apply(listed("follower"), rates("follower", 1))
    stream.tell(records(0, 4), high_watermark=4)
    await stream.until_heard(0, 4)


async def test_its_rates_are_shown(node: StorageHarness) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    node.apply(listed("leader"), rates("leader", 10 * SIZE))
    fill(node, topic_id)
    registry = CollectorRegistry()
    registry.register(StorageCollector(node.replicas, node.appends, node.fetches, node.purgatory))
    async with Stream(streams_of(node), 3, EPOCHS[3]) as third:
        third.at(topic_id, 0)
        await third.hear_one()
    assert registry.get_sample_value("kafka_server_leaderreplication_byte_rate") == pytest.approx(3 * SIZE)
    assert registry.get_sample_value("kafka_server_followerreplication_byte_rate") == 0
