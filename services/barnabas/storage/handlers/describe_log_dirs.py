"""Storage.DescribeLogDirs: the log directories, their file systems, and the partitions in them (KIP-113, KIP-827).

A partition whose log cannot be opened is in no directory here.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import Executor

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.logs import get_logger
from barnabas.rpc.v1.storage_pb2 import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDirDescription,
)
from barnabas.storage.log_directories import LogDirectories
from barnabas.storage.partition import Partition
from barnabas.storage.replicas import Replicas

UNKNOWN_BYTES = -1

log = get_logger("storage.describe_log_dirs")


class DescribeLogDirsHandler:
    """Answers DescribeLogDirs."""

    def __init__(self, replicas: Replicas, directories: LogDirectories, executor: Executor) -> None:
        self._replicas = replicas
        self._directories = directories
        self._executor = executor

    async def handle(self, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        """Every directory, with those of the partitions asked for that are in it."""
        partitions: Sequence[Partition | None]
        if request.all_partitions:
            partitions = list(self._replicas.partitions.values())
        else:
            asked = dict.fromkeys((item.topic_id, item.partition) for item in request.partitions)
            partitions = [self._replicas.find(topic_id, index) for topic_id, index in asked]
        by_path: dict[str, list[Partition]] = {path: [] for path in self._directories.paths}
        for partition in partitions:
            if partition is not None and partition.log is not None:
                path = self._directories.path_of((partition.topic, partition.index))
                by_path.setdefault(path, []).append(partition)
        loop = asyncio.get_running_loop()
        described = await loop.run_in_executor(self._executor, _describe_all, by_path)
        return DescribeLogDirsResponse(log_dirs=described)


def _describe_all(by_path: dict[str, list[Partition]]) -> list[LogDirDescription]:
    return [_describe(path, partitions) for path, partitions in by_path.items() if path]


def _describe(path: str, partitions: list[Partition]) -> LogDirDescription:
    description = LogDirDescription(
        path=os.path.abspath(path), total_bytes=UNKNOWN_BYTES, usable_bytes=UNKNOWN_BYTES
    )
    try:
        usage = shutil.disk_usage(path)
    except OSError as error:
        log.error("cannot describe a log directory", log_dir=path, reason=str(error))
        description.error_code = ErrorCode.kafka_storage_error
        return description
    description.total_bytes, description.usable_bytes = usage.total, usage.free
    for partition in partitions:
        opened = partition.log
        assert opened is not None, "only open logs are described"
        description.partitions.add(
            topic=partition.topic,
            partition=partition.index,
            size_bytes=opened.size,
            offset_lag=max(partition.high_watermark - opened.log_end_offset, 0),
        )
    return description
