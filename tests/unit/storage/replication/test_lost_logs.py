"""A log that is not there is begun (the controller knows who may lead, KIP-966), but for one that had records: its node
leads nothing that others have a copy of.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from leader_and_followers import EPOCHS, change, node_record
from storage_harness import StorageHarness, batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints.checkpoint_file import HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE, read_offsets
from barnabas.log.checkpoints.partition_metadata import ensure_topic_id
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.segment import LOG_SUFFIX, file_name
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.metadata.image import NO_LEADER
from barnabas.storage import limits
from barnabas.storage.directories.missing_partitions import MissingPartitions

TOPIC = uuid.UUID(int=7)
KEY = ("events", 0)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REOPEN_SECONDS_MIN", 0.01)


def records_of(
    replicas: tuple[int, ...], leader: int = 1, leader_epoch: int = 0, topic_id: uuid.UUID = TOPIC
) -> list[MetadataRecord]:
    nodes = [node_record(each, epoch) for each, epoch in EPOCHS.items()]
    topic = topic_records("events", topic_id, replicas=replicas, leader=leader, leader_epoch=leader_epoch)
    return [*nodes, *topic]


async def began_and_lost(
    place: tuple[Path, Path], *, crash: bool = True, others: tuple[Path, ...] = ()
) -> None:
    """A log with one record, which the checkpoints name; then its directory is gone."""
    async with run_node(*place, others, crash=crash) as node:
        node.apply(*records_of((1, 2, 3)))
        await node.until_open()
        await node.append(TOPIC, batch(b"a"), acks=1)
        for path in node.directories.paths:
            node.directories.write_checkpoints(path, {KEY: 1})
        home = Path(node.directories.path_of(KEY))
    shutil.rmtree(home / "events-0")
    assert home == place[0]


def named(directory: Path) -> bool:
    """Whether a checkpoint on the disk says that there are records."""
    files = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE)
    return any(read_offsets(SystemFiles(), str(directory / each)).get(KEY, 0) > 0 for each in files)


async def until_followed(node: StorageHarness) -> None:
    replica = node.replica(TOPIC)
    async with asyncio.timeout(5):
        while replica.log is None:
            await asyncio.sleep(0.01)
    assert not replica.is_offline
    assert not replica.is_leader
    assert replica.log.log_end_offset == 0


async def assert_not_led(node: StorageHarness, *, is_gone: bool = True) -> None:
    await node.until_open()
    await asyncio.sleep(0.05)  # it is tried again meanwhile
    assert node.replica(TOPIC).is_offline
    assert (await node.append(TOPIC, batch(b"b"), acks=1)).error_code == ErrorCode.kafka_storage_error
    assert (node.directory / "events-0").exists() is not is_gone


@pytest.mark.parametrize("leader", [1, NO_LEADER])
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
async def test_a_lost_log_is_not_led_also_after_further_starts(
    tmp_path: Path, crash: bool, leader: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a leader either: who led last may be elected again, and would then have an empty log."""
    place = (tmp_path / "a", tmp_path / "s")
    await began_and_lost(place, crash=crash)
    for again in (False, True):
        async with run_node(*place, crash=again) as node:
            node.snapshot(*records_of((1, 2, 3), leader, leader_epoch=1))
            await assert_not_led(node)
            node.directories.write_checkpoints(str(place[0]), node.replicas.high_watermarks())
    async with run_node(*place) as node:
        node.snapshot(*records_of((1, 2, 3), leader, leader_epoch=1))
        await assert_not_led(node)
        change(node, TOPIC, leader=2, leader_epoch=2, isr=(2, 3))
        await until_followed(node)
    assert not named(place[0])
    reasons = [getattr(line, "fields", {}).get("reason", "") for line in caplog.records]
    assert any("--election-type unclean" in reason for reason in reasons)


