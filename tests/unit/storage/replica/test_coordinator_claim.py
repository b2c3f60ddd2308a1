"""Who may write to the log of a coordinator, and where: over real streams, against a real log."""

from __future__ import annotations

import asyncio
import errno
import itertools
import threading
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from storage_harness import StorageHarness, batch, coordinator_record, run_node, topic_config, topic_records

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.image import partition_key
from barnabas.records.control import encode_marker

OFFSETS = "__consumer_offsets"
OWNER = ("c1", "process 1")
EPOCH = 4


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "data", tmp_path / "s") as harness:
        harness.apply(coordinator_record(*OWNER), coordinator_record("c2", "other process"))
        yield harness


@pytest.fixture
async def offsets(node: StorageHarness) -> uuid.UUID:
    return await node.create_topic(
        OFFSETS, internal=True, leader_epoch=3, coordinator_id="c1", coordinator_epoch=EPOCH
    )


async def code(
    node: StorageHarness,
    topic: uuid.UUID,
    *,
    coordinator: tuple[str, str] | None = OWNER,
    epoch: int = EPOCH,
    expected: int | None = None,
    leader_epoch: int = 3,
) -> ErrorCode:
    result = await node.append(
        topic,
        batch(b"a"),
        coordinator=coordinator,
        coordinator_epoch=epoch,
        expected_log_end=expected,
        leader_epoch=leader_epoch,
    )
    return ErrorCode(result.error_code)


async def test_only_the_owner_writes(node: StorageHarness, offsets: uuid.UUID) -> None:
    assert await code(node, offsets) is ErrorCode.none
    assert await code(node, offsets, coordinator=None) is ErrorCode.invalid_topic_exception
    stranger = ErrorCode.cluster_authorization_failed
    assert await code(node, offsets, coordinator=("c1", "guessed")) is stranger
    assert await code(node, offsets, coordinator=("c2", "other process")) is stranger
    assert await code(node, offsets, coordinator=("nobody", "")) is stranger
    assert await code(node, offsets, coordinator=("", "")) is stranger
    assert node.replica(offsets).high_watermark == 1


async def test_another_coordinator_epoch_is_refused(node: StorageHarness, offsets: uuid.UUID) -> None:
    assert await code(node, offsets, epoch=EPOCH - 1) is ErrorCode.not_coordinator
    assert await code(node, offsets, epoch=EPOCH + 1) is ErrorCode.unknown_leader_epoch
    assert await code(node, offsets, leader_epoch=2) is ErrorCode.fenced_leader_epoch
    # The partition goes to a new process of the same coordinator: its epoch rises, that of the leader does not.
    handed_over = topic_records(
        OFFSETS, offsets, internal=True, leader_epoch=3, coordinator_id="c1", coordinator_epoch=EPOCH + 1
    )
    node.apply(coordinator_record("c1", "process 2"), *handed_over)
    assert await code(node, offsets) is ErrorCode.not_coordinator
    assert await code(node, offsets, epoch=EPOCH + 1) is ErrorCode.cluster_authorization_failed
    process_2 = ("c1", "process 2")
    assert await code(node, offsets, coordinator=process_2, epoch=EPOCH + 1) is ErrorCode.none


async def test_ownership_is_decided_before_what_the_log_or_its_followers_refuse(node: StorageHarness) -> None:
    """A coordinator that hears of a full disk or of missing replicas knows by it that nobody else writes."""
    topic = uuid.uuid4()
    records = topic_records(
        OFFSETS,
        topic,
        replicas=(1, 2),
        internal=True,
        leader_epoch=3,
        coordinator_id="c1",
        coordinator_epoch=4,
    )
    del records[0].partition.isr[1:]
    node.apply(topic_config(OFFSETS, min_insync_replicas="2"), *records)
    await node.until_open()
    assert await code(node, topic) is ErrorCode.not_enough_replicas
    assert await code(node, topic, epoch=EPOCH - 1) is ErrorCode.not_coordinator
    assert await code(node, topic, epoch=EPOCH + 1) is ErrorCode.unknown_leader_epoch
    stranger = ("c1", "guessed")
    assert await code(node, topic, coordinator=stranger) is ErrorCode.cluster_authorization_failed


