"""Logs that the disk does not let open: they come back by themselves once it does, and nothing of them is lost."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_harness import StorageHarness, batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.files import SystemFiles
from barnabas.log import partition_log
from barnabas.storage import limits
from barnabas.storage.directories.log_directories import LogDirectories

STORAGE_ERROR = int(ErrorCode.kafka_storage_error)
OUT_OF_ORDER = int(ErrorCode.out_of_order_sequence_number)


class Trouble:
    """A disk that refuses what has to do with some paths, while `code` is set."""

    def __init__(self) -> None:
        self.code = 0
        self.where = ""
        self.refusals = 0
        self.gate: threading.Event | None = None
        """Who is refused waits for it first."""

    def begin(self, code: int, where: str | Path) -> None:
        self.code, self.where = code, str(where)

    def end(self) -> None:
        self.code = 0

    def meet(self, path: str) -> None:
        if self.code and self.where in path:
            self.refusals += 1
            if self.gate is not None:
                assert self.gate.wait(20)
            raise OSError(self.code, os.strerror(self.code))


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trouble]:
    made = Trouble()

    def patch(name: str) -> None:
        real = getattr(SystemFiles, name)

        def call(*args: Any) -> Any:
            made.meet(str(args[-1] if name == "makedirs" else args[0]))
            return real(*args)

        monkeypatch.setattr(SystemFiles, name, staticmethod(call))

    for name in ("open", "listdir", "stat"):
        patch(name)
    yield made
    made.end()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


async def wait_a_moment(node: StorageHarness, seconds: float) -> None:
    """That much later."""
    for _ in range(5):
        await asyncio.sleep(0)
    node.clock.advance(round(seconds * 1000))


async def after(node: StorageHarness, seconds: float) -> None:
    """That much later, with everything done that was due then."""
    for _ in range(round(seconds / limits.REOPEN_SECONDS_MIN)):
        await wait_a_moment(node, limits.REOPEN_SECONDS_MIN)
        for _ in range(5):
            await asyncio.sleep(0)
        await until(lambda: node.replicas.is_idle)


def sent(sequence: int, *, producer_id: int = 7) -> bytes:
    return batch(b"%d" % sequence, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC, errno.EIO])
async def test_a_new_partition_serves_once_the_disk_lets_it(
    tmp_path: Path, trouble: Trouble, code: int
) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        trouble.begin(code, "events-0")
        topic = await node.create_topic()
        assert node.replica(topic).is_offline
        # A producer that nobody knows: what is refused has to come first, also when there is a log.
        assert (await node.append(topic, sent(0))).error_code == STORAGE_ERROR
        assert (await node.fetch(topic)).error_code == STORAGE_ERROR
        trouble.end()
        assert (await node.append(topic, sent(0))).error_code == STORAGE_ERROR, "it is not time yet"
        await after(node, 2)
        assert (await node.append(topic, sent(1))).error_code == OUT_OF_ORDER
        assert [(await node.append(topic, sent(each))).base_offset for each in (0, 1, 0)] == [0, 1, 0]
        fetched = await node.fetch(topic)
        assert (fetched.error_code, fetched.high_watermark) == (0, 2)
        assert not node.replica(topic).is_offline
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        assert (await node.append(topic, sent(2))).base_offset == 2


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("crash", [False, True])
async def test_what_a_log_held_at_the_start_is_served_once_it_opens(
    tmp_path: Path, trouble: Trouble, code: int, crash: bool
) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    async with run_node(data, socket, crash=crash) as node:
        topic = await node.create_topic()
        for sequence in range(3):
            await node.append(topic, sent(sequence))
    trouble.begin(code, ".log")
    async with run_node(data, socket) as node:
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        assert node.replicas.is_settled
        assert (await node.append(topic, sent(3))).error_code == STORAGE_ERROR
        await after(node, 20)
        assert node.replica(topic).is_offline
        trouble.end()
        await after(node, limits.REOPEN_SECONDS_MAX)
        replica = node.replica(topic)
        assert (replica.is_leader, replica.leader_epoch, replica.high_watermark) == (True, 1, 3)
        assert (await node.append(topic, sent(4))).error_code == OUT_OF_ORDER
        duplicate = await node.append(topic, sent(2))
        assert (duplicate.error_code, duplicate.base_offset) == (0, 2)
        assert (await node.append(topic, sent(3))).base_offset == 3
        assert (await node.fetch(topic)).high_watermark == 4


async def test_it_is_tried_at_once_when_the_metadata_speaks_of_it(tmp_path: Path, trouble: Trouble) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        trouble.begin(errno.EMFILE, "events-0")
        topic = await node.create_topic()
        trouble.end()
        await node.create_topic("other")
        assert node.replica(topic).is_offline, "that was about another one"
        node.apply(*topic_records("events", topic, leader_epoch=1))
        await until(lambda: node.replicas.is_idle)
        assert (await node.append(topic, batch(b"a"), leader_epoch=1)).base_offset == 0


async def test_nobody_takes_a_node_for_starting_again_while_it_tries(
    tmp_path: Path, trouble: Trouble
) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        trouble.begin(errno.EMFILE, "events-0")
        topic = await node.create_topic()
        trouble.gate = threading.Event()
        met = trouble.refusals
        await wait_a_moment(node, 2)
        await until(lambda: trouble.refusals > met)
        assert node.replicas.is_settled
        assert not node.replica(topic).is_opening, "nobody is to wait for it"
        node.apply(*topic_records("events", topic, leader_epoch=1))
        await wait_a_moment(node, 60)
        for _ in range(20):
            await asyncio.sleep(0)
        assert trouble.refusals == met + 1, "one opening at a time"
        trouble.gate.set()
        await until(lambda: node.replicas.is_idle)
        trouble.end()
        await after(node, 4)
        assert (await node.append(topic, batch(b"a"))).base_offset == 0


@pytest.mark.parametrize("order", [True, False])
@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_partition_that_goes_is_not_tried_again(
    tmp_path: Path, trouble: Trouble, order: bool, in_thread: bool
) -> None:
    data = tmp_path / "data"
    async with run_node(data, tmp_path / "s") as node:
        (data / "events-0").mkdir()
        trouble.begin(errno.EIO, "events-0/")
        topic = await node.create_topic()
        if in_thread:
            trouble.gate, met = threading.Event(), trouble.refusals
            await wait_a_moment(node, 2)
            await until(lambda: trouble.refusals > met)
        node.snapshot(*([node.deletion(topic)] if order else []))
        if trouble.gate is not None:
            trouble.gate.set()
        trouble.end()
        await until(lambda: node.replicas.is_idle)
        await after(node, 3)
        assert not (data / "events-0").exists()
        assert node.replicas.stray_count == (not order)
        second = uuid.uuid4()
        node.snapshot(*topic_records("events", second), revision=2_000)
        await node.until_open()
        assert (await node.append(second, batch(b"new"))).base_offset == 0


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_stop_does_not_wait_and_loses_nothing(
    tmp_path: Path, trouble: Trouble, in_thread: bool
) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    async with run_node(data, socket) as node:
        topic = await node.create_topic(partitions=2)
        await node.append(topic, sent(0))
        await node.append(topic, sent(0), index=1)
    trouble.begin(errno.EMFILE, "events-0/000")
    async with run_node(data, socket, crash=True) as node:
        node.snapshot(*topic_records("events", topic, 2, leader_epoch=1))
        assert (await node.append(topic, sent(1), index=1)).base_offset == 1
        if in_thread:
            trouble.gate, met = threading.Event(), trouble.refusals
            await wait_a_moment(node, 2)
            await until(lambda: trouble.refusals > met)
            threading.Timer(0.1, trouble.gate.set).start()
    trouble.end()
    async with run_node(data, socket) as node:
        node.snapshot(*topic_records("events", topic, 2, leader_epoch=2))
        assert [node.replica(topic, index).high_watermark for index in (0, 1)] == [1, 2]
        assert (await node.append(topic, sent(1))).base_offset == 1


async def test_a_directory_that_fails_as_a_whole_comes_back_as_a_whole(
    tmp_path: Path, trouble: Trouble, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ill, well = tmp_path / "ill", tmp_path / "well"
    async with run_node(ill, tmp_path / "s", [well]) as node:
        trouble.begin(errno.EIO, f"{ill}/events-")
        topic = await node.create_topic(partitions=80)
        replicas = [node.replica(topic, index) for index in range(80)]
        down = [each for each in replicas if each.is_offline]
        assert len(down) == 40
        for each in replicas:
            code = (await node.append(topic, batch(b"a"), index=each.index)).error_code
            assert code == (STORAGE_ERROR if each in down else 0)
        tries = []
        for _ in range(4):
            met = trouble.refusals
            await after(node, limits.REOPEN_SECONDS_MAX)
            tries.append((trouble.refusals - met) // 40)
        assert tries[0] > tries[3] >= 1, "the pauses grow, and do not go on growing"
        lines = [record for record in caplog.records if "cannot open" in record.message]
        assert 1 <= len(lines) <= 5, "one line now and then"
        trouble.end()
        await after(node, limits.REOPEN_SECONDS_MAX)
        assert [record.message for record in caplog.records].count("no log waits to be opened any more") == 1
        for each in down:
            assert (await node.append(topic, batch(b"a"), index=each.index)).base_offset == 0


async def test_what_was_made_to_fail_for_good_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    async with run_node(data, socket) as node:
        topic = await node.create_topic()
        await node.append(topic, batch(b"a"))
    damaged = data / "events-0" / "leader-epoch-checkpoint"
    damaged.write_text("nonsense\nnonsense\nnonsense\n")
    async with run_node(data, socket) as node:
        node.snapshot(*topic_records("events", topic, leader_epoch=1))
        damaged.unlink()
        await after(node, 100)
        node.apply(*topic_records("events", topic, leader_epoch=2))
        await after(node, 2)
        assert node.replica(topic).is_offline, "somebody has to look at it"
        assert len([record for record in caplog.records if "cannot open" in record.message]) == 1
    async with run_node(data, socket) as node:
        assert node.replica(topic).high_watermark == 1


async def test_a_log_whose_sync_failed_at_its_opening_stays_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, socket = tmp_path / "data", tmp_path / "s"
    async with run_node(data, socket, crash=True) as node:
        topic = await node.create_topic()
        await node.append(topic, batch(b"a"))

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(partition_log, "SYNC_RECOVERED_BYTES", 1)
    with monkeypatch.context() as patch:
        patch.setattr(SystemFiles, "fdatasync", staticmethod(refuse))
        node = StorageHarness(data, socket)
        await node.replicas.recover()
    following = asyncio.create_task(node.replicas.run())
    await after(node, 100)
    assert node.replica(topic).is_offline, "what the disk has may not be what memory shows"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await node.connection.close()
    node.directories.abandon()


async def test_what_fails_in_an_unknown_way_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LogDirectories.open_partition

    def open_partition(self: LogDirectories, path: str, topic: str, *rest: Any, **options: Any) -> Any:
        if topic == "odd":
            raise ValueError("a fault of ours")
        return real(self, path, topic, *rest, **options)

    monkeypatch.setattr(LogDirectories, "open_partition", open_partition)
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        odd = await node.create_topic("odd")
        assert node.replica(odd).is_offline
        topic = await node.create_topic()
        assert (await node.append(topic, batch(b"a"))).error_code == 0
        await after(node, 100)
        assert node.replica(odd).is_offline


async def test_a_stray_partition_is_taken_back_once_the_disk_lets_it(
    tmp_path: Path, trouble: Trouble
) -> None:
    data = tmp_path / "data"
    async with run_node(data, tmp_path / "s", [tmp_path / "other"]) as node:
        topic = await node.create_topic()
        for number in range(3):
            await node.append(topic, batch(b"%d" % number))
        node.snapshot()
        await until(lambda: node.replicas.stray_count == 1 and node.replicas.is_idle)
        trouble.begin(errno.EIO, "events-0")
        node.snapshot(*topic_records("events", topic, leader_epoch=1), revision=2_000)
        await node.until_open()
        assert node.replica(topic).is_offline
        trouble.end()
        await after(node, 2)
        assert node.replicas.is_settled
        assert (node.replica(topic).high_watermark, node.replicas.stray_count) == (3, 0)
        assert (await node.append(topic, batch(b"more"))).base_offset == 3


async def test_one_that_lies_elsewhere_is_found_there_without_the_node_starting_again(
    tmp_path: Path, trouble: Trouble
) -> None:
    async with run_node(tmp_path / "a", tmp_path / "s", [tmp_path / "b"]) as node:
        first = await node.create_topic()
        await node.append(first, batch(b"kept"))
        home = node.replica(first).lane
        assert home is not None
        node.snapshot()
        await until(lambda: node.replicas.stray_count == 1 and node.replicas.is_idle)
        filler = await node.create_topic("filler")
        second = await node.create_topic()
        place = node.replica(second).lane
        assert place is not None
        assert place is not home
        trouble.begin(errno.EIO, f"{place.path}/events-0")
        node.snapshot(
            *topic_records("events", first, leader_epoch=1),
            *topic_records("filler", filler),
            node.deletion(second),
            revision=2_000,
        )
        await node.until_open()
        assert node.replica(first).is_offline
        trouble.end()
        settled = []
        await wait_a_moment(node, 2)
        while node.replica(first).is_offline:
            settled.append(node.replicas.is_settled)
            await asyncio.sleep(0)
        assert all(settled)
        assert (node.replica(first).lane, node.replica(first).high_watermark) == (home, 1)
