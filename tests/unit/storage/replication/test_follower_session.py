"""What a leader answers to its followers, and what follows from what they say."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from leader_and_followers import EPOCHS, Stream, change, create_topic, node_record, streams_of
from storage_harness import StorageHarness, batch, run_node, topic_config

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse, IsrResult
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.messages.storage_pb2 import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from barnabas.storage import limits
from barnabas.storage.replication.follower_session import ReplicationHandler


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "a", tmp_path / "s") as harness:
        yield harness


@pytest.fixture
def handler(node: StorageHarness) -> ReplicationHandler:
    return streams_of(node)


def stream(handler: ReplicationHandler, node_id: int, **sizes: int) -> Stream:
    return Stream(handler, node_id, EPOCHS[node_id], **sizes)


def high_watermark(node: StorageHarness, topic_id: uuid.UUID) -> int:
    return node.replica(topic_id).high_watermark


async def proposals_of(node: StorageHarness) -> list[AlterPartitionRequest]:
    """What the controller is asked within a moment, which it does not answer."""
    asked: list[AlterPartitionRequest] = []

    async def ask(request: AlterPartitionRequest) -> AlterPartitionResponse:
        asked.append(request)
        await asyncio.Event().wait()
        raise AssertionError

    running = asyncio.create_task(node.replicas.isr_changes.run(ask))
    await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return asked


# -- records and acknowledgements ---------------------------------------------------------------------------------


async def test_an_append_is_acknowledged_once_all_in_sync_replicas_have_it(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    async with stream(handler, 2) as second, stream(handler, 3) as third:
        second.at(topic_id, 0)
        third.at(topic_id, 0)
        appended = asyncio.ensure_future(node.append(topic_id, batch(b"a", b"b")))
        fields, records = await second.hear_one()
        assert (fields.error_code, fields.fetch_offset, fields.log_end_offset) == (0, 0, 2)
        assert len(records) > 0
        assert (await third.hear_one()).records == records
        second.at(topic_id, 2, 0)
        await asyncio.sleep(0.02)
        assert not appended.done()
        assert high_watermark(node, topic_id) == 0
        third.at(topic_id, 2, 0)
        assert (await appended).error_code == 0
        assert high_watermark(node, topic_id) == 2


async def test_a_higher_watermark_is_told_without_records(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1, 2))
    async with stream(handler, 2) as second:
        second.at(topic_id, 0)
        appended = asyncio.ensure_future(node.append(topic_id, batch(b"a")))
        assert (await second.hear_one()).fields.high_watermark == 0
        second.at(topic_id, 1, 0)
        await appended
        fields, records = await second.hear_one()
        assert (fields.high_watermark, records) == (1, b"")
        # The position is still in force.
        appended = asyncio.ensure_future(node.append(topic_id, batch(b"b")))
        assert (await second.hear_one()).fields.fetch_offset == 1
        second.at(topic_id, 2, 0)
        await appended


async def test_what_is_behind_a_position_is_read_at_once_and_in_pieces(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    for number in range(3):
        await node.append(topic_id, batch(bytes(2_000) + bytes([number])))
    async with stream(handler, 2, partition_bytes_max=100, response_bytes_max=100) as second:
        for offset in range(3):
            second.at(topic_id, offset, 0 if offset else -1)
            fields, records = await second.hear_one()
            assert (fields.fetch_offset, len(records) > 2_000) == (offset, True)
            assert len(records) < 4_000
            assert fields.high_watermark == 3
        second.at(topic_id, 3, 0)
        assert await second.hears_nothing()


async def test_a_replica_that_nobody_has_in_sync_is_woken_too(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    async with stream(handler, 2) as second:
        second.at(topic_id, 0)
        await asyncio.sleep(0.01)
        assert (await node.append(topic_id, batch(b"a"), acks=1)).error_code == 0
        assert (await second.hear_one()).fields.log_end_offset == 1


async def test_too_few_in_sync_replicas_refuse_acks_all_and_hide_the_rest(node: StorageHarness) -> None:
    topic_id = await create_topic(node)
    node.apply(topic_config("events", min_insync_replicas="2"))
    change(node, topic_id, isr=(1,))
    refused = await node.append(topic_id, batch(b"a"))
    assert refused.error_code == ErrorCode.not_enough_replicas
    assert (await node.append(topic_id, batch(b"a"), acks=1)).error_code == 0
    assert high_watermark(node, topic_id) == 0


async def test_a_produce_that_replicas_do_not_get_in_time_is_told_so(node: StorageHarness) -> None:
    topic_id = await create_topic(node)
    result = await node.append(topic_id, batch(b"a"), timeout_ms=30)
    assert result.error_code == ErrorCode.request_timed_out
    assert high_watermark(node, topic_id) == 0


async def test_a_produce_whose_in_sync_replicas_become_too_few_meanwhile_is_not_acknowledged(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    """It hears that its time is over. The record may stay: here it is committed once there are enough again."""
    topic_id = await create_topic(node)
    node.apply(topic_config("events", min_insync_replicas="2"))
    async with stream(handler, 2) as second:
        second.at(topic_id, 0)
        waiting = node.send_append(topic_id, batch(b"a"), timeout_ms=300)
        await second.hear_one()
        change(node, topic_id, isr=(1,))
        second.at(topic_id, 1, 0)  # what it has does not count any more
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert high_watermark(node, topic_id) == 0
        (result,) = (await waiting).partitions
        assert result.error_code == ErrorCode.request_timed_out
        change(node, topic_id, isr=(1, 2))
        assert high_watermark(node, topic_id) == 1


async def test_a_change_that_leaves_the_leader_epoch_leaves_what_the_leader_knows(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    """KAFKA-13790: and who is being added is known."""
    topic_id = await create_topic(node)
    node.apply(node_record(4, 40))
    async with stream(handler, 2) as second, stream(handler, 3) as third:
        await node.append(topic_id, batch(b"a"), acks=1)
        for each in (second, third):
            each.at(topic_id, 1, 0)
        async with asyncio.timeout(5):
            while high_watermark(node, topic_id) < 1:
                await asyncio.sleep(0.001)
        leader = node.replica(topic_id).leader
        change(node, topic_id, replicas=(1, 2, 3, 4), adding_replicas=(4,))
        assert node.replica(topic_id).leader is leader
        await node.append(topic_id, batch(b"b"), acks=1)
        second.at(topic_id, 2, 0)
        third.at(topic_id, 2, 0)
        async with asyncio.timeout(5):
            while high_watermark(node, topic_id) < 2:
                await asyncio.sleep(0.001)
        async with Stream(handler, 4, 40) as fourth:
            fourth.at(topic_id, 0)
            assert (await fourth.hear_one()).records


async def test_deleted_records_are_told(node: StorageHarness, handler: ReplicationHandler) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    await node.append(topic_id, batch(b"a"))
    async with stream(handler, 2) as second:
        second.at(topic_id, 0)
        await second.hear()
        second.at(topic_id, 1, 0)
        wanted = DeleteRecordsPartition(topic_id=topic_id.bytes, before_offset=1)
        await node.connection.DeleteRecords(DeleteRecordsRequest(partitions=[wanted]))
        fields, records = await second.hear_one()
        assert (fields.log_start_offset, records) == (1, b"")


# -- positions that cannot be ---------------------------------------------------------------------------------------


async def test_where_the_logs_part_is_told_and_the_position_counts_for_nothing(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node, leader_epoch=1)
    change(node, topic_id, isr=(1, 2))
    await node.append(topic_id, batch(b"a"), acks=1)
    change(node, topic_id, leader_epoch=5)
    await node.append(topic_id, batch(b"b"), acks=1)
    async with stream(handler, 2) as second:
        second.at(topic_id, 9, 3, leader_epoch=5)
        fields, records = await second.hear_one()
        assert (fields.diverging.leader_epoch, fields.diverging.end_offset) == (1, 1)
        assert (records, fields.error_code) == (b"", 0)
        assert high_watermark(node, topic_id) == 0
        second.at(topic_id, 1, 1, leader_epoch=5)
        assert len((await second.hear_one()).records) > 0


@pytest.mark.parametrize(("offset", "last_epoch"), [(7, -1), (1, 9)])
async def test_a_position_out_of_the_log_hears_where_the_log_is(
    node: StorageHarness, handler: ReplicationHandler, offset: int, last_epoch: int
) -> None:
    topic_id = await create_topic(node)
    await node.append(topic_id, batch(b"a"), acks=1)
    async with stream(handler, 2) as second:
        second.at(topic_id, offset, last_epoch)
        fields, _ = await second.hear_one()
        assert fields.error_code == ErrorCode.offset_out_of_range
        assert (fields.log_start_offset, fields.log_end_offset) == (0, 1)


@pytest.mark.parametrize(
    ("leader_epoch", "code"), [(4, ErrorCode.fenced_leader_epoch), (6, ErrorCode.unknown_leader_epoch)]
)
async def test_another_leader_epoch_is_refused(
    node: StorageHarness, handler: ReplicationHandler, leader_epoch: int, code: ErrorCode
) -> None:
    topic_id = await create_topic(node, leader_epoch=5)
    async with stream(handler, 2) as second:
        second.at(topic_id, 0, leader_epoch=leader_epoch)
        assert (await second.hear_one()).fields.error_code == code


async def test_partitions_that_are_not_here_or_not_led_here_are_refused(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    async with stream(handler, 2) as second:
        second.at(uuid.uuid4(), 0)
        assert (await second.hear_one()).fields.error_code == ErrorCode.unknown_topic_id
        second.at(topic_id, 0)
        await asyncio.sleep(0.01)
        change(node, topic_id, leader=3, leader_epoch=1)
        assert (await second.hear_one()).fields.error_code == ErrorCode.not_leader_or_follower


async def test_who_has_no_replica_is_refused(node: StorageHarness, handler: ReplicationHandler) -> None:
    topic_id = await create_topic(node)
    async with Stream(handler, 9, 90) as stranger:
        stranger.at(topic_id, 0)
        assert (await stranger.hear_one()).fields.error_code == ErrorCode.not_leader_or_follower


# -- processes of one node ---------------------------------------------------------------------------------------------


async def test_a_former_process_of_a_node_does_not_count(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    async with Stream(handler, 2, EPOCHS[2] - 1) as former:
        former.at(topic_id, 0)
        assert (await former.hear_one()).fields.error_code == ErrorCode.not_leader_or_follower


async def test_of_two_streams_of_a_node_only_the_newer_process_is_heard(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    async with stream(handler, 2) as newer:
        newer.at(topic_id, 0)
        await asyncio.sleep(0.01)
        late = Stream(handler, 2, EPOCHS[2] - 1)
        with pytest.raises(EOFError):
            await late.hear()
        await node.append(topic_id, batch(b"a"), acks=1)
        assert (await newer.hear_one()).fields.log_end_offset == 1
        again = stream(handler, 2)
        again.at(topic_id, 1, 0)
        await asyncio.sleep(0.01)
        with pytest.raises(EOFError):
            await newer.hear()
        async with again:
            await node.append(topic_id, batch(b"b"), acks=1)
            assert (await again.hear_one()).fields.fetch_offset == 1


# -- the ISR -----------------------------------------------------------------------------------------------------------


async def test_a_follower_that_has_caught_up_is_proposed(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    await node.append(topic_id, batch(b"a"))
    async with stream(handler, 2) as second:
        second.at(topic_id, 1, 0)
        asked = await proposals_of(node)
    (proposal,) = asked[0].partitions
    assert (asked[0].node_id, asked[0].node_epoch) == (1, EPOCHS[1])
    assert [(each.node_id, each.broker_epoch) for each in proposal.isr] == [(1, 10), (2, 20)]
    assert proposal.partition_epoch == node.replica(topic_id).record.partition_epoch


async def test_a_quiet_follower_is_proposed_once_the_metadata_allow_it(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    node.apply(node_record(2, EPOCHS[2], fenced=True))
    async with stream(handler, 2) as second:
        second.at(topic_id, 0)
        assert await proposals_of(node) == []
        node.apply(node_record(2, EPOCHS[2]))
        assert len(await proposals_of(node)) == 1


async def test_the_next_follower_is_proposed_when_the_one_before_is_in(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    async with stream(handler, 2) as second, stream(handler, 3) as third:
        second.at(topic_id, 0)
        third.at(topic_id, 0)
        (first,) = await proposals_of(node)
        assert [each.node_id for each in first.partitions[0].isr] == [1, 2]
        change(node, topic_id, isr=(1, 2))
        (then,) = await proposals_of(node)
        assert [each.node_id for each in then.partitions[0].isr] == [1, 2, 3]


async def test_a_follower_whose_stream_has_ended_is_not_proposed(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    node.apply(node_record(2, EPOCHS[2], fenced=True))
    async with stream(handler, 2) as second:
        second.at(topic_id, 0)
        await asyncio.sleep(0.01)
    node.apply(node_record(2, EPOCHS[2]))
    assert await proposals_of(node) == []


async def test_followers_that_lag_are_taken_out_and_quiet_ones_stay(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    replica, changes = node.replica(topic_id), node.replicas.isr_changes
    async with stream(handler, 2) as second, stream(handler, 3) as third:
        second.at(topic_id, 0)
        third.at(topic_id, 0)
        await asyncio.sleep(0.03)
        changes.look_for_laggards(replica, 20)
        assert await proposals_of(node) == []
        await node.append(topic_id, batch(b"a"), acks=1)
        await second.hear_one()
        second.at(topic_id, 1, 0)
        await asyncio.sleep(0.03)
        changes.look_for_laggards(replica, 20)
        (asked,) = await proposals_of(node)
        assert [each.node_id for each in asked.partitions[0].isr] == [1, 2]


async def test_a_follower_whose_disk_refuses_is_taken_out_at_once(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    async with stream(handler, 2) as second, stream(handler, 3) as third:
        second.at(topic_id, 0)
        third.at(topic_id, 0)
        await node.append(topic_id, batch(b"a"), acks=1)
        await second.hear_one()
        second.at(topic_id, 1, 0)
        await third.hear_one()
        third.at(topic_id, 0, disk_refuses=True)
        assert (await third.hear_one()).records, "it goes on trying"
        (asked,) = await proposals_of(node)
        assert [each.node_id for each in asked.partitions[0].isr] == [1, 2]


async def test_a_proposal_without_an_answer_is_sent_again_and_a_refused_one_is_not(
    node: StorageHarness, handler: ReplicationHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ISR_CALL_SECONDS_MAX", 0.02)
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    asked: list[AlterPartitionRequest] = []
    done = asyncio.Event()

    async def ask(request: AlterPartitionRequest) -> AlterPartitionResponse:
        asked.append(request)
        if len(asked) == 1:
            await asyncio.sleep(1)
        done.set()
        return AlterPartitionResponse(results=[IsrResult(error_code=int(ErrorCode.ineligible_replica))])

    async with stream(handler, 2) as second:
        second.at(topic_id, 0)
        running = asyncio.create_task(node.replicas.isr_changes.run(ask))
        async with asyncio.timeout(5):
            await done.wait()
        await asyncio.sleep(0.05)
        assert asked == [asked[0], asked[0]]
        node.apply(node_record(3, 31))  # anything new of the nodes: it is tried again
        await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert len(asked) == 3


async def test_a_proposal_that_held_already_is_over(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1,))
    epoch = node.replica(topic_id).record.partition_epoch

    async def ask(request: AlterPartitionRequest) -> AlterPartitionResponse:
        record = PartitionRecord(partition_epoch=epoch)
        return AlterPartitionResponse(results=[IsrResult(partition=record)])

    async with stream(handler, 2) as second:
        second.at(topic_id, 0)
        running = asyncio.create_task(node.replicas.isr_changes.run(ask))
        await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        leader = node.replica(topic_id).leader
        assert leader is not None
        assert leader.outsiders == [2, 3]


# -- look-ups after an election ---------------------------------------------------------------------------------------


async def test_the_end_is_not_told_before_it_is_known(
    node: StorageHarness, handler: ReplicationHandler
) -> None:
    topic_id = await create_topic(node)
    change(node, topic_id, isr=(1, 2))
    await node.append(topic_id, batch(b"a"), acks=1)
    change(node, topic_id, leader_epoch=1)
    wanted = ListOffsetsPartition(topic_id=topic_id.bytes, current_leader_epoch=-1, timestamp_ms=-1)
    request = ListOffsetsRequest(partitions=[wanted])
    (result,) = (await node.connection.ListOffsets(request)).results
    assert result.error_code == ErrorCode.offset_not_available
    async with stream(handler, 2) as second:
        second.at(topic_id, 1, 0, leader_epoch=1)
        await asyncio.sleep(0.02)
        (result,) = (await node.connection.ListOffsets(request)).results
        assert (result.error_code, result.offset) == (0, 1)
