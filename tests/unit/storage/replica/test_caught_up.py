"""When a node counts as being in sync again, so that the next one may be restarted."""

from __future__ import annotations

import uuid

import pytest
from storage_harness import NODE_ID, StorageHarness, topic_records

from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.metadata.image import NO_LEADER, topic_key
from barnabas.metadata.leaders import LEADER_EPOCH_MAX
from barnabas.storage.replica.caught_up import CaughtUp

BROKER_EPOCH = 7
FAILURE = OSError("the disk failed")


def show(
    node: StorageHarness, topic: uuid.UUID, partition: int = 0, *, leader: int = 2, **lists: object
) -> None:
    """The metadata say of the partition, of three, that this node is out of sync, and what `lists` say."""
    records = topic_records("events", topic, 3, replicas=(1, 2, 3), leader=2, leader_epoch=1)
    record = records[partition].partition
    record.leader = leader
    record.isr[:] = [2, 3]
    for name, value in lists.items():
        getattr(record, name)[:] = value
    node.apply(*records)


@pytest.fixture
async def topic(node: StorageHarness) -> uuid.UUID:
    return await node.create_topic(partitions=3, replicas=(1, 2, 3), leader=2, leader_epoch=0)


@pytest.fixture
def caught_up(node: StorageHarness) -> CaughtUp:
    return CaughtUp(NODE_ID, node.replicas.by_partition)


async def test_until_every_partition_is_in_sync(
    node: StorageHarness, topic: uuid.UUID, caught_up: CaughtUp
) -> None:
    for behind in (2, 0):
        show(node, topic, behind)
        assert not caught_up.holds(BROKER_EPOCH)
        assert not caught_up.holds(BROKER_EPOCH)
    show(node, topic, isr=[1, 2, 3])
    assert caught_up.holds(BROKER_EPOCH)


async def test_one_that_falls_behind_later_stays_ready_until_it_joins_anew(
    node: StorageHarness, topic: uuid.UUID, caught_up: CaughtUp
) -> None:
    assert caught_up.holds(BROKER_EPOCH)
    show(node, topic)
    assert caught_up.holds(BROKER_EPOCH)
    assert not caught_up.holds(BROKER_EPOCH + 1)
    assert not caught_up.holds(BROKER_EPOCH + 1)


@pytest.mark.parametrize(
    "lists",
    [
        pytest.param({"leader": NO_LEADER}, id="nobody leads"),
        pytest.param({"adding_replicas": [1]}, id="being moved here"),
        pytest.param({"removing_replicas": [1]}, id="being moved away"),
        pytest.param({"replicas": [2, 3]}, id="no longer here"),
    ],
)
async def test_what_nobody_waits_for(
    node: StorageHarness, topic: uuid.UUID, caught_up: CaughtUp, lists: dict[str, object]
) -> None:
    show(node, topic)
    assert not caught_up.holds(BROKER_EPOCH)
    show(node, topic, **lists)
    assert caught_up.holds(BROKER_EPOCH)


async def test_a_failed_disk_is_not_waited_for_before_the_metadata_show_it(
    node: StorageHarness, topic: uuid.UUID, caught_up: CaughtUp
) -> None:
    show(node, topic)
    node.replica(topic).go_offline(FAILURE)
    assert caught_up.holds(BROKER_EPOCH)


async def test_a_disk_that_only_takes_no_more_records_is_waited_for(
    node: StorageHarness, topic: uuid.UUID, caught_up: CaughtUp
) -> None:
    """As before the controller heard of it: the next node is not to be restarted meanwhile."""
    (lane,) = node.lanes.values()
    lane.refusals.is_given_up = True
    show(node, topic, offline_replicas=[1])
    assert not caught_up.holds(BROKER_EPOCH)
    lane.refusals.is_given_up = False
    assert not caught_up.holds(BROKER_EPOCH), "it has copied nothing yet"
    show(node, topic, isr=[1, 2, 3])
    assert caught_up.holds(BROKER_EPOCH)


async def test_a_deleted_topic_is_not_waited_for(
    node: StorageHarness, topic: uuid.UUID, caught_up: CaughtUp
) -> None:
    show(node, topic)
    assert not caught_up.holds(BROKER_EPOCH)
    node.apply(node.deletion(topic), MetadataRecord(key=topic_key("events")))
    assert caught_up.holds(BROKER_EPOCH)


@pytest.mark.parametrize(("epoch", "is_ready"), [(LEADER_EPOCH_MAX, False), (LEADER_EPOCH_MAX + 1, True)])
async def test_a_log_that_takes_no_records_is_not_waited_for(
    node: StorageHarness, topic: uuid.UUID, caught_up: CaughtUp, epoch: int, is_ready: bool
) -> None:
    show(node, topic)
    node.replicas.by_partition[topic.bytes, 0].newer_epoch = epoch
    assert caught_up.holds(BROKER_EPOCH) is is_ready
