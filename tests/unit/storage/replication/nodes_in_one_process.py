"""Several storage nodes in one process: they replicate over links that a test can cut; it is the controller, too."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import cast

from leader_and_followers import node_record
from storage_harness import StorageHarness, make_servicer

from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.links.network import Network
from barnabas.links.storage_link import StorageService
from barnabas.links.storage_messages import ReplicaFetched
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord, TopicRecord
from barnabas.messages.storage_pb2 import ReplicaPositionsFrame
from barnabas.metadata.image import partition_key, topic_key
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replication.fetchers import ReplicaFetchers


async def until(condition: Callable[[], object], why: Callable[[], object] = lambda: "") -> None:
    try:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(why()) from None


class Cable:
    """The network that all nodes are on."""

    def __init__(self) -> None:
        self.services: dict[str, StorageService] = {}
        self._open: set[CutLink] = set()
        self.frames = 0
        """Frames that came from leaders."""

    def connect_storage(self, address: str, *, reads_for_clients: bool) -> CutLink:
        assert not reads_for_clients
        link = CutLink(self, address)
        self._open.add(link)
        return link

    def cut(self) -> None:
        """Every stream breaks at its next frame, or now if it waits."""
        for link in list(self._open):
            link.cut.set()

    def forget(self, link: CutLink) -> None:
        self._open.discard(link)


class CutLink:
    def __init__(self, cable: Cable, address: str) -> None:
        self._cable = cable
        self._address = address
        self.cut = asyncio.Event()

    async def Replicate(
        self, positions: AsyncIterator[ReplicaPositionsFrame]
    ) -> AsyncGenerator[Sequence[ReplicaFetched]]:
        service = self._cable.services.get(self._address)
        if service is None:
            raise Unreachable("nobody is there")
        cutting = asyncio.create_task(self.cut.wait())
        coming: asyncio.Task[Sequence[ReplicaFetched] | None] | None = None
        async with contextlib.aclosing(service.Replicate(positions)) as frames:
            try:
                while True:
                    coming = asyncio.create_task(_next_of(frames))
                    await asyncio.wait((coming, cutting), return_when=asyncio.FIRST_COMPLETED)
                    if self.cut.is_set():
                        raise OutcomeUnknown("the stream was cut")
                    frame = await coming
                    if frame is None:
                        return
                    self._cable.frames += 1
                    yield frame
            finally:
                cutting.cancel()
                if coming is not None:
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)

    async def close(self) -> None:
        self._cable.forget(self)


async def _next_of(frames: AsyncGenerator[Sequence[ReplicaFetched]]) -> Sequence[ReplicaFetched] | None:
    return await anext(frames, None)


class Node:
    """One running node."""

    def __init__(self, harness: StorageHarness, cable: Cable) -> None:
        self.harness = harness
        self._cable = cable
        self.address = f"node-{harness.node_id}"
        self._fetchers = ReplicaFetchers(harness.replicas, cast(Network, cable))
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.harness.replicas.recover()
        self._tasks = [
            asyncio.create_task(self.harness.replicas.run()),
            asyncio.create_task(self._fetchers.run()),
        ]
        self._cable.services[self.address] = cast(StorageService, make_servicer(self.harness))

    def apply(self, *records: MetadataRecord) -> None:
        old = self.harness.replicas.image
        self.harness.apply(*records)
        self._fetchers.on_image(old, self.harness.replicas.image)

    async def stop(self, *, crash: bool) -> None:
        """In order, or as if it were killed."""
        self._cable.services.pop(self.address, None)
        await self.harness.connection.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for replica in list(self.harness.replicas.by_partition.values()):
            for session in list(replica.followers):
                session.close()
        for lane in self.harness.lanes.values():
            lane.close()
            await asyncio.to_thread(lane.join)
        await asyncio.sleep(0)  # what the lanes have done is told
        if crash:
            self.harness.directories.abandon()
        else:
            self.harness.directories.close(self.harness.replicas.high_watermarks())


class Nodes:
    """Owner of the nodes 1 to n, and of what their controller says."""

    def __init__(self, directory: Path, count: int) -> None:
        self.cable = Cable()
        self.topic_id = uuid.uuid4()
        self.ids = list(range(1, count + 1))
        self.epochs = {node: 10 * node for node in self.ids}
        self.running: dict[int, Node] = {}
        self.record = PartitionRecord(
            topic_id=self.topic_id.bytes, leader=1, replicas=self.ids, isr=self.ids, leader_epoch=0
        )
        self._directory = directory
        self._starts = 0

    async def start(self, node_id: int) -> None:
        self._starts += 1
        directory = self._directory / str(node_id)
        directory.mkdir(exist_ok=True)
        socket = self._directory / f"s{self._starts}"
        node = Node(StorageHarness(directory / "log", socket, node_id=node_id), self.cable)
        await node.start()
        self.running[node_id] = node
        self.epochs[node_id] += 100
        self.tell(self._all_records())
        await node.harness.until_open()

    async def stop(self, node_id: int, *, crash: bool) -> None:
        await self.running.pop(node_id).stop(crash=crash)

    def _all_records(self) -> list[MetadataRecord]:
        nodes = [node_record(each, epoch, address=f"node-{each}") for each, epoch in self.epochs.items()]
        topic = TopicRecord(name="events", topic_id=self.topic_id.bytes, partition_count=1)
        return [*nodes, self._partition(), MetadataRecord(key=topic_key("events"), topic=topic)]

    def _partition(self) -> MetadataRecord:
        record = PartitionRecord()
        record.CopyFrom(self.record)
        return MetadataRecord(key=partition_key(self.topic_id.bytes, 0), partition=record)

    def tell(self, records: Iterable[MetadataRecord]) -> None:
        for node in self.running.values():
            node.apply(*records)

    def elect(self, leader: int, isr: Sequence[int], only: Iterable[int] | None = None) -> None:
        """Another leader epoch, which all hear of, or `only` some."""
        self.record.leader, self.record.isr[:] = leader, isr
        self.record.leader_epoch += 1
        self.record.partition_epoch += 1
        for node in self.running if only is None else only:
            self.running[node].apply(self._partition())

    def set_isr(self, isr: Sequence[int]) -> None:
        self.record.isr[:] = isr
        self.record.partition_epoch += 1
        self.tell([self._partition()])

    def replica(self, node_id: int) -> Replica:
        return self.running[node_id].harness.replica(self.topic_id)

    def end(self, node_id: int) -> int:
        opened = self.replica(node_id).log
        assert opened is not None
        return opened.log_end_offset

    def bytes_of(self, node_id: int) -> bytes:
        opened = self.replica(node_id).log
        assert opened is not None
        found = bytearray()
        for segment in opened.segments:
            found += segment.open().file.read(0, segment.size)
        return bytes(found)

    def state(self) -> object:
        return {
            node: (self.end(node), self.replica(node).high_watermark, self.replica(node).following._phase)
            for node in self.running
        }

    async def until_equal(self) -> None:
        """Wait until all that run have what the leader has, and know that it is committed."""
        leader = self.record.leader

        def are_equal() -> bool:
            end = self.end(leader)
            return all(
                self.end(node) == end and self.replica(node).high_watermark == end for node in self.running
            )

        await until(are_equal, self.state)


@contextlib.asynccontextmanager
async def run_nodes(directory: Path, count: int) -> AsyncIterator[Nodes]:
    nodes = Nodes(directory, count)
    for node_id in nodes.ids:
        await nodes.start(node_id)
    try:
        yield nodes
    finally:
        for node_id in list(nodes.running):
            await nodes.stop(node_id, crash=False)
