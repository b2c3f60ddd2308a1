"""Storage.DescribeLogDirs: the log directories, their file systems, and the partitions in them (KIP-113, KIP-827).

A partition whose log cannot be opened is in no directory here. A directory that does not answer is described as failed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Container, Mapping, Sequence
from functools import partial

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import Files
from barnabas.messages.storage_pb2 import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDirDescription,
    LogDirPartition,
)
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas

UNKNOWN_BYTES = -1


class DescribeLogDirsHandler:
    """Answers DescribeLogDirs."""

    def __init__(self, replicas: Replicas, lanes: Mapping[str, DirectoryLane], files: Files) -> None:
        self._files = files
        self._replicas = replicas
        self._lanes = lanes

    async def handle(self, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        """Every directory, with those of the partitions asked for that are in it."""
        replicas: Sequence[Replica | None]
        if request.all_partitions:
            replicas = list(self._replicas.by_partition.values())
        else:
            asked = dict.fromkeys((item.topic_id, item.partition) for item in request.partitions)
            replicas = [self._replicas.find(topic_id, index) for topic_id, index in asked]
        # As it is at this moment, as the replicas' places are: a move that ends while directories are looked at would
        # else be neither under way nor done.
        asked_for = set(replicas)
        futures = {lane: self._futures(lane, asked_for) for lane in self._lanes.values()}
        described = await asyncio.gather(
            *(
                self._describe(lane, [each for each in replicas if each is not None and each.lane is lane])
                for lane in self._lanes.values()
            )
        )
        cordoned = self._replicas.moves.cordoned
        for lane, description in zip(self._lanes.values(), described, strict=True):
            if not description.error_code:
                description.is_cordoned = lane.path in cordoned
                description.partitions.extend(futures[lane])
        return DescribeLogDirsResponse(log_dirs=described)

    def _futures(self, lane: DirectoryLane, replicas: Container[Replica | None]) -> list[LogDirPartition]:
        return [
            LogDirPartition(
                topic=move.replica.topic,
                partition=move.replica.index,
                size_bytes=move.size_bytes,
                offset_lag=move.lag,
                is_future=True,
            )
            for move in self._replicas.moves.under_way(lane)
            if move.replica in replicas
        ]

    async def _describe(self, lane: DirectoryLane, replicas: Sequence[Replica]) -> LogDirDescription:
        if lane.path in self._replicas.offline_directories:
            return _failed(lane, "it could not be read when the node started")
        try:
            return await lane.run(lane.read, partial(_describe, self._files, lane, replicas))
        except KafkaError as error:
            return _failed(lane, error.message)


def _failed(lane: DirectoryLane, reason: str) -> LogDirDescription:
    lane.lines.error("cannot describe a log directory", log_dir=lane.path, reason=reason)
    return LogDirDescription(
        path=os.path.abspath(lane.path),
        total_bytes=UNKNOWN_BYTES,
        usable_bytes=UNKNOWN_BYTES,
        error_code=ErrorCode.kafka_storage_error,
    )


def _describe(files: Files, lane: DirectoryLane, replicas: Sequence[Replica]) -> LogDirDescription:
    try:
        status = files.statvfs(lane.path)
    except OSError as error:
        return _failed(lane, str(error))
    description = LogDirDescription(
        path=os.path.abspath(lane.path),
        total_bytes=status.f_blocks * status.f_frsize,
        usable_bytes=status.f_bavail * status.f_frsize,
    )
    for replica in replicas:
        opened = replica.log
        assert opened is not None, "only open logs are described"
        description.partitions.add(
            topic=replica.topic,
            partition=replica.index,
            size_bytes=opened.size,
            offset_lag=max(replica.high_watermark - opened.log_end_offset, 0),
        )
    return description
