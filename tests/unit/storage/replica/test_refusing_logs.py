"""A log that cannot be written although its disk can: another replica leads it, where one is in sync, and only it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from storage_harness import NODE_ID, StorageHarness, batch, run_node, topic_config

from barnabas.kernel.errors import ErrorCode
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.messages.controller_pb2 import ReplicaReport
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.image import partition_key
from barnabas.storage import limits
from barnabas.storage.replica import refusing_logs
from barnabas.storage.replica.refusing_disks import RefusingDisks
from barnabas.storage.replica.refusing_logs import RefusingLogs

REFUSED = int(ErrorCode.kafka_storage_error)
NOT_LEADER = int(ErrorCode.not_leader_or_follower)
A_THIRD = batch(b"v" * 400_000)
"""Two of them are in a segment, the third needs another one."""
LINE = "cannot append to one partition"
OF_PROCESS = "the process lacks what it needs"


class Refusing:
    """A node with one log directory, in which one log of two cannot be written, and its controller."""

    def __init__(self, node: StorageHarness, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = node
        self.directory = directory
        self.known: dict[int, tuple[bool, bool]] = {}
        """What the controller was told last of each partition: (offline, refuses to write)."""
        self.topic = uuid.UUID(int=0)
        self._monkeypatch = monkeypatch

    async def tell(self, reports: Sequence[ReplicaReport]) -> str:
        self.known |= {each.partition: (each.offline, each.refuses_writes) for each in reports}
        return ""

    async def create(self, replicas: tuple[int, ...] = (1, 2, 3), **options: Any) -> None:
        """Two partitions, each of which needs another segment for its next append."""
        self.node.apply(topic_config("events", segment_bytes="1048576"))
        self.topic = await self.node.create_topic(partitions=2, replicas=replicas, **options)
        for index in (0, 1) if self.node.replica(self.topic).is_leader else ():
            for _ in range(2):
                assert await self.append(index) == 0

    async def append(self, index: int = 0, acks: int = 1, records: bytes = A_THIRD) -> int:
        appended = await self.node.append(self.topic, records, index=index, acks=acks)
        return int(appended.error_code)

    async def refuse(self, times: int = limits.REFUSALS_MIN) -> None:
        for _ in range(times):
            assert await self.append() == REFUSED

    def show(self, leader: int, isr: Sequence[int], offline: Sequence[int] = ()) -> None:
        """The metadata have this of the first partition, whose leader is another one than before or not."""
        record, before = PartitionRecord(), self.node.replica(self.topic).record
        record.CopyFrom(before)
        record.leader_epoch += leader != before.leader
        record.partition_epoch += 1
        record.leader, record.isr[:], record.offline_replicas[:] = leader, isr, offline
        self.node.apply(MetadataRecord(key=partition_key(self.topic.bytes, 0), partition=record))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.node.clock.advance(1_000)
                await asyncio.sleep(0.001)

    async def settle(self) -> None:
        for _ in range(20):
            self.node.clock.advance(1_000)
            await asyncio.sleep(0.001)

    # -- faults, and what mends them ----------------------------------------------------------------------------

    def error(self, number: int) -> Callable[[], None]:
        """Writes to the first partition's files are refused with `number`."""
        write = SegmentFile.write

        def refused(self_: SegmentFile, *arguments: Any) -> None:
            if "/events-0/" in self_.path:
                raise OSError(number, os.strerror(number))
            write(self_, *arguments)

        self._monkeypatch.setattr(SegmentFile, "write", refused)
        return lambda: self._monkeypatch.setattr(SegmentFile, "write", write)

    def gone(self) -> Callable[[], None]:
        """Its directory is renamed away."""
        there, away = self.directory / "events-0", self.directory.parent / "away"
        there.rename(away)
        return lambda: (away.rename(there), None)[1]

    def in_the_way(self) -> Callable[[], None]:
        """A directory stands where its next segment is to be."""
        other = self.directory / "events-0" / f"{2:020}.log"
        other.mkdir()
        return other.rmdir

    def fault(self, kind: str) -> Callable[[], None]:
        match kind:
            case "gone":
                return self.gone()
            case "in the way":
                return self.in_the_way()
        return self.error(getattr(errno, kind))


FAULTS = ["EUCLEAN", "EACCES", "gone", "in the way"]


