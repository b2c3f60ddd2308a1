"""A node that follows, and a leader whose every word a test gives."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, cast

from leader_and_followers import node_record
from storage_harness import StorageHarness, run_node, topic_records

from barnabas.links.errors import OutcomeUnknown
from barnabas.links.network import Network
from barnabas.links.storage_messages import ReplicaFetched
from barnabas.messages.storage_pb2 import (
    EpochEndOffset,
    FollowerIdentity,
    ReplicaPosition,
    ReplicaPositionsFrame,
    ReplicaRecords,
)
from barnabas.records.record import encode_batch
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replication.fetchers import ReplicaFetchers

FOLLOWER, LEADER = 1, 2


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


def records(offset: int, count: int = 1, epoch: int = 0, value: bytes = b"v") -> bytes:
    """Batches of one record each."""
    return b"".join(
        encode_batch([(1_700_000_000_000, None, value, ())], base_offset=at, partition_leader_epoch=epoch)
        for at in range(offset, offset + count)
    )


class ScriptedStream:
    """One stream that the follower has opened."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.identity: FollowerIdentity | None = None
        self.frames: list[Sequence[ReplicaPosition]] = []
        self.is_over = False
        self.hearing: asyncio.Task[None] | None = None
        self._said: asyncio.Queue[Sequence[ReplicaFetched] | None] = asyncio.Queue()

    @property
    def heard(self) -> list[ReplicaPosition]:
        return [position for frame in self.frames for position in frame]

    @property
    def last(self) -> tuple[int, int, int, int]:
        """The last position: leader epoch, offset, last fetched epoch, start."""
        position = self.heard[-1]
        return (
            position.leader_epoch,
            position.fetch_offset,
            position.last_fetched_epoch,
            position.log_start_offset,
        )

    async def until_heard(self, *position: int) -> None:
        """Wait until the last position is this: as `last`, or the beginning of it."""
        await until(lambda: self.heard and self.last[: len(position)] == position)

    async def run(
        self, positions: AsyncIterator[ReplicaPositionsFrame]
    ) -> AsyncGenerator[Sequence[ReplicaFetched]]:
        self.hearing = asyncio.create_task(self._hear(positions))
        try:
            while (said := await self._said.get()) is not None:
                yield said
            raise OutcomeUnknown("the stream broke")
        finally:
            # As gRPC does it: who writes positions to a stream that has ended goes on until they end.
            self.is_over = True

    async def _hear(self, positions: AsyncIterator[ReplicaPositionsFrame]) -> None:
        async for frame in positions:
            if frame.HasField("follower"):
                self.identity = frame.follower
            if frame.positions:
                self.frames.append(frame.positions)

    def say(self, *answers: ReplicaFetched) -> None:
        self._said.put_nowait(answers)

    def answer(self, data: bytes = b"", to: ReplicaPosition | None = None, **fields: Any) -> ReplicaFetched:
        """To the last position, if no other is given."""
        position = to or self.heard[-1]
        told: dict[str, Any] = {"high_watermark": 0, "log_start_offset": 0, "log_end_offset": 0} | fields
        parting = told.pop("diverging", None)
        message = ReplicaRecords(
            **{
                "topic_id": position.topic_id,
                "partition": position.partition,
                "leader_epoch": position.leader_epoch,
                "fetch_offset": position.fetch_offset,
            }
            | told
        )
        if parting is not None:
            message.diverging.CopyFrom(EpochEndOffset(leader_epoch=parting[0], end_offset=parting[1]))
        return ReplicaFetched(message, data)

    def tell(self, data: bytes = b"", **fields: Any) -> None:
        """One answer to the last position, in a frame of its own."""
        self.say(self.answer(data, **fields))

    def break_off(self) -> None:
        self._said.put_nowait(None)


class ScriptedNetwork:
    """Where the follower's streams end."""

    def __init__(self) -> None:
        self.streams: list[ScriptedStream] = []

    def connect_storage(self, address: str, *, reads_for_clients: bool) -> ScriptedLink:
        assert not reads_for_clients
        return ScriptedLink(self, address)

    @property
    def open_streams(self) -> list[ScriptedStream]:
        return [each for each in self.streams if not each.is_over]

    async def stream(self, number: int = 1) -> ScriptedStream:
        """The stream with this number, once there is one."""
        await until(lambda: len(self.streams) >= number)
        return self.streams[number - 1]


class ScriptedLink:
    def __init__(self, network: ScriptedNetwork, address: str) -> None:
        self._network = network
        self._address = address

    def Replicate(
        self, positions: AsyncIterator[ReplicaPositionsFrame]
    ) -> AsyncGenerator[Sequence[ReplicaFetched]]:
        stream = ScriptedStream(self._address)
        self._network.streams.append(stream)
        return stream.run(positions)

    async def close(self) -> None:
        pass


class Follower:
    """Node 1, which follows."""

    def __init__(self, node: StorageHarness) -> None:
        self.node = node
        self.network = ScriptedNetwork()
        self.fetchers = ReplicaFetchers(node.replicas, cast(Network, self.network))
        self.apply(node_record(FOLLOWER, 10), node_record(LEADER, 20, address="two"))

    def apply(self, *changes: Any) -> None:
        old = self.node.replicas.image
        self.node.apply(*changes)
        self.fetchers.on_image(old, self.node.replicas.image)

    def lead(self, topic: uuid.UUID, leader: int, epoch: int, partitions: int = 1) -> None:
        """The controller has another leader."""
        self.apply(
            *topic_records("events", topic, partitions, leader=leader, leader_epoch=epoch, replicas=(1, 2, 3))
        )

    async def create(self, epoch: int = 0, partitions: int = 1) -> uuid.UUID:
        """A topic that node 2 leads."""
        topic = uuid.uuid4()
        self.lead(topic, LEADER, epoch, partitions)
        await self.node.until_open()
        return topic

    def replica(self, topic: uuid.UUID, index: int = 0) -> Replica:
        return self.node.replica(topic, index)

    async def until_end(self, topic: uuid.UUID, offset: int) -> None:
        """Wait until the log ends there."""
        opened = self.replica(topic).log
        assert opened is not None
        await until(lambda: opened.log_end_offset == offset)


def epochs(follower: Follower, topic: uuid.UUID) -> tuple[tuple[int, int], ...]:
    opened = follower.replica(topic).log
    assert opened is not None
    return opened.epochs.entries


async def fill(
    follower: Follower, topic: uuid.UUID, stream: ScriptedStream, count: int, epoch: int = 0
) -> None:
    """`count` more records, all of them committed."""
    end = stream.last[1] + count
    stream.tell(records(stream.last[1], count, epoch), high_watermark=end, log_end_offset=end)
    await stream.until_heard(stream.last[0], end)
    assert follower.replica(topic).high_watermark == end


@contextlib.asynccontextmanager
async def run_follower(
    directory: Path, others: Sequence[Path] = (), *, crash: bool = False
) -> AsyncIterator[Follower]:
    """Node 1 on `directory` and `others`."""
    async with run_node(directory, directory.parent / "s", others, crash=crash) as node:
        follower = Follower(node)
        running = asyncio.create_task(follower.fetchers.run())
        try:
            yield follower
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
