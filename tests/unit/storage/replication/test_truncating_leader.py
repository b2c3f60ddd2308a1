"""A node comes to lead while what it was to take back as a follower is being taken back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes_in_one_process import Nodes, run_nodes, until
from storage_harness import batch


@pytest.fixture
def late() -> Iterator[threading.Event]:
    """What holds the other one up."""
    event = threading.Event()
    yield event
    event.set()


def hold_truncations(
    monkeypatch: pytest.MonkeyPatch, nodes: Nodes, node: int, go: threading.Event
) -> list[int]:
    """Those of the node's log wait for `go`; returns the offsets of those that have begun."""
    opened: Any = nodes.replica(node).log
    begun: list[int] = []
    truncate = opened.truncate_to

    def held(offset: int) -> int:
        begun.append(offset)
        go.wait(20)
        end_offset: int = truncate(offset)
        return end_offset

    monkeypatch.setattr(opened, "truncate_to", held)
    return begun


async def test_what_a_follower_had_of_what_is_taken_back_is_not_counted(
    tmp_path: Path, go: threading.Event, late: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so while the leader has it yet. What the leader writes in its place it has to fetch."""
    async with run_nodes(tmp_path, 3) as nodes:
        nodes.elect(2, [1, 2, 3])
        nodes.replica(2).appending.append(batch(b"committed"), 1, -1)
        await nodes.until_equal()
        await nodes.stop(1, crash=False)
        nodes.replica(2).appending.append(batch(b"not committed"), 1, 1)
        await until(lambda: nodes.end(3) == 2)
        begun = hold_truncations(monkeypatch, nodes, 2, go)
        begun_later = hold_truncations(monkeypatch, nodes, 3, late)
        nodes.elect(1, [1, 2, 3], only=[])
        unaware = nodes.running.pop(3)
        await nodes.start(1)
        await until(lambda: begun == [1])
        nodes.running[3] = unaware
        await nodes.stop(1, crash=True)
        nodes.elect(2, [2, 3])
        leader = nodes.replica(2)
        state = leader.leader
        assert state is not None
        await until(lambda: state.replicated(9) == 2)
        go.set()
        await until(lambda: begun_later == [1])
        leader.appending.append(batch(b"in its place"), leader.leader_epoch, -1)
        assert leader.high_watermark == 1, "the follower has something else there"
        late.set()
        await nodes.until_equal()
        assert nodes.bytes_of(3) == nodes.bytes_of(2)


async def begin_in_the_midst_of_a_batch(
    nodes: Nodes, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Node 2, empty, has copied a batch of which the first two records are deleted, and hears of that when it may `go`.
    Its leader, node 1, has gone. Returns node 2's log.
    """
    await nodes.stop(2, crash=False)
    nodes.elect(1, [1, 3])
    first = nodes.replica(1)
    first.appending.append(batch(b"a", b"b", b"c", b"d"), first.leader_epoch, -1)
    await until(lambda: first.high_watermark == nodes.replica(3).high_watermark == 4)
    assert first.log is not None
    first.log.maybe_increment_log_start_offset(2)
    unreachable = nodes.cable.services.pop("node-1")
    nodes.cable.cut()
    await nodes.start(2)
    opened: Any = nodes.replica(2).log
    begun: list[int] = []
    append = opened.append_as_follower

    def held(*arguments: Any, **named: Any) -> Any:
        appended = append(*arguments, **named)
        begun.append(opened.log_end_offset)
        go.wait(20)
        return appended

    monkeypatch.setattr(opened, "append_as_follower", held)
    nodes.cable.services["node-1"] = unreachable
    await until(lambda: begun == [4])
    await nodes.stop(1, crash=True)
    return opened


async def test_who_has_what_a_new_leader_began_with_stays_counted(
    tmp_path: Path, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has all of the batch need say nothing anew."""
    async with run_nodes(tmp_path, 3) as nodes:
        await begin_in_the_midst_of_a_batch(nodes, go, monkeypatch)
        nodes.elect(2, [2, 3])
        state = nodes.replica(2).leader
        assert state is not None
        await until(lambda: state.replicated(9) == 4)
        go.set()
        await until(lambda: nodes.replica(2).high_watermark == 4)


async def test_what_was_deleted_stays_so_at_who_leads_before_it_has_heard_of_it(
    tmp_path: Path, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_nodes(tmp_path, 3) as nodes:
        opened = await begin_in_the_midst_of_a_batch(nodes, go, monkeypatch)
        nodes.elect(2, [2])
        leader = nodes.replica(2)
        assert leader.leader is not None
        leader.leader.set_min_insync_replicas(2)  # its high watermark does not move by itself
        go.set()
        await until(lambda: opened.log_start_offset == 2)
        await until(lambda: leader.high_watermark == 2)
