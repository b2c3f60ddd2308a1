"""What DescribeLogDirs says of replicas that move between the directories of a node."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from moving_replicas import alter, described, fill, throttled, until, until_idle
from storage_harness import StorageHarness

from barnabas.kernel.errors import ErrorCode
from barnabas.messages import storage_pb2 as pb
from barnabas.storage.handlers import describe_log_dirs


async def test_a_move_that_ends_while_directories_are_looked_at_is_described_as_it_was(
    node: StorageHarness, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica in its former directory with nothing under way would say that the move was called off."""
    topic = await node.create_topic()
    await fill(node, topic, 5)
    node.apply(throttled(1))
    assert await alter(node, paths[1]) == [ErrorCode.none]
    looks, may_look = threading.Event(), threading.Event()
    describe = describe_log_dirs._describe

    def slowly(files: Any, lane: Any, *rest: Any) -> pb.LogDirDescription:
        if lane.path == str(paths[2]):
            looks.set()
            may_look.wait(20)
        return describe(files, lane, *rest)

    monkeypatch.setattr(describe_log_dirs, "_describe", slowly)
    describing = asyncio.create_task(described(node))
    await until(looks.is_set)
    node.apply(throttled(2**62))
    await until_idle(node)
    may_look.set()
    found = {name: [each[:2] for each in partitions] for name, partitions in (await describing).items()}
    assert found == {"a": [(0, False)], "b": [(0, True)], "c": []}
    assert await described(node) == {"a": [], "b": [(0, False, 0)], "c": []}