@pytest.fixture
async def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Refusing]:
    monkeypatch.setattr(limits, "REFUSAL_APART_SECONDS", 0.0)
    monkeypatch.setattr(limits, "QUIET_SECONDS_MIN", 0.0)
    monkeypatch.setattr(limits, "HAND_OVER_REFUSAL_SECONDS_MAX", 0.0)
    async with run_node(tmp_path / "a", tmp_path / "s", crash=True) as node:
        made = Refusing(node, tmp_path / "a", monkeypatch)
        parts = (node.replicas, node.lanes, node.clock, node.files)
        tasks = [
            asyncio.create_task(RefusingDisks(*parts).run()),
            asyncio.create_task(RefusingLogs(*parts).run()),
            asyncio.create_task(node.replicas.reports.run(made.tell)),
        ]
        try:
            yield made
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)


def lines(caplog: pytest.LogCaptureFixture, what: str) -> list[str]:
    said = [(each.getMessage(), getattr(each, "fields", {})) for each in caplog.records]
    return [f"{event} {fields}" for event, fields in said if what in event]


@pytest.mark.parametrize("kind", FAULTS)
async def test_another_one_is_to_lead_it_and_nothing_else(
    refusing: Refusing, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    await refusing.create()
    refusing.fault(kind)
    await refusing.refuse(limits.REFUSALS_MIN - 1)
    await refusing.settle()
    assert refusing.known == {}, "once or twice is a hitch"
    (said,) = lines(caplog, LINE)
    assert "events-0" in said
    await refusing.refuse(1)
    await refusing.until(lambda: refusing.known)
    await refusing.settle()
    assert refusing.known == {0: (True, True)}
    assert await refusing.append(1) == 0, "the directory takes what else is written"
    replica = refusing.node.replica(refusing.topic)
    assert replica.lane is not None
    assert not replica.lane.refusals.is_given_up
    assert not replica.is_offline, "it can be read until another one leads"
    assert len(lines(caplog, "log is given up")) == 1
    assert len(lines(caplog, LINE)) == 1, "one line, however many are refused"


@pytest.mark.parametrize("replicas", [(NODE_ID,), (1, 2, 3)], ids=["only", "only one in sync"])
@pytest.mark.parametrize("kind", FAULTS)
async def test_who_has_nobody_else_leads_on_and_says_so(
    refusing: Refusing, kind: str, replicas: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    await refusing.create(replicas)
    refusing.show(NODE_ID, (NODE_ID,))
    mend = refusing.fault(kind)
    await refusing.refuse(3 * limits.REFUSALS_MIN)
    await refusing.settle()
    assert refusing.known == {}
    assert len(lines(caplog, LINE)) == 1
    read = await refusing.node.fetch(refusing.topic)
    assert (read.error_code, read.records[:8]) == (0, bytes(8))
    mend()
    assert await refusing.append(acks=-1) == 0, "as soon as it can be written"


async def test_once_somebody_else_is_in_sync_that_one_is_to_lead(refusing: Refusing) -> None:
    await refusing.create()
    refusing.show(NODE_ID, (NODE_ID,))
    refusing.gone()
    await refusing.refuse()
    await refusing.settle()
    assert refusing.known == {}
    refusing.show(NODE_ID, (NODE_ID, 2))
    await refusing.until(lambda: refusing.known == {0: (True, True)})


@pytest.mark.parametrize("kind", ["EMFILE", "ENFILE", "ENOMEM", "EINTR"])
async def test_what_the_process_lacks_is_said_and_gives_nothing_up(
    refusing: Refusing, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    await refusing.create()
    mend = refusing.fault(kind)
    await refusing.refuse(2 * limits.REFUSALS_MIN)
    await refusing.settle()
    assert refusing.known == {}
    assert (len(lines(caplog, OF_PROCESS)), len(lines(caplog, LINE))) == (1, 0)
    mend()
    assert await refusing.append() == 0


async def test_only_refusals_in_a_row_count(refusing: Refusing) -> None:
    await refusing.create()
    for _ in range(2):
        mend = refusing.error(errno.EUCLEAN)
        await refusing.refuse(limits.REFUSALS_MIN - 1)
        mend()
        assert await refusing.append() == 0
    await refusing.settle()
    assert refusing.known == {}
    refusing.error(errno.EUCLEAN)
    await refusing.refuse()
    await refusing.until(lambda: refusing.known == {0: (True, True)})


async def test_refusals_that_come_together_count_as_one(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REFUSAL_APART_SECONDS", 60.0)
    await refusing.create()
    refusing.gone()
    await refusing.refuse(2 * limits.REFUSALS_MIN)
    await refusing.settle()
    assert refusing.known == {}


async def test_what_is_closed_or_slow_refuses_nothing(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await refusing.create()
    opened = refusing.node.replica(refusing.topic).log
    assert opened is not None
    monkeypatch.setattr(opened._trust, "is_closed", True)
    await refusing.refuse(2 * limits.REFUSALS_MIN)
    await refusing.settle()
    assert (refusing.known, lines(caplog, LINE)) == ({}, [])
    monkeypatch.undo()


async def test_it_is_taken_back_when_its_directory_can_be_written(refusing: Refusing) -> None:
    await refusing.create()
    mend = refusing.gone()
    await refusing.refuse()
    await refusing.until(lambda: refusing.known == {0: (True, True)})
    refusing.show(2, (2, 3), offline=(NODE_ID,))
    await refusing.settle()
    assert refusing.known == {0: (True, True)}, "it is still gone"
    mend()
    await refusing.until(lambda: refusing.known == {0: (False, False)})
    refusing.show(NODE_ID, (1, 2, 3))
    assert await refusing.append() == 0


async def test_an_empty_directory_in_its_place_is_not_the_log(refusing: Refusing) -> None:
    """A segment begun there would be all that the next start finds, and who led with it would have others delete what
    came before.
    """
    await refusing.create()
    mend, there = refusing.gone(), refusing.directory / "events-0"
    there.mkdir()
    await refusing.refuse()
    await refusing.until(lambda: refusing.known == {0: (True, True)})
    refusing.show(2, (2, 3), offline=(NODE_ID,))
    await refusing.settle()
    assert refusing.known == {0: (True, True)}
    assert list(there.glob("*.log")) == []
    shutil.rmtree(there)
    mend()
    await refusing.until(lambda: refusing.known == {0: (False, False)})


async def test_it_is_given_up_again_and_again(refusing: Refusing) -> None:
    """What a probe does not find: it is found by the next appends, as often as it takes."""
    await refusing.create()
    refusing.in_the_way()
    for _ in range(3):
        await refusing.refuse()
        await refusing.until(lambda: refusing.known == {0: (True, True)})
        refusing.show(2, (2, 3), offline=(NODE_ID,))
        await refusing.until(lambda: refusing.known == {0: (False, False)})
        refusing.show(NODE_ID, (1, 2, 3))


async def test_one_that_refuses_is_better_than_none(refusing: Refusing) -> None:
    await refusing.create()
    refusing.gone()
    await refusing.refuse()
    await refusing.until(lambda: refusing.known == {0: (True, True)})
    refusing.show(2, (2,), offline=(NODE_ID,))
    refusing.show(-1, (), offline=(NODE_ID,))
    await refusing.until(lambda: refusing.known == {0: (False, False)})


async def test_others_get_what_was_acknowledged_before_they_lead(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HAND_OVER_REFUSAL_SECONDS_MAX", 60.0)
    monkeypatch.setattr(limits, "HAND_OVER_COPY_SECONDS_MAX", 60.0)
    await refusing.create()
    mend = refusing.gone()
    await refusing.refuse()
    mend()
    refused = await refusing.node.append(refusing.topic, batch(b"a"), acks=1)
    assert (refused.error_code, refused.never_appended) == (NOT_LEADER, True)
    assert await refusing.append(1) == 0, "the other partition stays"
    refusing.show(NODE_ID, (1, 2))  # what else becomes of the partition meanwhile tells nobody
    await refusing.settle()
    assert refusing.known == {}, "nobody has the first records yet"
    replica = refusing.node.replica(refusing.topic)
    for follower in (2, 3):
        replica.on_replicated(follower, range(2), 1, {}, False)
    await refusing.until(lambda: refusing.known == {0: (True, True)})


async def test_a_topic_that_is_gone_meanwhile_is_told_of_no_more(refusing: Refusing) -> None:
    await refusing.create()
    refusing.gone()
    await refusing.refuse()
    await refusing.until(lambda: refusing.known)
    refusing.known.clear()
    refusing.node.snapshot()
    await refusing.settle()
    assert refusing.known == {}


async def test_a_probe_that_ends_late_says_nothing_of_the_log_since(
    refusing: Refusing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await refusing.create()
    mend = refusing.gone()
    has_begun, may_end = threading.Event(), threading.Event()

    def probe(*_: object) -> None:
        has_begun.set()
        assert may_end.wait(20)

    monkeypatch.setattr(refusing_logs, "_probe", probe)
    await refusing.refuse()
    await refusing.until(has_begun.is_set)
    replica = refusing.node.replica(refusing.topic)
    assert replica.log is not None
    assert replica.lane is not None
    replica.on_moved(replica.log, replica.lane)  # as after a move to another directory and back
    await refusing.refuse()
    await refusing.settle()
    refusing.show(2, (2, 3), offline=(NODE_ID,))
    mend()
    may_end.set()
    await refusing.until(lambda: refusing.known == {0: (False, False)})
    assert not replica.appending.is_handed_over
