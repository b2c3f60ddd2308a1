"""A log directory whose disk refuses to write: others lead what is in it, and it comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from storage_harness import NODE_ID, StorageHarness, batch, run_node

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.files import SystemFiles
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.messages.controller_pb2 import ReplicaReport
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.messages.storage_pb2 import AlterReplicaLogDirsRequest, ReplicaLogDir
from barnabas.metadata.image import partition_key
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.replica.refusing_disks import RefusingDisks

REFUSED = int(ErrorCode.kafka_storage_error)
NOT_LEADER = int(ErrorCode.not_leader_or_follower)


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REFUSAL_APART_SECONDS", 0.0)
    monkeypatch.setattr(limits, "QUIET_SECONDS_MIN", 0.0)
    monkeypatch.setattr(limits, "HAND_OVER_REFUSAL_SECONDS_MAX", 0.0)


class Disks:
    """Which log directories refuse to write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refusing: set[str] = set()
        write, pwrite = SegmentFile.write, SystemFiles.pwrite
        paths: dict[int, str] = {}
        open_file = SystemFiles.open

        def opened(path: str, flags: int, mode: int = 0o644, /) -> int:
            fd = open_file(path, flags, mode)
            paths[fd] = path
            return fd

        def refused(self_: SegmentFile, *arguments: Any) -> None:
            self._look_at(self_.path)
            write(self_, *arguments)

        def probed(fd: int, data: Any, position: int, /) -> int:
            self._look_at(paths.get(fd, ""))
            return pwrite(fd, data, position)

        monkeypatch.setattr(SystemFiles, "open", staticmethod(opened))
        monkeypatch.setattr(SystemFiles, "pwrite", staticmethod(probed))
        monkeypatch.setattr(SegmentFile, "write", refused)

    def _look_at(self, path: str) -> None:
        if any(path.startswith(each) for each in self.refusing):
            raise OSError(errno.EIO, "input/output error")


