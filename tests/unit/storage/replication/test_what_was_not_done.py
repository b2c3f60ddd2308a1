"""What a follower was to do with its log is not done, or not known to be done when it comes to lead."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from nodes_in_one_process import run_nodes, until
from storage_harness import batch, topic_config

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.storage.replica import following


def hold_up_the_loop(seconds: float) -> None:
    time.sleep(seconds)


async def test_what_there_was_no_room_for_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was held back while the log moved, and the lane was full when its turn came."""
    async with run_nodes(tmp_path, 2) as nodes:
        nodes.elect(1, [1, 2])
        leader, follower = nodes.replica(1), nodes.replica(2)
        leader.appending.append(batch(b"a"), leader.leader_epoch, -1)
        await nodes.until_equal()
        queue, lane = follower.queue, follower.lane
        assert queue is not None
        assert lane is not None
        queue.hold(lambda: None)
        leader.appending.append(batch(b"b"), leader.leader_epoch, 1)
        await until(lambda: follower.following._phase is following.Phase.TAKING)
        monkeypatch.setattr(lane, "waiting_bytes", 2**30)
        queue.go_on(lane)
        monkeypatch.undo()
        await nodes.until_equal()
        assert nodes.end(2) == 2


async def test_a_truncation_that_fails_does_not_acknowledge_what_waits_for_a_sync(
    tmp_path: Path, go: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node leads by then, and has written behind it."""
    async with run_nodes(tmp_path, 2) as nodes:
        nodes.elect(2, [1, 2])
        nodes.replica(2).appending.append(batch(b"committed"), 1, -1)
        await nodes.until_equal()
        await nodes.stop(1, crash=False)
        nodes.replica(2).appending.append(batch(b"not committed"), 1, 1)
        opened: Any = nodes.replica(2).log
        begun: list[int] = []
        flush = opened.flush

        def refused(offset: int) -> int:
            begun.append(offset)
            go.wait(20)
            raise KafkaError(ErrorCode.kafka_storage_error, "no room for the checkpoints")

        def slow_flush() -> int:
            time.sleep(0.2)
            synced: int = flush()
            return synced

        monkeypatch.setattr(opened, "truncate_to", refused)
        monkeypatch.setattr(opened, "flush", slow_flush)
        nodes.elect(1, [1, 2], only=[])
        await nodes.start(1)
        await until(lambda: begun == [1])
        await nodes.stop(1, crash=True)
        nodes.elect(2, [2])
        nodes.running[2].apply(topic_config("events", flush_messages="1"))
        replica = nodes.replica(2)
        waits: list[bool] = []
        synced: list[int] = []

        def on_appended(*_: Any) -> None:
            waits.append(replica.wait(3, -1, lambda *_: synced.append(opened.recovery_point)))

        replica.appending.append_in_lane(batch(b"b"), replica.leader_epoch, -1, on_appended=on_appended)
        go.set()
        hold_up_the_loop(0.2)  # both are done before it hears of the first
        await until(lambda: bool(waits))
        assert waits == [True]
        await until(lambda: synced == [3])
