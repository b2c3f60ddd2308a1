"""A log directory that a replica moves to does not answer: who appends waits no longer than is said."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from moving_replicas import (
    VALUE,
    all_values,
    alter,
    fill,
    hanging,
    hanging_in,
    on_disk,
    place,
    until,
    until_idle,
)
from storage_harness import StorageHarness, batch, run_node, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.storage import limits


@pytest.mark.parametrize("method", ["complete", "prepare"])
async def test_appends_do_not_wait_for_a_directory_that_hangs(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(limits, "MOVE_CHANGE_SECONDS_MAX", 0.05)
    topic = await node.create_topic()
    await fill(node, topic, 5)
    with hanging(method) as entered:
        await alter(node, paths[1])
        await until(entered.is_set)
        await fill(node, topic, 3)
        assert place(node, topic) == "a"
    await until_idle(node)
    assert node.replicas.moves.failed_count == 1
    assert on_disk(paths) == {"a": ["events-0"], "b": [], "c": []}
    await alter(node, paths[1])
    await until_idle(node)
    assert await all_values(node, topic) == list(range(8))
    assert place(node, topic) == "b"


@pytest.mark.parametrize("name", ["a", "b"])
async def test_who_hangs_while_the_places_change_takes_the_replica_offline(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Between the renaming of a directory and the sync that makes it durable: nothing may go into either log."""
    monkeypatch.setattr(limits, "MOVE_CHANGE_SECONDS_MAX", 0.05)
    async with run_node(paths[0], tmp_path / "s", paths[1:], crash=True) as node:
        topic = await node.create_topic()
        await fill(node, topic, 5)
        with hanging_in("sync_directory", tmp_path / name) as entered:
            await alter(node, paths[1])
            await until(entered.is_set)
            waiting = [node.send_append(topic, batch(VALUE)) for _ in range(3)]
            for each in waiting:
                answer = await asyncio.wait_for(each, 20)
                assert answer.partitions[0].error_code == ErrorCode.kafka_storage_error
            assert node.replica(topic).is_offline
            assert (await node.append(topic, batch(VALUE))).error_code == ErrorCode.kafka_storage_error
            assert node.replicas.moves._moves, "it is not known yet what becomes of it"
        await until_idle(node)
        assert node.replica(topic).is_offline
        assert await alter(node, paths[2]) == [ErrorCode.kafka_storage_error]
    async with run_node(paths[0], tmp_path / "s", paths[1:]) as node:
        node.snapshot(*topic_records("events", topic))
        await node.until_open()
        assert await all_values(node, topic) == list(range(5))
        await fill(node, topic, 1)
    assert on_disk(paths) == {"a": [], "b": ["events-0"], "c": []}


async def test_what_leaves_meanwhile_is_removed_once_the_directory_answers(
    node: StorageHarness, paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOVE_CHANGE_SECONDS_MAX", 0.05)
    topic = await node.create_topic(replicas=(1, 2))
    await fill(node, topic, 5, acks=1)
    with hanging_in("sync_directory", paths[1]) as entered:
        await alter(node, paths[1])
        await until(lambda: entered.is_set() and node.replica(topic).is_offline)
        node.apply(*topic_records("events", topic, leader=2, leader_epoch=1, replicas=(2, 3)))
        node.apply(*topic_records("events", topic, leader=1, leader_epoch=2, replicas=(1, 2)))
        assert not node.replicas.is_settled
    await node.until_open()
    await fill(node, topic, 3, acks=1)
    opened = node.replica(topic).log
    assert opened is not None
    assert opened.log_end_offset == 3
    await until(lambda: [len(names) for names in on_disk(paths).values()].count(1) == 1)


async def test_appends_go_on_before_all_is_cleared_up(node: StorageHarness, paths: list[Path]) -> None:
    """Once the partition has its new place, durably, nothing more has to be waited for."""
    topic = await node.create_topic()
    await fill(node, topic, 5)
    with hanging_in("remove_facts", paths[1]) as entered:
        await alter(node, paths[1])
        await until(entered.is_set)
        await asyncio.wait_for(fill(node, topic, 3), 20)
        assert place(node, topic) == "b"
    await until_idle(node)
    assert await all_values(node, topic) == list(range(8))
    assert on_disk(paths) == {"a": [], "b": ["events-0"], "c": []}


async def test_a_process_that_was_frozen_itself_gives_the_directory_its_time(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOVE_CHANGE_SECONDS_MAX", 1.0)
    topic = await node.create_topic()
    await fill(node, topic, 5)
    with hanging_in("sync_directory", paths[1]) as entered:
        await alter(node, paths[1])
        await until(entered.is_set)
        threading.Event().wait(2.1)  # nothing goes on meanwhile, neither here nor there
    await until_idle(node)
    assert not node.replica(topic).is_offline
    assert place(node, topic) == "b"
    await fill(node, topic, 1)