async def test_only_the_owner_hears_of_a_failed_disk(node: StorageHarness, offsets: uuid.UUID) -> None:
    replica = node.replica(offsets)
    replica.go_offline(OSError(errno.EIO, "a sync failed"))
    assert await code(node, offsets) is ErrorCode.kafka_storage_error
    assert await code(node, offsets, epoch=EPOCH - 1) is ErrorCode.not_coordinator
    assert await code(node, offsets, leader_epoch=2) is ErrorCode.not_leader_or_follower
    replica.follow(taken_over(replica.record))
    assert await code(node, offsets) is ErrorCode.not_leader_or_follower
    assert await code(node, offsets, leader_epoch=4) is ErrorCode.not_coordinator


def taken_over(record: PartitionRecord) -> PartitionRecord:
    """Another node leads, and another coordinator owns."""
    after = PartitionRecord()
    after.CopyFrom(record)
    after.leader, after.leader_epoch = 2, record.leader_epoch + 1
    after.coordinator_id, after.coordinator_epoch = "c2", EPOCH + 1
    return after


async def replicated(node: StorageHarness) -> uuid.UUID:
    """The offsets as in `offsets`, with a second replica."""
    return await node.create_topic(
        OFFSETS,
        internal=True,
        replicas=(1, 2),
        leader_epoch=3,
        coordinator_id="c1",
        coordinator_epoch=EPOCH,
    )


@pytest.mark.parametrize("lane", [False, True])
@pytest.mark.parametrize("fault", ["no room", "too few replicas", "a failed disk"])
async def test_a_leader_that_may_be_deposed_says_nothing_of_who_owns(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch, fault: str, lane: bool
) -> None:
    """By what it refuses for itself a coordinator would know that nobody else writes."""
    topic = await replicated(node)
    replica = node.replica(topic)
    if fault == "too few replicas":
        record = PartitionRecord()
        record.CopyFrom(replica.record)
        record.isr[:], record.partition_epoch = [1], record.partition_epoch + 1
        entry = MetadataRecord(key=partition_key(record.topic_id, record.partition), partition=record)
        node.apply(topic_config(OFFSETS, min_insync_replicas="2"), entry)
    is_in_touch = True
    monkeypatch.setattr(node.appends, "_is_in_touch", lambda: is_in_touch)
    if lane:
        monkeypatch.setattr(replica.lane, "is_direct", lambda _: False)

    def refuse(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.kafka_storage_error, "no space left")

    if fault == "no room":
        monkeypatch.setattr(replica.log, "append_as_leader", refuse)
    elif fault == "a failed disk":
        replica.go_offline(OSError(errno.EIO, "a sync failed"))
    told = ErrorCode.not_enough_replicas if fault == "too few replicas" else ErrorCode.kafka_storage_error
    assert await code(node, topic) is told
    is_in_touch = False
    assert await code(node, topic) is ErrorCode.not_leader_or_follower


async def test_a_disk_that_fails_while_a_write_waits_says_nothing_of_who_owns(node: StorageHarness) -> None:
    topic = await replicated(node)
    waiting = asyncio.create_task(code(node, topic))
    while not node.replica(topic).log.log_end_offset:
        await asyncio.sleep(0.01)
    node.replica(topic).go_offline(OSError(errno.EIO, "a sync failed"))
    assert await waiting is ErrorCode.not_leader_or_follower


