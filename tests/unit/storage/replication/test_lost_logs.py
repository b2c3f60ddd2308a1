"""A log that is not there is begun: the controller knows by the log directories who may lead (KIP-966)."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest
from leader_and_followers import EPOCHS, node_record
from storage_harness import batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.metadata_pb2 import MetadataRecord

TOPIC = uuid.UUID(int=7)


def records_of(replicas: tuple[int, ...], leader: int = 1, leader_epoch: int = 0) -> list[MetadataRecord]:
    nodes = [node_record(each, epoch) for each, epoch in EPOCHS.items()]
    topic = topic_records("events", TOPIC, replicas=replicas, leader=leader, leader_epoch=leader_epoch)
    return [*nodes, *topic]


@pytest.mark.parametrize("replicas", [(1,), (1, 2, 3)])
@pytest.mark.parametrize("was_made", [False, True])
async def test_a_log_that_is_not_there_is_led_as_the_metadata_say(
    tmp_path: Path, replicas: tuple[int, ...], was_made: bool
) -> None:
    """Also under a later leader epoch: the whole cluster may have been stopped before the log was made."""
    place = (tmp_path / "a", tmp_path / "s")
    if was_made:
        async with run_node(*place) as node:
            node.apply(*records_of(replicas))
            await node.until_open()
            await node.append(TOPIC, batch(b"a"), acks=1)
        shutil.rmtree(place[0] / "events-0")
    async with run_node(*place) as node:
        node.snapshot(*records_of(replicas, leader_epoch=3))
        await node.until_open()
        taken = await node.append(TOPIC, batch(b"b"), acks=1)
        assert (taken.error_code, taken.base_offset) == (ErrorCode.none, 0)


async def test_a_log_that_is_not_there_follows_as_the_metadata_say(tmp_path: Path) -> None:
    async with run_node(tmp_path / "a", tmp_path / "s") as node:
        node.snapshot(*records_of((1, 2, 3), leader=2, leader_epoch=3))
        await node.until_open()
        replica = node.replica(TOPIC)
        assert not replica.is_offline
        assert not replica.is_leader
        assert (await node.append(TOPIC, batch(b"b"))).error_code == ErrorCode.not_leader_or_follower