@pytest.mark.parametrize(
    "heir",
    [
        {"leader": 2, "isr": (2, 1)},
        {"leader": 2, "isr": (2,), "eligible_leader_replicas": (1,)},
        {"leader": NO_LEADER, "isr": (), "last_known_eligible_leader_replicas": (1,)},
    ],
    ids=["in sync", "eligible", "last known"],
)
async def test_a_lost_log_follows_once_it_would_not_come_to_lead(
    tmp_path: Path, heir: dict[str, object]
) -> None:
    """Begun before, it might be elected while it lacks records."""
    place = (tmp_path / "a", tmp_path / "s")
    await began_and_lost(place)
    async with run_node(*place) as node:
        node.snapshot(*records_of((1, 2, 3)))
        change(node, TOPIC, leader_epoch=1, **heir)
        await assert_not_led(node)
        change(node, TOPIC, leader=2, leader_epoch=2, isr=(2,), eligible_leader_replicas=())
        await until_followed(node)


async def test_a_lost_log_is_not_begun_before_the_metadata_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start found it, and could not open it; then it vanished, and is tried again."""
    place = (tmp_path / "a", tmp_path / "s")
    await began_and_lost(place)
    (place[0] / "events-0").mkdir()
    ensure_topic_id(SystemFiles(), str(place[0] / "events-0"), TOPIC)
    (place[0] / "events-0" / file_name(0, LOG_SUFFIX)).touch()
    real, tries = PartitionLog.open, 0

    def fail_once(*arguments: Any, **named: Any) -> PartitionLog:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise KafkaError(ErrorCode.kafka_storage_error) from OSError(errno.EIO, "")
        return real(*arguments, **named)

    look_for, looked_for = MissingPartitions.look_for, list[bool]()

    def look(*arguments: Any) -> bool:
        looked_for.append(look_for(*arguments))
        return looked_for[-1]

    monkeypatch.setattr(PartitionLog, "open", fail_once)
    monkeypatch.setattr(MissingPartitions, "look_for", look)
    async with run_node(*place) as node:
        shutil.rmtree(place[0] / "events-0")
        async with asyncio.timeout(5):
            while len(looked_for) < 3:
                node.clock.advance(1_000)
                await asyncio.sleep(0.01)
        assert not (place[0] / "events-0").exists()
        node.snapshot(*records_of((1, 2, 3), leader_epoch=1))
        await assert_not_led(node)


async def test_a_lost_log_that_is_brought_back_is_led(tmp_path: Path) -> None:
    place = (tmp_path / "a", tmp_path / "s")
    async with run_node(*place, crash=True) as node:
        node.apply(*records_of((1, 2, 3)))
        await node.until_open()
        await node.append(TOPIC, batch(b"a"), acks=1)
        node.directories.write_checkpoints(str(place[0]), {KEY: 1})
    (place[0] / "events-0").rename(tmp_path / "aside")
    async with run_node(*place) as node:
        node.snapshot(*records_of((1, 2, 3), leader_epoch=1))
        await assert_not_led(node)
        (tmp_path / "aside").rename(place[0] / "events-0")
        change(node, TOPIC, leader_epoch=2)
        async with asyncio.timeout(5):
            while node.replica(TOPIC).log is None:
                await asyncio.sleep(0.01)
        assert (await node.append(TOPIC, batch(b"b"), acks=1)).base_offset == 1


async def test_a_lost_log_is_not_led_once_its_directory_is_there_again_and_empty(tmp_path: Path) -> None:
    """Nor after a further start; as a follower it is filled."""
    place = (tmp_path / "a", tmp_path / "s")
    await began_and_lost(place)
    async with run_node(*place) as node:
        node.snapshot(*records_of((1, 2, 3), leader_epoch=1))
        await assert_not_led(node)
    (place[0] / "events-0").mkdir()
    for again in (False, True):
        async with run_node(*place, crash=again) as node:
            node.snapshot(*records_of((1, 2, 3), leader_epoch=2))
            await assert_not_led(node, is_gone=False)
    async with run_node(*place) as node:
        node.snapshot(*records_of((1, 2, 3), leader_epoch=2))
        change(node, TOPIC, leader=2, leader_epoch=3, isr=(2, 3))
        await until_followed(node)


async def test_a_lost_log_is_missed_also_where_there_are_several_directories(tmp_path: Path) -> None:
    place = (tmp_path / "a", tmp_path / "s")
    others = (tmp_path / "b",)
    await began_and_lost(place, others=others)
    async with run_node(*place, others) as node:
        node.snapshot(*records_of((1, 2, 3), leader_epoch=1))
        await assert_not_led(node)
        change(node, TOPIC, leader=2, leader_epoch=2, isr=(2, 3))
        await until_followed(node)
    async with run_node(*place, others) as node:
        node.snapshot(*records_of((1, 2, 3), leader_epoch=3))
        await node.until_open()
        assert not node.replica(TOPIC).is_offline


async def test_one_that_was_moved_to_another_directory_is_not_lost(tmp_path: Path) -> None:
    place = (tmp_path / "a", tmp_path / "s")
    others = (tmp_path / "b",)
    async with run_node(*place, others) as node:
        node.apply(*records_of((1, 2, 3)))
        await node.until_open()
        await node.append(TOPIC, batch(b"a"), acks=1)
    (place[0] / "events-0").rename(others[0] / "events-0")
    async with run_node(*place, others) as node:
        node.snapshot(*records_of((1, 2, 3), leader_epoch=1))
        await node.until_open()
        assert (await node.append(TOPIC, batch(b"b"), acks=1)).base_offset == 1
    assert not named(place[0])


async def test_what_no_metadata_give_to_the_node_is_not_missed_any_more(tmp_path: Path) -> None:
    """A deletion that a crash came into: another topic of the name begins."""
    place = (tmp_path / "a", tmp_path / "s")
    await began_and_lost(place)
    async with run_node(*place) as node:
        pass
    assert named(place[0]), "nothing was heard of it"
    async with run_node(*place) as node:
        node.snapshot(revision=1)
        node.apply(*records_of((1, 2, 3), topic_id=uuid.UUID(int=8)))
        await node.until_open()
        taken = await node.append(uuid.UUID(int=8), batch(b"b"), acks=1)
        assert (taken.error_code, taken.base_offset) == (ErrorCode.none, 0)
    await began_and_lost((tmp_path / "b", tmp_path / "s"))
    async with run_node(tmp_path / "b", tmp_path / "s") as node:
        node.snapshot(revision=1)
    assert not named(tmp_path / "b")


async def test_a_lost_log_whose_topic_is_deleted_is_not_missed_any_more(tmp_path: Path) -> None:
    place = (tmp_path / "a", tmp_path / "s")
    await began_and_lost(place)
    async with run_node(*place) as node:
        node.snapshot(*records_of((1, 2, 3), leader_epoch=1))
        await assert_not_led(node)
        node.snapshot(node.deletion(TOPIC), revision=2_000)
        async with asyncio.timeout(5):
            while not node.replicas.is_idle:
                await asyncio.sleep(0.01)
    assert not named(place[0])


@pytest.mark.parametrize("was_made", [False, True])
async def test_a_log_without_records_is_led_as_the_metadata_say(tmp_path: Path, was_made: bool) -> None:
    """Also under a later leader epoch: the whole cluster may have been stopped before the log was made."""
    place = (tmp_path / "a", tmp_path / "s")
    if was_made:
        async with run_node(*place) as node:
            node.apply(*records_of((1, 2, 3)))
            await node.until_open()
        shutil.rmtree(place[0] / "events-0")
    async with run_node(*place) as node:
        node.snapshot(*records_of((1, 2, 3), leader_epoch=3))
        await node.until_open()
        taken = await node.append(TOPIC, batch(b"b"), acks=1)
        assert (taken.error_code, taken.base_offset) == (ErrorCode.none, 0)


async def test_a_lost_log_that_nobody_else_has_is_begun_anew(tmp_path: Path) -> None:
    place = (tmp_path / "a", tmp_path / "s")
    await began_and_lost(place)
    async with run_node(*place) as node:
        node.snapshot(*records_of((1,), leader_epoch=3))
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
