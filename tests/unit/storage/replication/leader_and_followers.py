"""A node that leads, and followers' streams to it by hand."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Self

from storage_harness import StorageHarness, topic_records

from barnabas.links.storage_messages import ReplicaFetched
from barnabas.messages.metadata_pb2 import MetadataRecord, NodeRecord, PartitionRecord
from barnabas.messages.storage_pb2 import FollowerIdentity, ReplicaPosition, ReplicaPositionsFrame
from barnabas.metadata.image import node_key, partition_key
from barnabas.storage.replication.follower_session import ReplicationHandler

EPOCHS = {1: 10, 2: 20, 3: 30}


def node_record(node_id: int, epoch: int, *, fenced: bool = False, address: str = "") -> MetadataRecord:
    record = NodeRecord(
        node_id=node_id, incarnation_id=f"of-{node_id}", node_epoch=epoch, fenced=fenced, address=address
    )
    return MetadataRecord(key=node_key(node_id), node=record)


async def create_topic(node: StorageHarness, **options: int) -> uuid.UUID:
    """A topic that node 1 leads and 2 and 3 follow, all of them in sync."""
    topic_id = uuid.uuid4()
    nodes = [node_record(each, epoch) for each, epoch in EPOCHS.items()]
    node.apply(*nodes)
    node.apply(*topic_records("events", topic_id, replicas=(1, 2, 3), **options))
    await node.until_open()
    return topic_id


def change(node: StorageHarness, topic_id: uuid.UUID, **fields: object) -> None:
    """The controller gives the partition another record."""
    record = PartitionRecord()
    record.CopyFrom(node.replica(topic_id).record)
    record.partition_epoch += 1
    for name, value in fields.items():
        if isinstance(value, tuple):
            getattr(record, name)[:] = value
        else:
            setattr(record, name, value)
    node.apply(MetadataRecord(key=partition_key(topic_id.bytes, 0), partition=record))


class Stream:
    """One follower's stream: positions that a test gives, and what the leader says."""

    def __init__(self, handler: ReplicationHandler, node_id: int, broker_epoch: int, **sizes: int) -> None:
        self._positions: asyncio.Queue[ReplicaPositionsFrame | None] = asyncio.Queue()
        self._heard: asyncio.Queue[Sequence[ReplicaFetched] | None] = asyncio.Queue()
        self._hearing = asyncio.create_task(self._hear_all(handler.follow(self._given())))
        sizes = {"partition_bytes_max": 1 << 20, "response_bytes_max": 10 << 20} | sizes
        follower = FollowerIdentity(node_id=node_id, broker_epoch=broker_epoch, **sizes)
        self._positions.put_nowait(ReplicaPositionsFrame(follower=follower))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._positions.put_nowait(None)
        async with asyncio.timeout(5):
            await self._hearing

    async def _hear_all(self, frames: AsyncGenerator[Sequence[ReplicaFetched]]) -> None:
        async for frame in frames:
            self._heard.put_nowait(frame)
        self._heard.put_nowait(None)

    async def _given(self) -> AsyncIterator[ReplicaPositionsFrame]:
        while (frame := await self._positions.get()) is not None:
            yield frame

    def at(
        self,
        topic_id: uuid.UUID,
        offset: int,
        last_epoch: int = -1,
        leader_epoch: int = 0,
        log_start_offset: int = 0,
        *,
        disk_refuses: bool = False,
    ) -> None:
        """The follower has everything from `log_start_offset` to before `offset`."""
        position = ReplicaPosition(
            topic_id=topic_id.bytes,
            leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            log_start_offset=log_start_offset,
            disk_refuses=disk_refuses,
        )
        self._positions.put_nowait(ReplicaPositionsFrame(positions=[position]))

    async def hear(self) -> Sequence[ReplicaFetched]:
        """The next frame. Raises EOFError when the leader has ended the stream."""
        async with asyncio.timeout(5):
            frame = await self._heard.get()
        if frame is None:
            raise EOFError
        return frame

    async def hear_one(self) -> ReplicaFetched:
        """The next frame about one partition: its last answer, which says what news before it says as well."""
        *news, fetched = await self.hear()
        assert all(not each.records and not each.fields.error_code for each in news)
        return fetched

    async def hears_nothing(self, seconds: float = 0.02) -> bool:
        """Whether the leader has nothing to say."""
        await asyncio.sleep(seconds)
        return self._heard.empty()


def streams_of(node: StorageHarness) -> ReplicationHandler:
    return ReplicationHandler(node.replicas, node.replicas.isr_changes)
