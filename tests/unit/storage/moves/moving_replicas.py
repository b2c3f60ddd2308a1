"""What tests of moves ask of a node, and where they look."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from storage_harness import NODE_ID, StorageHarness, batch

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.files import SystemFiles
from barnabas.kernel.kafka_values import BROKER_RESOURCE
from barnabas.log.moving import future_log
from barnabas.log.moving.future_log import FutureLog
from barnabas.messages import storage_pb2 as pb
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord
from barnabas.metadata.image import config_key

VALUE = b"v" * 100


def broker_setting(**values: str) -> MetadataRecord:
    dotted = {name.replace("_", "."): value for name, value in values.items()}
    return MetadataRecord(key=config_key(BROKER_RESOURCE, str(NODE_ID)), config=ConfigRecord(values=dotted))


def throttled(bytes_per_second: int) -> MetadataRecord:
    return broker_setting(replica_alter_log_dirs_io_max_bytes_per_second=str(bytes_per_second))


async def alter(node: StorageHarness, path: Path, *indexes: int, topic: str = "events") -> list[ErrorCode]:
    wanted = [pb.ReplicaLogDir(topic=topic, partition=index, path=str(path)) for index in indexes or (0,)]
    response = await node.connection.AlterReplicaLogDirs(pb.AlterReplicaLogDirsRequest(replicas=wanted))
    return [ErrorCode(code) for code in response.error_codes]


async def described(node: StorageHarness) -> dict[str, list[tuple[int, bool, int]]]:
    """(partition, whether it is a future replica, lag) by directory."""
    response = await node.connection.DescribeLogDirs(pb.DescribeLogDirsRequest(all_partitions=True))
    return {
        Path(each.path).name: [(one.partition, one.is_future, one.offset_lag) for one in each.partitions]
        for each in response.log_dirs
    }


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def until_idle(node: StorageHarness) -> None:
    await until(lambda: not node.replicas.moves._moves)


def place(node: StorageHarness, topic: uuid.UUID, index: int = 0) -> str:
    lane = node.replica(topic, index).lane
    assert lane is not None
    return Path(lane.path).name


def on_disk(paths: list[Path]) -> dict[str, list[str]]:
    return {path.name: sorted(each.name for each in path.iterdir() if each.is_dir()) for path in paths}


async def all_values(node: StorageHarness, topic: uuid.UUID) -> list[int]:
    """The base offsets of all batches that can be read."""
    found, offset = [], 0
    while offset < node.replica(topic).high_watermark:
        answer = await node.fetch(topic, offset)
        assert answer.error_code == 0
        first = int.from_bytes(answer.records[:8])
        found.append(first)
        offset = first + 1
    return found


async def fill(node: StorageHarness, topic: uuid.UUID, count: int, **options: Any) -> None:
    for _ in range(count):
        assert (await node.append(topic, batch(VALUE), **options)).error_code == 0


@contextmanager
def failing_in(path: Path, *calls: str) -> Iterator[None]:
    """Each of these calls fails in the directory."""

    def broken(real: Callable[..., Any]) -> Callable[..., Any]:
        def fail(name: str, *arguments: Any) -> Any:
            if str(name).startswith(f"{path}/"):
                raise OSError(errno.EIO, os.strerror(errno.EIO), name)
            return real(name, *arguments)

        return fail

    with pytest.MonkeyPatch.context() as patch:
        for call in calls:
            patch.setattr(SystemFiles, call, staticmethod(broken(getattr(SystemFiles(), call))))
        yield


@contextmanager
def unconfirmed_in(path: Path) -> Iterator[None]:
    """The directory does not confirm that a name has come or gone there by a change of places."""
    real = future_log.sync_directory

    def sync(files: Any, directory: str) -> None:
        if directory == str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), directory)
        real(files, directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(future_log, "sync_directory", sync)
        yield


@contextmanager
def hanging(name: str, at: int = 1) -> Iterator[threading.Event]:
    """From its call of the number given on, the FutureLog's method of the name hangs until the block ends; gives what
    is set once it does.
    """
    entered, is_over, calls = threading.Event(), threading.Event(), 0
    real = getattr(FutureLog, name)

    def hang(future: FutureLog, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= at:
            entered.set()
            is_over.wait(60)
        return real(future, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FutureLog, name, hang)
        try:
            yield entered
        finally:
            is_over.set()


@contextmanager
def hanging_in(name: str, path: Path) -> Iterator[threading.Event]:
    """The function of `future_log` of the name hangs until the block ends, in the directory and where the partition's
    place is in it; gives what is set once it does.
    """
    entered, is_over = threading.Event(), threading.Event()
    real = getattr(future_log, name)

    def hang(files: Any, directory: str) -> None:
        if directory in (str(path), str(path / "events-0")):
            entered.set()
            is_over.wait(60)
        real(files, directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(future_log, name, hang)
        try:
            yield entered
        finally:
            is_over.set()


def stopped_at_promote(
    monkeypatch: pytest.MonkeyPatch, *, is_done: bool = False
) -> tuple[asyncio.Event, asyncio.Event]:
    """(set when the places are about to change, or with `is_done` have changed; to be set when that may go on)."""
    loop = asyncio.get_running_loop()
    entered, leave = asyncio.Event(), asyncio.Event()
    real = FutureLog.promote

    def promote(future: FutureLog, *arguments: Any) -> Any:
        opened = real(future, *arguments) if is_done else None
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(leave.wait(), loop).result()
        return opened or real(future, *arguments)

    monkeypatch.setattr(FutureLog, "promote", promote)
    return entered, leave
