"""A follower's part changes, or its disk holds it up, while something of it is under way."""

from __future__ import annotations

import asyncio
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from leader_and_followers import node_record
from scripted_leader import FOLLOWER, LEADER, Follower, epochs, records, run_follower, until
from storage_harness import run_node, topic_config, topic_records

from barnabas.storage.replica.following import Phase


def hold(
    monkeypatch: pytest.MonkeyPatch, follower: Follower, topic: uuid.UUID, name: str, go: threading.Event
) -> list[str]:
    """Calls of this method of the log wait for `go`; returns those that have begun."""
    opened: Any = follower.replica(topic).log
    begun: list[str] = []
    method = getattr(opened, name)

    def held(*args: Any, **options: Any) -> Any:
        begun.append(name)
        go.wait(20)
        return method(*args, **options)

    monkeypatch.setattr(opened, name, held)
    return begun


async def test_another_leader_hears_of_the_log_behind_an_append_under_way(
    threaded: Follower, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = threaded
    topic = await follower.create()
    first = await follower.network.stream(1)
    await first.until_heard(0, 0)
    begun = hold(monkeypatch, follower, topic, "append_as_follower", go)
    first.tell(records(0, 3), high_watermark=3)
    await until(lambda: begun)
    follower.apply(node_record(3, 5, address="three"))
    follower.lead(topic, 3, 1)
    second = await follower.network.stream(2)
    await asyncio.sleep(0.02)
    assert second.heard == []
    go.set()
    await second.until_heard(1, 3, 0)
    # That it is committed was the word of another leader.
    assert follower.replica(topic).high_watermark == 0
    second.tell(diverging=(0, 1))
    await second.until_heard(1, 1)


async def test_a_new_leader_begins_behind_an_append_under_way(
    threaded: Follower, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = threaded
    topic = await follower.create()
    stream = await follower.network.stream(1)
    await stream.until_heard(0, 0)
    begun = hold(monkeypatch, follower, topic, "append_as_follower", go)
    stream.tell(records(0, 3), high_watermark=3)
    await until(lambda: begun)
    follower.lead(topic, FOLLOWER, 1)
    replica = follower.replica(topic)
    assert replica.is_leader
    go.set()
    await until(lambda: epochs(follower, topic) == ((0, 0), (1, 3)))


async def test_a_truncation_under_way_is_no_part_of_what_a_new_leader_shows(
    threaded: Follower, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads alone: what is being taken back must not become committed."""
    follower = threaded
    topic = await follower.create(epoch=1)
    stream = await follower.network.stream(1)
    await stream.until_heard(1, 0)
    stream.tell(records(0, 6), high_watermark=2)
    await stream.until_heard(1, 6)
    begun = hold(monkeypatch, follower, topic, "truncate_to", go)
    stream.tell(diverging=(0, 4))
    await until(lambda: begun)
    records_of = topic_records_alone(topic, epoch=2)
    follower.apply(*records_of)
    replica = follower.replica(topic)
    assert replica.is_leader
    assert replica.high_watermark == 4
    go.set()
    await until(lambda: epochs(follower, topic) == ((0, 0), (2, 4)))
    assert replica.high_watermark == 4
    assert replica.leader is not None
    assert replica.leader.epoch_start == 4


def topic_records_alone(topic: uuid.UUID, epoch: int) -> list[Any]:
    return topic_records("events", topic, leader=FOLLOWER, leader_epoch=epoch, replicas=(FOLLOWER,))


async def test_a_truncation_that_has_not_begun_is_taken_back(
    threaded: Follower, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = threaded
    topic = await follower.create(epoch=1)
    stream = await follower.network.stream(1)
    await stream.until_heard(1, 0)
    stream.tell(records(0, 6), high_watermark=6)
    await stream.until_heard(1, 6)
    replica = follower.replica(topic)
    assert replica.lane is not None
    replica.lane.submit(lambda: go.wait(20), lambda *_: None)
    begun = hold(monkeypatch, follower, topic, "truncate_to", go)
    stream.tell(diverging=(0, 4))
    await until(lambda: replica.following._phase is Phase.TAKING)
    follower.lead(topic, LEADER, 2)
    go.set()
    await stream.until_heard(2, 6, 0)
    assert begun == []
    assert replica.high_watermark <= 6
    stream.tell(high_watermark=6)
    await until(lambda: replica.high_watermark == 6)


async def test_a_deleted_partition_ends_what_is_under_way(
    threaded: Follower, go: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    follower = threaded
    topic = await follower.create()
    stream = await follower.network.stream(1)
    await stream.until_heard(0, 0)
    begun = hold(monkeypatch, follower, topic, "append_as_follower", go)
    stream.tell(records(0, 3), high_watermark=3)
    await until(lambda: begun)
    follower.node.snapshot(follower.node.deletion(topic))
    await until(lambda: stream.is_over)
    go.set()
    await until(lambda: follower.node.replicas.is_idle)
    assert "ERROR" not in {record.levelname for record in caplog.records}


async def test_a_stalled_directory_holds_up_no_other(
    threaded: Follower, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = threaded
    topic = await follower.create(partitions=4)
    stream = await follower.network.stream(1)
    await until(lambda: len(stream.heard) == 4)
    by_lane: dict[Any, list[int]] = {}
    for index in range(4):
        by_lane.setdefault(follower.replica(topic, index).lane, []).append(index)
    (stalled, held), (_, others) = by_lane.items()
    stalled.submit(lambda: go.wait(20), lambda *_: None)
    positions = {position.partition: position for position in stream.heard}
    for turn in range(3):
        stream.say(
            *(stream.answer(records(0), to=positions[index]) for index in held),
            *(stream.answer(records(turn), to=positions[index]) for index in others),
        )
        await until(lambda turn=turn: len(stream.heard) == 4 + 2 * (turn + 1))  # type: ignore[misc]
        positions |= {position.partition: position for position in stream.heard}
    assert {follower.replica(topic, index).high_watermark for index in held} == {0}
    go.set()
    await until(lambda: len(stream.heard) == 12)


async def test_a_position_says_what_is_durable_where_that_is_asked_for(
    follower: Follower, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await follower.create()
    follower.apply(topic_config("events", flush_messages="1"))
    stream = await follower.network.stream(1)
    await stream.until_heard(0, 0)
    begun = hold(monkeypatch, follower, topic, "flush", go)
    stream.tell(records(0, 3), high_watermark=2)
    await until(lambda: begun)
    await asyncio.sleep(0.02)
    assert len(stream.heard) == 1
    assert follower.replica(topic).high_watermark == 2
    go.set()
    await stream.until_heard(0, 3)


async def test_a_stop_lets_a_truncation_under_way_finish(
    tmp_path: Path, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_follower(tmp_path / "a") as follower:
        topic = await follower.create(epoch=1)
        stream = await follower.network.stream(1)
        await stream.until_heard(1, 0)
        stream.tell(records(0, 6), high_watermark=2)
        await stream.until_heard(1, 6)
        begun = hold(monkeypatch, follower, topic, "truncate_to", go)
        stream.tell(diverging=(0, 4))
        await until(lambda: begun)
        asyncio.get_running_loop().run_in_executor(None, lambda: go.wait(0.05) or go.set())
    async with run_node(tmp_path / "a", tmp_path / "s") as node:
        opened = node.replica(topic).log
        assert opened is not None
        assert (opened.log_end_offset, opened.recovery_report.segments_checked) == (4, 0)