class Controller:
    """Keeps what it was told last of each partition: (offline, refuses to write)."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[bool, bool]] = {}
        self.calls = 0

    async def tell(self, reports: Sequence[ReplicaReport]) -> str:
        self.calls += 1
        self.known |= {each.partition: (each.offline, each.refuses_writes) for each in reports}
        return ""


class Refusing:
    """A node with two log directories, and its controller."""

    def __init__(self, node: StorageHarness, disks: Disks) -> None:
        self.node = node
        self.disks = disks
        self.controller = Controller()
        self.topic = uuid.UUID(int=0)

    async def create(self, partitions: int, *, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
        self.topic = await self.node.create_topic(partitions=partitions, replicas=replicas)

    def lane(self, index: int = 0) -> DirectoryLane:
        lane = self.node.replica(self.topic, index).lane
        assert lane is not None
        return lane

    def in_lane(self, lane: DirectoryLane) -> list[int]:
        return [each.index for each in self.node.replicas.by_partition.values() if each.lane is lane]

    async def refuse(self, index: int = 0, times: int = limits.REFUSALS_MIN) -> None:
        """The disk of partition `index` refuses so many appends."""
        self.disks.refusing.add(self.lane(index).path)
        for _ in range(times):
            assert (await self.append(index)) == REFUSED

    async def append(self, index: int = 0, acks: int = 1) -> int:
        return (await self.node.append(self.topic, batch(b"a"), index=index, acks=acks)).error_code

    def show(self, index: int, leader: int, isr: Sequence[int], offline: Sequence[int] = ()) -> None:
        """The metadata have this of the partition, whose leader is another one than before or not."""
        record, before = PartitionRecord(), self.node.replica(self.topic, index).record
        record.CopyFrom(before)
        record.leader_epoch += leader != before.leader
        record.partition_epoch += 1
        record.leader, record.isr[:], record.offline_replicas[:] = leader, isr, offline
        self.node.apply(MetadataRecord(key=partition_key(self.topic.bytes, index), partition=record))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.node.clock.advance(1_000)
                await asyncio.sleep(0.001)

    async def settle(self) -> None:
        for _ in range(20):
            self.node.clock.advance(1_000)
            await asyncio.sleep(0.001)


@pytest.fixture
async def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Refusing]:
    async with run_node(tmp_path / "a", tmp_path / "s", [tmp_path / "b"]) as node:
        made = Refusing(node, Disks(monkeypatch))
        watching = RefusingDisks(node.replicas, node.lanes, node.clock, node.files)
        tasks = [
            asyncio.create_task(watching.run()),
            asyncio.create_task(node.replicas.reports.run(made.controller.tell)),
        ]
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)


async def test_others_are_to_lead_what_is_in_that_directory_and_nothing_else(refusing: Refusing) -> None:
    await refusing.create(4)
    there = refusing.in_lane(refusing.lane(0))
    assert 0 < len(there) < 4
    await refusing.refuse()
    await refusing.until(lambda: len(refusing.controller.known) == len(there))
    await refusing.settle()
    assert refusing.controller.known == dict.fromkeys(there, (True, True))


async def test_once_or_twice_is_a_hitch(refusing: Refusing) -> None:
    await refusing.create(2)
    await refusing.refuse(times=limits.REFUSALS_MIN - 1)
    refusing.disks.refusing.clear()
    await refusing.settle()
    assert refusing.controller.calls == 0
    assert await refusing.append() == 0


async def test_it_is_told_again_when_the_disk_takes_a_probe(refusing: Refusing) -> None:
    await refusing.create(1)
    await refusing.refuse()
    await refusing.until(lambda: refusing.controller.known == {0: (True, True)})
    refusing.show(0, 2, (2, 3), offline=(NODE_ID,))
    await refusing.settle()
    assert refusing.controller.calls == 1, "the probe is refused"
    refusing.disks.refusing.clear()
    await refusing.until(lambda: refusing.controller.known == {0: (False, False)})
    assert not refusing.lane().is_refusing
    refusing.show(0, 2, (2, 3))
    await refusing.settle()
    assert refusing.controller.calls == 2


async def test_who_has_nobody_else_in_sync_leads_on_and_is_well_as_soon_as_the_disk_is(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HAND_OVER_REFUSAL_SECONDS_MAX", 60.0)
    await refusing.create(1)
    refusing.show(0, NODE_ID, (NODE_ID,))
    await refusing.refuse()
    await refusing.settle()
    assert refusing.controller.calls == 0
    assert refusing.node.replica(refusing.topic).is_leader
    refusing.disks.refusing.clear()
    assert await refusing.append() == 0


async def test_an_only_replica_leads_on(refusing: Refusing) -> None:
    await refusing.create(1, replicas=(NODE_ID,))
    await refusing.refuse(times=3 * limits.REFUSALS_MIN)
    await refusing.settle()
    assert refusing.controller.calls == 0
    refusing.disks.refusing.clear()
    assert await refusing.append(acks=-1) == 0


async def test_once_somebody_else_is_in_sync_that_one_is_to_lead(refusing: Refusing) -> None:
    await refusing.create(1)
    refusing.show(0, NODE_ID, (NODE_ID,))
    await refusing.refuse()
    await refusing.settle()
    assert refusing.controller.calls == 0
    refusing.show(0, NODE_ID, (NODE_ID, 2))
    await refusing.until(lambda: refusing.controller.known == {0: (True, True)})


async def test_one_that_refuses_is_better_than_none(refusing: Refusing) -> None:
    await refusing.create(1)
    await refusing.refuse()
    refusing.show(0, 2, (2,), offline=(NODE_ID,))
    await refusing.settle()
    assert refusing.controller.known == {0: (True, True)}
    refusing.show(0, -1, (), offline=(NODE_ID,))
    await refusing.until(lambda: refusing.controller.known == {0: (False, False)})


async def test_meanwhile_nothing_of_clients_is_taken_that_others_might_not_get(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What small appends fit in was acknowledged under acks=1, and is copied first."""
    monkeypatch.setattr(limits, "HAND_OVER_REFUSAL_SECONDS_MAX", 60.0)
    monkeypatch.setattr(limits, "HAND_OVER_COPY_SECONDS_MAX", 60.0)
    await refusing.create(1)
    assert await refusing.append() == 0
    await refusing.refuse()
    refusing.disks.refusing.clear()
    refused = await refusing.node.append(refusing.topic, batch(b"a"), acks=1)
    assert (refused.error_code, refused.never_appended) == (NOT_LEADER, True)
    refusing.show(0, NODE_ID, (1, 2))  # what else becomes of the partition meanwhile tells nobody
    await refusing.settle()
    assert refusing.controller.calls == 0, "nobody has the first record yet"
    replica = refusing.node.replica(refusing.topic)
    assert replica.leader is not None
    for follower in (2, 3):
        replica.on_replicated(follower, range(1), 1, {}, False)
    await refusing.until(lambda: refusing.controller.known == {0: (True, True)})


async def test_what_is_no_fault_of_the_disk_gives_no_directory_up(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await refusing.create(1)
    opened = refusing.node.replica(refusing.topic).log
    assert opened is not None
    monkeypatch.setattr(opened._trust, "is_closed", True)
    for _ in range(2 * limits.REFUSALS_MIN):
        assert await refusing.append() == REFUSED
    monkeypatch.undo()
    assert not refusing.lane().refusals.is_given_up
    assert not refusing.lane().is_refusing


async def test_a_replica_that_moves_to_a_disk_that_is_well_is_well(refusing: Refusing) -> None:
    await refusing.create(1)
    await refusing.refuse()
    refusing.show(0, 2, (2, 3), offline=(NODE_ID,))
    await refusing.settle()
    refusing.disks.refusing.clear()
    source = refusing.lane()
    source.refusals._last_at = float("inf")  # it stays given up
    target = next(each for each in refusing.node.lanes.values() if each is not source)
    replica = refusing.node.replica(refusing.topic)
    wanted = [ReplicaLogDir(topic="events", partition=0, path=target.path)]
    await refusing.node.connection.AlterReplicaLogDirs(AlterReplicaLogDirsRequest(replicas=wanted))
    await refusing.until(lambda: replica.lane is target)
    await refusing.until(lambda: refusing.controller.known == {0: (False, False)})
