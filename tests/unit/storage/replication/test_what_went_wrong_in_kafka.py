"""A follower where Kafka's once failed: each test names the ticket."""

from __future__ import annotations

from scripted_leader import LEADER, Follower, epochs, fill, records
from storage_harness import topic_records

from barnabas.kernel.errors import ErrorCode


async def test_a_leader_epoch_that_was_missed_takes_back_what_it_took(follower: Follower) -> None:
    """KAFKA-7164: the leader is the same as before. What it lost in between, it says as any other would."""
    topic = await follower.create(epoch=1)
    stream = await follower.network.stream()
    await stream.until_heard(1, 0)
    await fill(follower, topic, stream, 2, epoch=1)
    stream.tell(records(2, 2, epoch=1), high_watermark=2, log_end_offset=4)
    await stream.until_heard(1, 4, 1)
    follower.lead(topic, LEADER, 3)
    await stream.until_heard(3, 4, 1)
    stream.tell(diverging=(1, 2), high_watermark=9)
    await stream.until_heard(3, 2, 1)
    assert follower.replica(topic).high_watermark == 2
    stream.tell(records(2, epoch=2) + records(3, epoch=3), high_watermark=4, log_end_offset=4)
    await stream.until_heard(3, 4, 3)
    assert epochs(follower, topic) == ((1, 0), (2, 2), (3, 3))


async def test_a_leaders_log_may_begin_behind_what_it_answers_with(follower: Follower) -> None:
    """KAFKA-7104: its retention went on meanwhile. Here nothing is deleted before it is there and committed."""
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    stream.tell(records(0, 3), high_watermark=12, log_start_offset=10, log_end_offset=12)
    await stream.until_heard(0, 3)
    replica = follower.replica(topic)
    assert replica.log is not None
    assert (replica.high_watermark, replica.log.log_start_offset, replica.log.log_end_offset) == (3, 3, 3)
    assert not replica.is_offline
    assert not replica.following.has_failed
    out_of_range = int(ErrorCode.offset_out_of_range)
    stream.tell(error_code=out_of_range, high_watermark=12, log_start_offset=10, log_end_offset=12)
    await stream.until_heard(0, 10, -1, 10)
    stream.tell(records(10, 2), high_watermark=12, log_start_offset=10, log_end_offset=12)
    await stream.until_heard(0, 12, 0, 10)
    assert replica.high_watermark == 12


async def test_a_change_that_leaves_the_leader_epoch_leaves_the_position(follower: Follower) -> None:
    """KAFKA-13790: other in-sync replicas, or others that are being added, begin nothing anew."""
    topic = await follower.create()
    stream = await follower.network.stream()
    await stream.until_heard(0, 0)
    await fill(follower, topic, stream, 2)
    heard = len(stream.heard)
    changed = topic_records("events", topic, leader=LEADER, replicas=(1, 2, 3, 4))
    changed[0].partition.partition_epoch = 7
    changed[0].partition.isr[:] = (1, 2)
    changed[0].partition.adding_replicas[:] = (4,)
    follower.apply(*changed)
    assert follower.replica(topic).record.partition_epoch == 7
    stream.tell(records(2), high_watermark=3, log_end_offset=3)  # to the position that it knew before
    await stream.until_heard(0, 3)
    assert len(stream.heard) == heard + 1
    assert len(follower.network.streams) == 1
