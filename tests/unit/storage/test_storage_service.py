"""A whole node from start to stop, against a controller that only streams metadata."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from served_node import NODE_EPOCH, TOPIC, append_one, controller, run_until_ready
from storage_harness import CLUSTER_ID, batch

from barnabas.kernel import service as kernel_service
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.service import ServiceContext, StartError, system_environment
from barnabas.log.checkpoints.clean_shutdown import FILE_NAME as CLEAN_SHUTDOWN
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.messages.storage_pb2 import AppendRequest, PartitionAppend
from barnabas.rpc.network import GrpcNetwork
from barnabas.storage import limits, service
from barnabas.storage.config import StorageConfig
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.replica.replicas import Replicas
from barnabas.storage.service import serve


async def test_start_serve_stop_and_start_again(config: StorageConfig, tmp_path: Path) -> None:
    async with controller(config.controllers[0]) as fake:
        for expected_offset in (0, 1):
            context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
            running = await run_until_ready(config, context)
            assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()
            assert await append_one(config.listen_address) == expected_offset
            context.stopping.set()
            await running
            assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()
    first, second = fake.registered
    assert (first.node.address, first.node.rack) == (config.listen_address, "east")
    assert (first.cluster_id, second.cluster_id) == (CLUSTER_ID, CLUSTER_ID)
    assert first.node.incarnation_id != second.node.incarnation_id
    assert not first.node.HasField("previous_node_epoch")
    assert second.node.previous_node_epoch == NODE_EPOCH + 1
    assert len(first.node.log_directory_ids) == 1
    assert second.node.log_directory_ids == first.node.log_directory_ids


async def test_a_directory_that_held_nothing_at_the_stop_is_named_at_the_next_start(
    config: StorageConfig, tmp_path: Path
) -> None:
    async with controller(config.controllers[0]) as fake:
        more = str(tmp_path / "more")
        both = replace(config, log_dirs=(*config.log_dirs, more), broker_settings={"cordoned.log.dirs": more})
        for each in (both, config, config):
            context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
            running = await run_until_ready(each, context)
            await append_one(config.listen_address)
            context.stopping.set()
            await running
    first, second, third = (each.node for each in fake.registered)
    (taken_away,) = set(first.log_directory_ids) - set(second.log_directory_ids)
    assert second.empty_log_directory_ids == [taken_away]
    assert (first.offline_log_dirs, second.offline_log_dirs) == ([], [])
    assert third.empty_log_directory_ids == [taken_away], "nobody says that the controller has heard of it"


async def test_a_process_that_the_controller_never_confirmed_leaves_the_epoch_that_it_found(
    config: StorageConfig,
) -> None:
    """If it was registered, that was under another epoch, which the controller will miss."""
    async with controller(config.controllers[0]) as fake:
        for silent in (False, True, False):
            fake.silent = silent
            before = len(fake.registered)
            context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
            running = asyncio.ensure_future(serve(config, context))
            async with asyncio.timeout(20):
                while len(fake.registered) == before or not (silent or context.health.is_ready()):
                    assert not running.done()
                    await asyncio.sleep(0)
            context.stopping.set()
            await running
    epochs = [
        each.node.previous_node_epoch if each.node.HasField("previous_node_epoch") else None
        for each in fake.registered
    ]
    assert epochs == [None, NODE_EPOCH + 1, NODE_EPOCH + 1]


async def test_a_node_is_not_ready_while_it_recovers_whoever_else_is_in_its_process(
    config: StorageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovering, go_on = asyncio.Event(), asyncio.Event()

    async def recover(_: Replicas) -> None:
        recovering.set()
        await go_on.wait()

    monkeypatch.setattr(Replicas, "recover", recover)
    async with controller(config.controllers[0]):
        context = ServiceContext("broker", system_environment(network=GrpcNetwork()))
        context.health.add_condition("the gateway beside it is ready", lambda: True)
        running = asyncio.ensure_future(serve(config, context))
        async with asyncio.timeout(20):
            while not recovering.is_set():
                assert not running.done()
                await asyncio.sleep(0)
        assert context.health.unmet() == ["logs are recovered"]
        go_on.set()
        async with asyncio.timeout(20):
            while not context.health.is_ready():
                await asyncio.sleep(0)
        context.stopping.set()
        await running


async def test_a_node_is_not_ready_before_it_is_in_sync(config: StorageConfig) -> None:
    async with controller(config.controllers[0], ahead=True) as fake:
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = asyncio.ensure_future(serve(config, context))
        async with asyncio.timeout(20):
            while context.health.unmet() != ["in sync with the leaders that it follows"]:
                assert not running.done()
                await asyncio.sleep(0)
        fake.goes_on.set()
        async with asyncio.timeout(20):
            while not context.health.is_ready():
                await asyncio.sleep(0)
        context.stopping.set()
        await running


@pytest.mark.parametrize("step", ["find_cluster_id", "open", "recover"])
async def test_a_disk_that_never_answers_does_not_keep_a_starting_node_from_stopping(
    config: StorageConfig, monkeypatch: pytest.MonkeyPatch, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    never, reached = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> None:
        reached.set()
        never.wait()

    target = {"find_cluster_id": service, "open": LogDirectories, "recover": LogDirectories}[step]
    name = {"recover": "open_partition"}.get(step, step)
    async with controller(config.controllers[0]):
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        if step == "recover":
            running = await run_until_ready(config, context)
            context.stopping.set()
            await running
            context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        monkeypatch.setattr(target, name, hang)
        monkeypatch.setattr(limits, "STARTING_SECONDS_MAX", 0.01)
        running = asyncio.ensure_future(serve(config, context))
        async with asyncio.timeout(20):
            while not reached.is_set():
                assert not running.done()
                await asyncio.sleep(0)
            context.stopping.set()
            await running
    never.set()
    assert "the next start recovers them" in caplog.text


async def test_a_directory_in_use_stops_the_second_node(config: StorageConfig) -> None:
    async with controller(config.controllers[0]):
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context)
        with pytest.raises(StartError, match="in use by another process"):
            await serve(config, ServiceContext("storage", system_environment(network=GrpcNetwork())))
        assert await append_one(config.listen_address) == 0
        context.stopping.set()
        await running


async def test_a_refused_registration_is_a_start_error(config: StorageConfig) -> None:
    async with controller(config.controllers[0], refuse=True):
        with pytest.raises(StartError, match="belongs to another cluster"):
            await serve(config, ServiceContext("storage", system_environment(network=GrpcNetwork())))


async def test_a_stop_before_any_controller_answers_is_quiet(config: StorageConfig, tmp_path: Path) -> None:
    context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
    context.stopping.set()
    await serve(config, context)
    assert not (tmp_path / "data").exists()


async def test_an_unreadable_directory_is_a_start_error(config: StorageConfig, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=99\n")
    with pytest.raises(StartError, match=r"meta\.properties"):
        await serve(config, ServiceContext("storage", system_environment(network=GrpcNetwork())))
    assert [each.name for each in (tmp_path / "data").iterdir()] == ["meta.properties"]


async def test_the_end_of_a_directory_takes_no_longer_than_is_left_of_the_stop(
    config: StorageConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    never = threading.Event()
    monkeypatch.setattr(LogDirectories, "close_one", lambda *_, **__: never.wait())
    monkeypatch.setattr(kernel_service, "STOP_SECONDS_MAX", kernel_service.STOP_MARGIN_SECONDS + 0.1)
    async with controller(config.controllers[0]):
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context)
        context.stopping.set()
        async with asyncio.timeout(limits.CLOSING_SECONDS_MAX / 2):
            await running
    never.set()
    assert "a log directory does not answer" in caplog.text


def append_request(value: bytes) -> AppendRequest:
    item = PartitionAppend(topic_id=TOPIC.bytes, partition=1, leader_epoch=0, records=batch(value))
    return AppendRequest(partitions=[item], acks=-1, timeout_ms=60_000)


@pytest.fixture
def two_directories(config: StorageConfig, tmp_path: Path) -> StorageConfig:
    """Where appends are never on the event loop."""
    return replace(config, log_dirs=(str(tmp_path / "a"), str(tmp_path / "b")))


class SlowDisk:
    """Holds appends up from `hold` to `go_on`, in the writer thread of their directory, which is one of several."""

    def __init__(self) -> None:
        self.begun, self.held, self.go_on = threading.Event(), False, threading.Event()

    def hold(self) -> None:
        self.held = True


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    made, write = SlowDisk(), SegmentFile.write

    def held(file: SegmentFile, *args: Any) -> None:
        if made.held:
            made.begun.set()
            assert made.go_on.wait(20)
        write(file, *args)

    monkeypatch.setattr(SegmentFile, "write", held)
    yield made
    made.go_on.set()


async def test_what_was_taken_is_answered_before_the_node_goes_and_nothing_else_is(
    two_directories: StorageConfig, disk: SlowDisk
) -> None:
    config = two_directories
    async with controller(config.controllers[0]):
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context)
        connection = GrpcNetwork().connect_storage(config.listen_address)
        assert not (await connection.appends.send(append_request(b"a"))).partitions[0].error_code
        disk.hold()
        taken = [connection.appends.send(append_request(value)) for value in (b"b", b"c")]
        await asyncio.to_thread(disk.begun.wait)
        context.stopping.set()
        late = await connection.appends.send(append_request(b"d"))
        assert [each.error_code for each in late.partitions] == [ErrorCode.not_leader_or_follower]
        assert not any(each.done() for each in taken)
        disk.go_on.set()
        results = [(await each).partitions[0] for each in taken]
        assert [(each.error_code, each.base_offset) for each in results] == [(0, 1), (0, 2)]
        await running
        await connection.close()
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context)
        assert await append_one(config.listen_address) == 3, "what was refused is not in the log"
        context.stopping.set()
        await running


async def test_a_node_does_not_wait_for_ever_for_a_disk_to_answer_what_was_taken(
    two_directories: StorageConfig, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = two_directories
    monkeypatch.setattr(limits, "STOP_ANSWERS_SECONDS_MAX", 0.01)
    async with controller(config.controllers[0]):
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context)
        connection = GrpcNetwork().connect_storage(config.listen_address)
        assert not (await connection.appends.send(append_request(b"a"))).partitions[0].error_code
        disk.hold()
        taken = [connection.appends.send(append_request(value)) for value in (b"b", b"c")]
        await asyncio.to_thread(disk.begun.wait)
        context.stopping.set()
        answers = [(await each).partitions[0].error_code for each in taken]
        assert answers == [ErrorCode.request_timed_out] * 2
        disk.go_on.set()
        await running
        await connection.close()
