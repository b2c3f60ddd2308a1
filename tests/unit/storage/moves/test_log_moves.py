"""Replicas move between the log directories of one node, as AlterReplicaLogDirs asks for it."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from moving_replicas import (
    VALUE,
    all_values,
    alter,
    broker_setting,
    described,
    failing_in,
    fill,
    on_disk,
    place,
    stopped_at_promote,
    throttled,
    unconfirmed_in,
    until,
    until_idle,
)
from storage_harness import (
    StorageHarness,
    batch,
    make_cleaning,
    run_node,
    topic_config,
    topic_records,
)

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving.future_log import FutureLog
from barnabas.log.partition_log import PartitionLog
from barnabas.messages import storage_pb2 as pb
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.records.record import encode_batch
from barnabas.storage import limits
from barnabas.storage.moves import log_moves


async def test_a_replica_moves_while_it_is_appended_to(node: StorageHarness, paths: list[Path]) -> None:
    topic = await node.create_topic()
    assert place(node, topic) == "a"
    await fill(node, topic, 20)
    assert await alter(node, paths[1]) == [ErrorCode.none]
    appended = 20
    while node.replicas.moves._moves:
        await fill(node, topic, 1)
        appended += 1
    await fill(node, topic, 3)
    assert place(node, topic) == "b"
    assert await all_values(node, topic) == list(range(appended + 3))
    assert on_disk(paths) == {"a": [], "b": ["events-0"], "c": []}
    assert await described(node) == {"a": [], "b": [(0, False, 0)], "c": []}
    assert node.replicas.moves.copied_bytes > 20 * len(VALUE)


async def test_any_number_of_replicas_move_and_stay_over_a_start(paths: list[Path], tmp_path: Path) -> None:
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        topic = await node.create_topic(partitions=30)
        for index in range(30):
            await fill(node, topic, 2, index=index)
        assert await alter(node, paths[2], *range(30)) == [ErrorCode.none] * 30
        await until_idle(node)
        assert {place(node, topic, index) for index in range(30)} == {"c"}
    assert set(on_disk(paths)["c"]) == {f"events-{index}" for index in range(30)}
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        node.snapshot(*topic_records("events", topic, 30))
        await node.until_open()
        for index in range(30):
            assert node.replica(topic, index).high_watermark == 2
            assert (await node.append(topic, batch(VALUE), index=index)).base_offset == 2


async def test_what_cannot_be_done_has_kafkas_codes(
    node: StorageHarness, paths: list[Path], tmp_path: Path
) -> None:
    topic = await node.create_topic()
    assert await alter(node, tmp_path / "other") == [ErrorCode.log_dir_not_found]
    assert await alter(node, paths[1], 7) == [ErrorCode.unknown_topic_or_partition]
    assert await alter(node, paths[1], topic="nobody") == [ErrorCode.unknown_topic_or_partition]
    assert await alter(node, paths[1], topic="x" * 240) == [ErrorCode.invalid_topic_exception]
    await node.create_topic("elsewhere", leader=2, replicas=(2,))
    assert await alter(node, paths[1], topic="elsewhere") == [ErrorCode.replica_not_available]
    node.apply(broker_setting(cordoned_log_dirs=str(paths[1])))
    assert await alter(node, paths[1]) == [ErrorCode.invalid_replica_assignment]
    assert await alter(node, paths[1], 0, 7) == [ErrorCode.invalid_replica_assignment] * 2
    assert await alter(node, paths[0]) == [ErrorCode.none], "it is there"
    node.replica(topic).go_offline(OSError("gone"))
    assert await alter(node, paths[2]) == [ErrorCode.kafka_storage_error]


async def test_one_that_is_still_to_come_is_created_where_it_is_wanted(
    node: StorageHarness, paths: list[Path]
) -> None:
    assert await alter(node, paths[2], 0, 1) == [ErrorCode.unknown_topic_or_partition] * 2
    assert await alter(node, paths[1], 1) == [ErrorCode.unknown_topic_or_partition]
    topic = await node.create_topic(partitions=3)
    assert [place(node, topic, index) for index in range(3)] == ["c", "b", "a"]


async def test_a_cordoned_directory_gets_nothing_new_and_keeps_what_it_has(
    node: StorageHarness, paths: list[Path]
) -> None:
    topic = await node.create_topic(partitions=3)
    assert sorted(place(node, topic, index) for index in range(3)) == ["a", "b", "c"]
    node.apply(broker_setting(cordoned_log_dirs=f"{paths[0]},{paths[2]}"))
    later = await node.create_topic("later", partitions=4)
    assert {place(node, later, index) for index in range(4)} == {"b"}
    await fill(node, topic, 1)
    response = await node.connection.DescribeLogDirs(pb.DescribeLogDirsRequest(all_partitions=True))
    assert [each.is_cordoned for each in response.log_dirs] == [True, False, True]
    node.apply(broker_setting(cordoned_log_dirs="*"))
    last = await node.create_topic("last")
    assert place(node, last) in "abc", "there is no other"
    node.apply(broker_setting(cordoned_log_dirs=""))
    assert node.replicas.moves.cordoned == set()


async def test_a_move_is_redirected_and_called_off(node: StorageHarness, paths: list[Path]) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 20)
    node.apply(throttled(1))
    assert await alter(node, paths[1]) == [ErrorCode.none]
    assert (await described(node))["b"] == [(0, True, 20)] or (await described(node))["b"][0][1]
    assert await alter(node, paths[1]) == [ErrorCode.none], "it is on its way there"
    assert await alter(node, paths[2]) == [ErrorCode.none]
    await until(lambda: not on_disk(paths)["b"])
    assert [each[1] for each in (await described(node))["c"]] == [True]
    assert (await described(node))["b"] == []
    assert await alter(node, paths[0]) == [ErrorCode.none], "where it is: the move is called off"
    await until_idle(node)
    assert on_disk(paths) == {"a": ["events-0"], "b": [], "c": []}
    await fill(node, topic, 1)
    node.apply(throttled(2**62))
    assert await alter(node, paths[1]) == [ErrorCode.none]
    await until_idle(node)
    assert place(node, topic) == "b"
    assert await all_values(node, topic) == list(range(21))


@pytest.mark.parametrize("bytes_per_second", [100, 0])
async def test_the_rate_holds_a_move_back(
    node: StorageHarness, paths: list[Path], bytes_per_second: int
) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 50)
    node.apply(throttled(bytes_per_second))
    await alter(node, paths[1])
    await until(lambda: node.replicas.moves.copied_bytes)
    (move,) = node.replicas.moves.under_way()
    await asyncio.sleep(0)
    assert 0 < move.copied_bytes < 10 * len(VALUE), "a second's worth at a time"
    assert node.replicas.moves.lag_max > 40
    assert move.replica.log is not None
    assert node.replicas.moves.left_bytes == move.replica.log.size - move.copied_bytes
    assert place(node, topic) == "a"
    node.apply(throttled(2**62))
    await until_idle(node)
    assert place(node, topic) == "b"


async def test_a_move_goes_on_at_the_next_start(paths: list[Path], tmp_path: Path) -> None:
    async with run_node(paths[0], tmp_path / "s", paths[1:], crash=True) as node:
        topic = await node.create_topic()
        await fill(node, topic, 30)
        node.apply(throttled(300))
        await alter(node, paths[1])
        await until(lambda: node.replicas.moves.copied_bytes)
    (future,) = on_disk(paths)["b"]
    assert future.startswith("events-0.")
    assert future.endswith("-future")
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        node.snapshot(*topic_records("events", topic))
        await node.until_open()
        await until_idle(node)
        assert place(node, topic) == "b"
        assert await all_values(node, topic) == list(range(30))
    assert on_disk(paths) == {"a": [], "b": ["events-0"], "c": []}


async def test_what_nobody_wants_any_more_is_removed_at_the_next_start(
    paths: list[Path], tmp_path: Path
) -> None:
    unique = uuid.uuid4().hex
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        topic = await node.create_topic()
    for path, name in ((paths[0], "events-0"), (paths[1], "gone-3"), (paths[2], "events-0")):
        (path / f"{name}.{unique}-future").mkdir()
    metadata = f"version: 0\ntopic_id: {'A' * 22}"  # of another topic of the name
    (paths[2] / f"events-0.{unique}-future" / "partition.metadata").write_text(metadata)
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        node.snapshot(*topic_records("events", topic))
        await until(lambda: on_disk(paths) == {"a": ["events-0"], "b": [], "c": []})
        await until_idle(node)


async def test_the_topic_may_go_while_its_replicas_move(node: StorageHarness, paths: list[Path]) -> None:
    topic = await node.create_topic(partitions=3)
    await fill(node, topic, 20)
    node.apply(throttled(1))
    await alter(node, paths[1], 0, 1, 2)
    node.apply(MetadataRecord(key="topic/events"), node.deletion(topic))
    node.snapshot(node.deletion(topic))
    await until_idle(node)
    await until(lambda: on_disk(paths) == {"a": [], "b": [], "c": []})
    again = await node.create_topic()
    await fill(node, again, 1)


async def test_a_topic_that_comes_again_as_its_former_one_has_just_moved(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FORMER_LOG_SECONDS", 3600)
    topic = await node.create_topic()
    await fill(node, topic, 2)
    await alter(node, paths[1])
    await until(lambda: place(node, topic) == "b")
    (left,) = on_disk(paths)["a"]
    assert left.endswith("-moving"), "it may be read on, and is the partition no longer"
    node.snapshot(node.deletion(topic), revision=2_000)
    later = uuid.uuid4()
    node.revision = 3_000
    node.apply(*topic_records("events", later))
    await node.until_open()
    assert (await node.append(later, batch(VALUE))).base_offset == 0
    await until_idle(node)
    assert [len(names) for names in on_disk(paths).values()].count(1) == 1


async def test_a_directory_that_fails_ends_the_move_and_not_the_replica(
    node: StorageHarness, paths: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 5)
    with failing_in(paths[1], "makedirs"):
        assert await alter(node, paths[1]) == [ErrorCode.kafka_storage_error]
        await until_idle(node)
    node.apply(throttled(1))
    assert await alter(node, paths[1]) == [ErrorCode.none]
    with failing_in(paths[1], "open"):
        node.apply(throttled(2**62))
        await until_idle(node)
    assert node.replicas.moves.failed_count == 1
    await fill(node, topic, 1)
    assert place(node, topic) == "a"
    assert await alter(node, paths[1]) == [ErrorCode.none]
    await until_idle(node)
    assert place(node, topic) == "b"
    assert await all_values(node, topic) == list(range(6))
    assert (node.replicas.moves.failed_count, node.replicas.moves.left_bytes) == (0, 0)


async def test_what_a_move_that_failed_has_copied_goes_when_the_directory_lets_it(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk may not even do that, and needs the room most."""
    monkeypatch.setattr(limits, "RETIRE_AGAIN_SECONDS", 0.05)
    topic = await node.create_topic()
    await fill(node, topic, 5)
    node.apply(throttled(1))
    assert await alter(node, paths[1]) == [ErrorCode.none]
    with monkeypatch.context() as patch:
        patch.setattr(
            SystemFiles, "remove_tree", lambda *_: None
        )  # it removes what it can, and raises nothing
        with failing_in(paths[1], "open"), failing_in(paths[1], "rename"):
            node.apply(throttled(2**62))
            await until_idle(node)
            await asyncio.sleep(0.1)
            assert list(paths[1].glob("*-future"))
        await until(lambda: list(paths[1].glob("*-delete")))
    await until(lambda: not list(paths[1].glob("*-future")) and not list(paths[1].glob("*-delete")))
    assert (place(node, topic), await all_values(node, topic)) == ("a", list(range(5)))


