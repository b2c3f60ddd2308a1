"""A disk that fails is told in the log at once and now and then, not for each request and partition."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from storage_harness import batch, make_upkeep, run_node

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints import checkpoint_file
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.segment import Segment
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.messages.storage_pb2 import DescribeLogDirsRequest
from barnabas.storage.handlers.describe_log_dirs import DescribeLogDirsHandler
from barnabas.storage.replica.topic_settings import TopicSettings


def refuse(*_: Any, **__: Any) -> Any:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def fail(*_: object) -> int:
    raise KafkaError(ErrorCode.kafka_storage_error, "the disk is gone")


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [record.message for record in caplog.records if record.message == event]


async def test_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic(partitions=2)
        for index in (0, 1):
            await node.append(topic, batch(b"a"), index=index)
        monkeypatch.setattr(SegmentFile, "read", refuse)
        for number in range(40):
            code = (await node.fetch(topic, index=number % 2)).error_code
            assert code == ErrorCode.kafka_storage_error
        monkeypatch.undo()
        assert len(lines(caplog, "cannot read")) == 1


async def test_finished_segments_that_cannot_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic()
        node.replica(topic).update_settings(TopicSettings(LogConfig(segment_bytes=300)))
        flushes = 0

        def sync(_: Segment) -> None:
            nonlocal flushes
            flushes += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(Segment, "sync", sync)
        async with asyncio.timeout(20):
            while flushes < 20:
                assert (await node.append(topic, batch(b"x" * 50))).error_code == 0
        assert not node.replica(topic).is_offline
        assert len(lines(caplog, "a finished segment is not on disk yet")) == 1
        monkeypatch.undo()


async def test_upkeep_checkpoints_and_descriptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic(partitions=20)
        for index in range(20):
            await node.append(topic, batch(b"a"), index=index)
        upkeep = make_upkeep(node)
        describing = DescribeLogDirsHandler(node.replicas, node.lanes, node.files)
        monkeypatch.setattr(checkpoint_file, "write_atomically", refuse)
        monkeypatch.setattr(SystemFiles, "statvfs", staticmethod(refuse))
        monkeypatch.setattr(PartitionLog, "delete_old_segments", fail)
        for _ in range(5):
            await upkeep.write_checkpoints()
            await upkeep.apply_retention()
            await describing.handle(DescribeLogDirsRequest(all_partitions=True))
        monkeypatch.undo()
        assert [record.message for record in caplog.records] == [
            "cannot write checkpoints",
            "upkeep of a partition failed",
            "cannot describe a log directory",
        ]