@pytest.mark.parametrize("fault", ["a disk that fails while it waits", "no room when it is written"])
async def test_who_is_no_owner_any_more_hears_of_no_disk(
    node: StorageHarness, offsets: uuid.UUID, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """It was the owner when its write was admitted to the writer thread."""
    replica = node.replica(offsets)
    monkeypatch.setattr(replica.lane, "is_direct", lambda _: False)
    go_on, has_begun = threading.Event(), threading.Event()

    def wait(*_: object, **__: object) -> None:
        has_begun.set()
        go_on.wait(10)

    def refuse(*_: object, **__: object) -> None:
        wait()
        raise KafkaError(ErrorCode.kafka_storage_error, "no space left")

    if fault == "no room when it is written":
        monkeypatch.setattr(replica.log, "append_as_leader", refuse)
    else:
        replica.queue.submit(wait, lambda *_: None)
    waiting = asyncio.create_task(code(node, offsets))
    await asyncio.to_thread(has_begun.wait, 10)
    while not replica.queue.items:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    record = PartitionRecord()
    record.CopyFrom(replica.record)
    record.coordinator_id, record.coordinator_epoch = "c2", EPOCH + 1
    record.partition_epoch += 1
    node.apply(MetadataRecord(key=partition_key(record.topic_id, record.partition), partition=record))
    if fault == "a disk that fails while it waits":
        replica.go_offline(OSError(errno.EIO, "a sync failed"))
    go_on.set()
    assert await waiting is ErrorCode.not_coordinator


async def test_what_a_former_owner_wrote_is_not_acknowledged_once_there_is_another(
    node: StorageHarness,
) -> None:
    """The next one may have told by then what is committed, where its first write has to wait for replicas."""
    topic, partition_epochs = uuid.uuid4(), itertools.count()

    def owned(coordinator_id: str, coordinator_epoch: int, *isr: int) -> list[MetadataRecord]:
        records = topic_records(
            OFFSETS,
            topic,
            replicas=(1, 2),
            internal=True,
            leader_epoch=3,
            coordinator_id=coordinator_id,
            coordinator_epoch=coordinator_epoch,
        )
        records[0].partition.isr[:] = isr
        records[0].partition.partition_epoch = next(partition_epochs)
        return records

    node.apply(*owned("c1", EPOCH, 1, 2))
    await node.until_open()
    sent = node.send_append(topic, batch(b"a"), coordinator=OWNER, coordinator_epoch=EPOCH)
    while node.replica(topic).log.log_end_offset == 0:  # type: ignore[union-attr]
        await asyncio.sleep(0)
    node.apply(*owned("c2", EPOCH + 1, 1, 2))
    node.apply(*owned("c2", EPOCH + 1, 1))
    async with asyncio.timeout(2):
        result = (await sent).partitions[0]
    assert ErrorCode(result.error_code) is ErrorCode.not_coordinator
    assert node.replica(topic).high_watermark == 1, "the next owner reads it, all the same"


async def test_another_end_of_the_log_is_refused(node: StorageHarness, offsets: uuid.UUID) -> None:
    assert await code(node, offsets, expected=0) is ErrorCode.none
    assert await code(node, offsets, expected=0) is ErrorCode.offset_out_of_range
    assert await code(node, offsets, expected=2) is ErrorCode.offset_out_of_range
    assert await code(node, offsets, expected=1) is ErrorCode.none
    assert await code(node, offsets) is ErrorCode.none
    assert node.replica(offsets).high_watermark == 3


async def test_a_stray_frame_is_refused_once_a_later_write_landed(
    node: StorageHarness, offsets: uuid.UUID
) -> None:
    """The stream broke before the frame arrived; the coordinator reloaded with a write of its own meanwhile."""
    assert await code(node, offsets, expected=0) is ErrorCode.none
    assert await code(node, offsets) is ErrorCode.none  # what loading starts with says no end
    assert await code(node, offsets, expected=1) is ErrorCode.offset_out_of_range
    assert await code(node, offsets, expected=2) is ErrorCode.none


async def test_what_is_expected_holds_for_all_of_an_append_at_once(
    node: StorageHarness, offsets: uuid.UUID
) -> None:
    """Two frames in flight that expect the same end: one lands, whichever is first."""
    sent = [
        node.send_append(offsets, batch(b"a"), coordinator=OWNER, coordinator_epoch=EPOCH, expected_log_end=0)
        for _ in range(2)
    ]
    codes = [(await future).partitions[0].error_code for future in sent]
    assert codes == [ErrorCode.none, ErrorCode.offset_out_of_range]


async def test_retention_does_not_move_the_expected_end(node: StorageHarness, offsets: uuid.UUID) -> None:
    node.apply(topic_config(OFFSETS, cleanup_policy="compact,delete"))
    for end in range(3):
        assert await code(node, offsets, expected=end) is ErrorCode.none
    log = node.replica(offsets).log
    assert log is not None
    log.maybe_increment_log_start_offset(2)
    assert log.log_start_offset == 2
    assert await code(node, offsets, expected=3) is ErrorCode.none


async def test_a_marker_for_a_client_s_topic_needs_a_live_coordinator(node: StorageHarness) -> None:
    topic = await node.create_topic()
    marker = encode_marker(committed=True, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=1)
    stranger = await node.append(topic, marker, coordinator=("c1", "guessed"))
    assert stranger.error_code == ErrorCode.cluster_authorization_failed
    client = await node.append(topic, marker)
    assert client.error_code == ErrorCode.invalid_record
    assert (await node.append(topic, marker, coordinator=OWNER)).error_code == ErrorCode.none
