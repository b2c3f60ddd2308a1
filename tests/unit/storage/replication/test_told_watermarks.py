"""A follower hears of the leader's high watermark in the end, whatever becomes of the answers that carried it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from leader_and_followers import EPOCHS, Stream, change, create_topic, streams_of
from storage_harness import StorageHarness, batch, run_node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "a", tmp_path / "s") as harness:
        yield harness


async def test_with_a_parting_it_is_not_believed_and_told_again(node: StorageHarness) -> None:
    """KAFKA-14704: the follower takes nothing else from an answer that says where the logs part."""
    topic_id = await create_topic(node, leader_epoch=1)
    change(node, topic_id, isr=(1,))
    await node.append(topic_id, batch(b"a"), leader_epoch=1)
    change(node, topic_id, leader_epoch=3)
    async with Stream(streams_of(node), 2, EPOCHS[2]) as second:
        second.at(topic_id, 2, 2, 3)
        assert (await second.hear_one()).fields.HasField("diverging")
        second.at(topic_id, 1, 1, 3)
        fields, _ = await second.hear_one()
        assert (fields.fetch_offset, fields.high_watermark) == (1, 1)
        assert await second.hears_nothing(0.2)


async def test_another_leader_epoch_hears_it_anew(node: StorageHarness) -> None:
    """What was under way when the leader epoch changed, the follower has dropped."""
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    await node.append(topic_id, batch(b"a"))
    async with Stream(streams_of(node), 2, EPOCHS[2]) as second:
        second.at(topic_id, 1, 0)
        assert (await second.hear_one()).fields.high_watermark == 1
        change(node, topic_id, leader_epoch=1)
        assert (await second.hear_one()).fields.error_code != 0
        second.at(topic_id, 1, 0, 1)
        assert (await second.hear_one()).fields.high_watermark == 1


async def test_it_is_told_where_no_records_went_with_it_after_all(node: StorageHarness) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1, 2))
    async with Stream(streams_of(node), 3, EPOCHS[3]) as third:
        third.at(topic_id, 0)
        sent = node.send_append(topic_id, batch(b"a"))
        assert (await third.hear_one()).fields.high_watermark == 0
        third.at(topic_id, 1, 0)
        assert await third.hears_nothing()
        replica = node.replica(topic_id)
        for follower in replica.followers:
            follower.on_growth(replica)  # as after a truncation: there is nothing behind its position
        assert replica.on_replicated(2, range(1), EPOCHS[2], node.replicas.isr_changes.eligible, False)
        await sent
        assert (await third.hear_one()).fields.high_watermark == 1
