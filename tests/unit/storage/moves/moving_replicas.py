"""What tests of moves ask of a node, and where they look."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path

from storage_harness import NODE_ID, StorageHarness

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import BROKER_RESOURCE
from barnabas.messages import storage_pb2 as pb
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord
from barnabas.metadata.image import config_key


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