async def test_a_log_that_cannot_be_read_is_served_as_far_as_it_can_be(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 5)
    opened = node.replica(topic).log
    assert opened is not None

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(opened, "locate", fail)
        assert await alter(node, paths[1]) == [ErrorCode.none]
        await until_idle(node)
    assert "a move ends: the log cannot be read" in caplog.text
    await fill(node, topic, 1)
    assert place(node, topic) == "a"


async def test_a_change_of_places_that_the_disk_does_not_confirm_takes_the_replica_offline(
    paths: list[Path], tmp_path: Path
) -> None:
    """Which of the two counts is not known before the next start; so nothing goes into either."""
    async with run_node(paths[0], tmp_path / "s", paths[1:], crash=True) as node:
        topic = await node.create_topic()
        await fill(node, topic, 5)

        with unconfirmed_in(paths[1]):
            await alter(node, paths[1])
            await until_idle(node)
        assert node.replica(topic).is_offline
        assert (await node.append(topic, batch(VALUE))).error_code == ErrorCode.kafka_storage_error
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        node.snapshot(*topic_records("events", topic))
        await node.until_open()
        assert await all_values(node, topic) == list(range(5))
        await fill(node, topic, 1)
    assert on_disk(paths) == {"a": [], "b": ["events-0"], "c": []}


