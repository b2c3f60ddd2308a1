"""A replica takes back more than it was asked for, and than is committed, since a batch of its log is damaged."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from nodes_in_one_process import run_nodes, until
from storage_harness import batch
from test_nodes_replicate import append, committed

from barnabas.kernel.errors import ErrorCode
from barnabas.log.segments.open_segment import Cut
from barnabas.log.segments.segment import LOG_SUFFIX, Segment
from barnabas.messages.storage_pb2 import ReplicaRecords
from barnabas.records.batch import iterate_headers
from barnabas.storage.replica.following import Phase

LENGTH = 8
"""Where a batch's length begins in its header."""


def damage(path: Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    position, _ = list(iterate_headers(bytes(data)))[number]
    data[position + LENGTH] = 0x20
    path.write_bytes(data)


def hold_cuts(monkeypatch: pytest.MonkeyPatch, go: threading.Event) -> list[Cut]:
    """Segments are cut once `go` is set; those that were to be."""
    begun: list[Cut] = []
    cut_at = Segment.cut_at

    def held(segment: Segment, cut: Cut) -> None:
        begun.append(cut)
        go.wait(20)
        cut_at(segment, cut)

    monkeypatch.setattr(Segment, "cut_at", held)
    return begun


async def test_it_copies_again_what_is_committed(tmp_path: Path) -> None:
    """What its leader does not have begins behind the damage, in a segment of which the end cannot be read."""
    async with run_nodes(tmp_path, 3) as nodes:
        for number in range(4):
            end = append(nodes, b"%d" % number)
        await committed(nodes, end)
        await nodes.until_equal()
        nodes.elect(2, (1, 2, 3), only=(2, 3))  # node 1 has not heard of it
        replica = nodes.replica(1)
        opened = replica.log
        assert opened is not None
        damaged = Path(opened.segments[0].path(LOG_SUFFIX))
        for _ in range(2):
            replica.appending.append(batch(b"lost"), 0, 1)
        opened.roll()
        replica.appending.append(batch(b"lost"), 0, 1)
        opened.flush()
        directories = nodes.running[1].harness.directories
        directories.write_checkpoints(*directories.paths, {("events", 0): replica.high_watermark})
        assert replica.high_watermark == 4
        await nodes.stop(1, crash=True)
        damage(damaged, 3)
        nodes.set_isr((2, 3))
        for number in range(6, 9):
            end = append(nodes, b"%d" % number)
        await committed(nodes, end)
        await nodes.start(1)
        await nodes.until_equal()
        assert nodes.bytes_of(1) == nodes.bytes_of(2)
        assert nodes.replica(1).high_watermark == end
        await nodes.stop(1, crash=True)
        await nodes.start(1)
        await nodes.until_equal()
        assert nodes.bytes_of(1) == nodes.bytes_of(2)


@pytest.mark.parametrize("meanwhile", [False, True], ids=["elected then", "elected meanwhile"])
async def test_it_does_not_lead_before_that(
    tmp_path: Path, go: threading.Event, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    """Others have what was committed, and would take it back."""
    async with run_nodes(tmp_path, 3) as nodes:
        for number in range(6):
            end = append(nodes, b"%d" % number)
        await committed(nodes, end)
        await nodes.until_equal()
        kept = nodes.bytes_of(3)
        nodes.elect(2, (1, 2, 3), only=(2, 3))  # node 1 has not heard of it
        replica = nodes.replica(1)
        opened = replica.log
        assert opened is not None
        replica.appending.append(batch(b"lost"), 0, 1)
        damage(Path(opened.segments[0].path(LOG_SUFFIX)), 4)
        begun = hold_cuts(monkeypatch, go)
        nodes.elect(2, (1, 2, 3))
        await until(lambda: begun)
        await nodes.stop(2, crash=True)
        if meanwhile:
            nodes.elect(1, (1, 3))
            assert replica.is_leader
        go.set()
        await until(lambda: nodes.end(1) == 4)
        if not meanwhile:
            nodes.elect(1, (1, 3))
        await until(lambda: replica.is_offline)
        await asyncio.sleep(0.05)
        assert (nodes.bytes_of(3), nodes.replica(3).high_watermark) == (kept, 6)
        nodes.elect(3, (3,))
        await nodes.start(2)
        await nodes.stop(1, crash=True)
        await nodes.start(1)
        await nodes.until_equal()
        assert {nodes.bytes_of(node) for node in nodes.ids} == {kept}
        nodes.elect(1, (1, 2, 3))
        await committed(nodes, append(nodes, b"next"))


async def test_an_error_of_its_leader_does_not_say_that_it_has_it(
    tmp_path: Path, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No end of its log goes with that."""
    async with run_nodes(tmp_path, 3) as nodes:
        for number in range(6):
            end = append(nodes, b"%d" % number)
        await committed(nodes, end)
        await nodes.until_equal()
        kept = nodes.bytes_of(3)
        nodes.elect(2, (1, 2, 3), only=(2, 3))  # node 1 has not heard of it
        replica = nodes.replica(1)
        opened = replica.log
        assert opened is not None
        replica.appending.append(batch(b"lost"), 0, 1)
        damage(Path(opened.segments[0].path(LOG_SUFFIX)), 4)
        begun = hold_cuts(monkeypatch, go)
        nodes.elect(2, (1, 2, 3))
        await until(lambda: begun)
        await nodes.stop(2, crash=True)
        go.set()
        await until(lambda: nodes.end(1) == 4 and replica.following._phase is Phase.READY)
        position = replica.following.take_position()
        assert position is not None
        code = int(ErrorCode.kafka_storage_error)
        refused = ReplicaRecords(
            leader_epoch=position.leader_epoch, fetch_offset=4, error_code=code, log_end_offset=-1
        )
        replica.following.on_answer(refused, b"")
        nodes.elect(1, (1, 3))
        await until(lambda: replica.is_offline)
        assert nodes.bytes_of(3) == kept


async def test_it_leads_once_it_has_copied_it(tmp_path: Path) -> None:
    async with run_nodes(tmp_path, 2) as nodes:
        for number in range(6):
            end = append(nodes, b"%d" % number)
        await committed(nodes, end)
        await nodes.until_equal()
        nodes.elect(2, (1, 2), only=(2,))
        replica = nodes.replica(1)
        opened = replica.log
        assert opened is not None
        replica.appending.append(batch(b"lost"), 0, 1)
        damage(Path(opened.segments[0].path(LOG_SUFFIX)), 4)
        nodes.elect(2, (1, 2))
        await until(lambda: nodes.end(1) == 6 and not replica.following.lacks_any(0))
        assert nodes.bytes_of(1) == nodes.bytes_of(2)
        nodes.elect(1, (1, 2))
        await committed(nodes, append(nodes, b"next"))
        assert not replica.is_offline


async def test_it_lacks_nothing_that_its_next_leader_does_not_have(
    tmp_path: Path, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the former one had beyond that was not committed."""
    async with run_nodes(tmp_path, 3) as nodes:
        for number in range(6):
            end = append(nodes, b"%d" % number)
        await committed(nodes, end)
        await nodes.until_equal()
        await nodes.stop(3, crash=False)
        for number in range(6, 8):
            append(nodes, b"%d" % number)
        await until(lambda: nodes.end(2) == 8)
        nodes.elect(2, (1, 2, 3), only=(2,))
        replica = nodes.replica(1)
        opened = replica.log
        assert opened is not None
        replica.appending.append(batch(b"lost"), 0, 1)
        damage(Path(opened.segments[0].path(LOG_SUFFIX)), 4)
        begun = hold_cuts(monkeypatch, go)
        nodes.elect(2, (1, 2, 3))
        await until(lambda: begun)
        await nodes.stop(2, crash=True)
        await nodes.start(3)
        nodes.elect(3, (1, 3))
        go.set()
        await nodes.until_equal()
        await nodes.stop(3, crash=True)
        nodes.elect(1, (1,))
        assert not replica.is_offline
        await committed(nodes, append(nodes, b"next"))


async def test_it_lacks_what_its_leader_has_beyond_a_start_that_moved(
    tmp_path: Path, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was left of its log is deleted; it begins anew where its leader does, and has not copied the rest."""
    async with run_nodes(tmp_path, 3) as nodes:
        for number in range(6):
            end = append(nodes, b"%d" % number)
        await committed(nodes, end)
        await nodes.until_equal()
        kept = nodes.bytes_of(3)
        nodes.elect(2, (1, 2, 3), only=(2, 3))  # node 1 has not heard of it
        replica, leader = nodes.replica(1), nodes.replica(2)
        opened, leaders = replica.log, leader.log
        assert opened is not None
        assert leaders is not None
        replica.appending.append(batch(b"lost"), 0, 1)
        damage(Path(opened.segments[0].path(LOG_SUFFIX)), 4)
        leaders.maybe_increment_log_start_offset(5)
        begun: list[int] = []
        begin_anew = opened.truncate_fully_and_start_at

        def held(offset: int) -> int:
            begun.append(offset)
            go.wait(20)
            return begin_anew(offset)

        monkeypatch.setattr(opened, "truncate_fully_and_start_at", held)
        nodes.elect(2, (1, 2, 3))
        await until(lambda: begun, nodes.state)
        await nodes.stop(2, crash=True)
        go.set()
        await until(lambda: nodes.end(1) == 5)
        nodes.elect(1, (1, 3))
        await until(lambda: replica.is_offline)
        await asyncio.sleep(0.05)
        assert (begun, nodes.bytes_of(3)) == ([5], kept)