async def test_a_fault_while_the_places_change_takes_the_replica_offline_and_no_other(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await node.create_topic(partitions=2)
    await fill(node, topic, 5)

    def fail(*_: Any) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(FutureLog, "promote", fail)
    await alter(node, paths[2])
    await until_idle(node)
    assert node.replica(topic).is_offline
    assert (await node.append(topic, batch(VALUE))).error_code == ErrorCode.kafka_storage_error
    monkeypatch.undo()
    monkeypatch.setattr(limits, "FORMER_LOG_SECONDS", 0)
    await fill(node, topic, 1, index=1)
    await alter(node, paths[2], 1)
    await until_idle(node)
    assert place(node, topic, 1) == "c"


async def test_appends_wait_while_the_places_change_and_are_taken_by_the_new_log(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await node.create_topic()
    await fill(node, topic, 5)
    entered, leave = stopped_at_promote(monkeypatch)
    await alter(node, paths[1])
    await entered.wait()
    waiting = [node.send_append(topic, batch(VALUE)) for _ in range(3)]
    node.apply(*topic_records("events", topic, leader_epoch=4))  # an election, in the midst of it
    later = [node.send_append(topic, batch(VALUE), leader_epoch=4) for _ in range(2)]
    assert (await node.fetch(topic, 3)).error_code == 0, "reads go on"
    assert await alter(node, paths[2]) == [ErrorCode.none], "another move begins behind this one"
    assert not any(each.done() for each in (*waiting, *later))
    leave.set()
    results = [(await each).partitions[0] for each in (*waiting, *later)]
    written = [each.base_offset for each in results if not each.error_code]
    assert written == list(range(5, 5 + len(written)))
    assert len(written) >= 2
    await until_idle(node)
    assert place(node, topic) == "c"
    assert await all_values(node, topic) == list(range(5 + len(written)))
    opened = node.replica(topic).log
    assert opened is not None
    assert opened.epochs.latest_epoch == 4


async def test_an_epoch_that_has_written_nothing_is_known_in_the_new_place(
    node: StorageHarness, paths: list[Path]
) -> None:
    """KAFKA-15608: followers ask an idle leader for it."""
    topic = await node.create_topic()
    await fill(node, topic, 3)
    node.apply(*topic_records("events", topic, leader_epoch=7))
    opened = node.replica(topic).log
    assert opened is not None
    entries = opened.epochs.entries
    await alter(node, paths[1])
    await until_idle(node)
    moved = node.replica(topic).log
    assert moved is not None
    assert moved is not opened
    assert moved.epochs.entries == entries
    assert moved.end_offset_for_epoch(7) == (7, 3)


async def test_a_log_is_not_compacted_while_it_is_copied(node: StorageHarness, paths: list[Path]) -> None:
    """Between a record and its tombstone, a copy would keep what was deleted."""
    compacted = topic_config("events", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    topic = await node.create_topic()
    node.apply(compacted)
    opened = node.replica(topic).log
    assert opened is not None
    for number in range(12):
        keyed = encode_batch([(node.clock.now_ms(), b"k", b"%d" % number + VALUE, ())])
        assert (await node.append(topic, keyed)).error_code == 0
        if number % 3 == 2:
            opened.roll()
    cleaning = make_cleaning(node)
    node.apply(throttled(1))
    await alter(node, paths[1])
    await until(lambda: node.replicas.moves.copied_bytes)
    assert not await cleaning.clean_dirtiest()
    assert opened.first_dirty_offset == -1
    await alter(node, paths[0])
    await until_idle(node)
    assert await cleaning.clean_dirtiest()
    assert opened.first_dirty_offset == 12
    node.apply(throttled(2**62))
    await alter(node, paths[1])
    await until_idle(node)
    moved = node.replica(topic).log
    assert moved is not None
    assert (place(node, topic), moved.first_dirty_offset, moved.log_end_offset) == ("b", 12, 12)
    assert await all_values(node, topic) == [11]


async def test_a_log_directory_that_is_offline_keeps_replicas_where_they_are(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        topic = await node.create_topic()
        await fill(node, topic, 1)
    real = LogDirectory.partitions_on_disk

    def fail(directory: LogDirectory) -> Any:
        if directory.path == str(paths[2]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(directory)

    monkeypatch.setattr(LogDirectory, "partitions_on_disk", fail)
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        node.snapshot(*topic_records("events", topic))
        await node.until_open()
        assert await alter(node, paths[2]) == [ErrorCode.kafka_storage_error]
        assert await alter(node, paths[1]) == [ErrorCode.kafka_storage_error]
        assert await alter(node, paths[0]) == [ErrorCode.none]
        assert on_disk(paths)["b"] == []


async def test_an_append_that_waits_for_a_sync_is_acknowledged_with_the_move(
    node: StorageHarness, paths: list[Path]
) -> None:
    """The future log was synced; the sync of the former one comes too late, or fails."""
    topic = await node.create_topic(replicas=(1, 2))
    node.apply(topic_config("events", flush_messages="1"))
    await fill(node, topic, 1, acks=1)
    lane = node.replica(topic).lane
    assert lane is not None
    is_over = threading.Event()
    for _ in range(8):
        lane.flush.submit(is_over.wait, 60)
    try:
        appended = node.send_append(topic, batch(VALUE), acks=1)
        await until(lambda: node.replica(topic).end_offset == 2)
        assert not appended.done()
        await alter(node, paths[1])
        assert (await asyncio.wait_for(appended, 20)).partitions[0].error_code == 0
        assert place(node, topic) == "b"
    finally:
        is_over.set()
    await until_idle(node)
    await fill(node, topic, 1, acks=1)


async def test_nobody_moves_on_before_what_it_left_is_gone(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses to let go of it: that is tried again until it does."""
    topic = await node.create_topic()
    await fill(node, topic, 3)
    real, seen = log_moves.retire, []

    def refused_twice(former: LogDirectory, left: PartitionLog) -> None:
        seen.append(place(node, topic))
        if len(seen) < 3:
            raise KafkaError(ErrorCode.kafka_storage_error, "it cannot be renamed")
        real(former, left)

    monkeypatch.setattr(log_moves, "retire", refused_twice)
    monkeypatch.setattr(limits, "RETIRE_AGAIN_SECONDS", 0.05)
    await alter(node, paths[1])
    await until(lambda: place(node, topic) == "b")
    assert await alter(node, paths[2]) == [ErrorCode.none]
    await until_idle(node)
    assert seen == ["b", "b", "b", "c"]
    assert on_disk(paths) == {"a": [], "b": [], "c": ["events-0"]}
