"""How this node follows others: one stream to each node that leads partitions it has replicas of.

Where a replica's log ends goes out with whatever else waits by then, as one frame; what comes back is given to the
replicas one after the other. The next frame is read once this one was taken, but for what a stalled log directory
holds up: that may wait beside it.

A stream that breaks is opened anew; then all positions are told again, and nothing of the old one counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.links.errors import LinkError
from barnabas.links.network import Network
from barnabas.links.storage_messages import ReplicaFetched
from barnabas.messages.storage_pb2 import FollowerIdentity, ReplicaPosition, ReplicaPositionsFrame
from barnabas.metadata.image import MetadataImage
from barnabas.storage import limits
from barnabas.storage.replica.followed import PAUSE_SECONDS_MIN, FollowedNode
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas
from barnabas.storage.replica.replication_quota import ReplicationQuota
from barnabas.storage.replication.held_back import HeldBack

log = get_logger("storage.fetchers")


class ReplicaFetchers:
    """Owner of the fetchers, one for each node that is followed."""

    def __init__(self, replicas: Replicas, network: Network) -> None:
        self._replicas = replicas
        self._network = network
        self._fetchers: dict[int, _Fetcher] = {}

    def on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        """Follow nodes to where they are now; for MetadataSubscription.on_change, behind `Replicas`."""
        for fetcher in self._fetchers.values():
            fetcher.on_image(new)

    async def run(self) -> None:
        """Follow whom the replicas follow, until cancelled."""
        followed = self._replicas.followed
        tasks: dict[int, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    followed.changed.clear()
                    for leader in [each for each, node in followed.by_node.items() if not node.replicas]:
                        del followed.by_node[leader]
                        if leader in tasks:
                            del self._fetchers[leader]
                            tasks.pop(leader).cancel()
                    for leader, node in followed.by_node.items():
                        if leader not in tasks:
                            fetcher = _Fetcher(leader, node, self._replicas, self._network)
                            self._fetchers[leader] = fetcher
                            tasks[leader] = group.create_task(fetcher.run(), name="replica fetcher")
                    await followed.changed.wait()
        finally:
            self._fetchers.clear()


class _Target(NamedTuple):
    """What a stream was opened to, and in whose name."""

    address: str
    broker_epoch: int


class _Fetcher:
    """Owner of the stream to one leader."""

    def __init__(self, leader: int, node: FollowedNode, replicas: Replicas, network: Network) -> None:
        self._leader = leader
        self._node = node
        self._replicas = replicas
        self._network = network
        self._target: _Target | None = None
        self._changed = asyncio.Event()
        self._streaming: asyncio.Task[None] | None = None
        self._heard = False
        """Whether something came by the last stream."""
        self._lines = RareLines(log, asyncio.get_running_loop().time)
        self.on_image(replicas.image)

    def on_image(self, image: MetadataImage) -> None:
        """The leader may be elsewhere now, or this node be registered anew: then there has to be another stream."""
        leader, own = image.nodes.get(self._leader), image.nodes.get(self._replicas.node_id)
        target = None if leader is None or own is None else _Target(leader.address, own.node_epoch)
        if target != self._target:
            self._target = target
            self._changed.set()
            if self._streaming is not None:
                self._streaming.cancel()

    async def run(self) -> None:
        """Keep a stream to the leader, until cancelled."""
        pause = PAUSE_SECONDS_MIN
        while True:
            while (target := self._target) is None:
                self._changed.clear()
                await self._changed.wait()
            self._heard = False
            reason = await self._stream_apart(target)
            if target != self._target:
                pause = PAUSE_SECONDS_MIN
                continue
            if self._heard:
                pause = PAUSE_SECONDS_MIN
            self._lines.info(
                "a leader's stream ended", leader=self._leader, address=target.address, reason=reason
            )
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._replicas.followed.pause_seconds_max)

    async def _stream_apart(self, target: _Target) -> str:
        """Follow one stream to its end, in a task that a newer target cancels; returns why it ended."""
        streaming = self._streaming = asyncio.create_task(self._stream(target), name="replica stream")
        try:
            await asyncio.wait([streaming])
        finally:
            self._streaming = None
            streaming.cancel()
            ended = await asyncio.gather(streaming, return_exceptions=True)
        error = ended[0]
        if isinstance(error, LinkError | asyncio.CancelledError):
            return str(error)
        if error is not None:
            log.error("a replica stream failed", leader=self._leader, exc_info=error)
            return repr(error)
        return "the leader ended it"

    async def _stream(self, target: _Target) -> None:
        """Raises LinkError."""
        link = self._network.connect_storage(target.address, reads_for_clients=False)
        stream = _Stream(self._node, self._replicas.followed.quota)
        try:
            stream.begin()
            positions = stream.positions(self._identity(target))
            async with aclosing(link.Replicate(positions)) as frames:
                async for partitions in frames:
                    self._heard = True
                    await self._take(partitions)
        finally:
            stream.end()
            await link.close()

    def _identity(self, target: _Target) -> FollowerIdentity:
        partition_bytes = self._replicas.broker_value("replica.fetch.max.bytes")
        response_bytes = self._replicas.broker_value("replica.fetch.response.max.bytes")
        assert isinstance(partition_bytes, int) and isinstance(response_bytes, int)  # noqa: PT018
        return FollowerIdentity(
            node_id=self._replicas.node_id,
            broker_epoch=target.broker_epoch,
            partition_bytes_max=partition_bytes,
            response_bytes_max=response_bytes,
        )

    async def _take(self, partitions: Sequence[ReplicaFetched]) -> None:
        """Give one frame's answers to the replicas; returns once they are taken."""
        under_way: list[tuple[Replica, asyncio.Future[None]]] = []
        since_turn = 0
        for fields, records in partitions:
            replica = self._node.replicas.get((fields.topic_id, fields.partition))
            if replica is None:
                continue  # it follows another one by now
            done = replica.following.on_answer(fields, records)
            if done is not None:
                under_way.append((replica, done))
            since_turn += limits.ANSWER_COST_BYTES + len(records)
            if since_turn >= limits.ANSWERED_BYTES_AT_ONCE:
                since_turn = 0
                await asyncio.sleep(0)
        while waiting := [
            done for replica, done in under_way if not done.done() and not _is_stalled(replica)
        ]:
            await asyncio.wait(waiting, timeout=limits.STALLED_SECONDS)


class _Stream:
    """Owner of which positions one stream has still to tell. One that is over takes none any more."""

    def __init__(self, node: FollowedNode, quota: ReplicationQuota) -> None:
        self.is_over = False
        self._node = node
        self._quota = quota
        self._held = HeldBack(quota, self._release)
        """Throttled replicas whose positions the leader is not to hear yet."""

    def begin(self) -> None:
        """All that is followed there is to be told anew."""
        self._node.asking.clear()
        for replica in list(self._node.replicas.values()):
            replica.following.on_stream()

    def end(self) -> None:
        """Whoever writes the positions has no more to wait for: nobody cancels that where the other end broke off."""
        self.is_over = True
        self._held.close()
        self._node.wake.set()

    async def positions(self, follower: FollowerIdentity) -> AsyncIterator[ReplicaPositionsFrame]:
        """Frames of the positions that wait; the next is made when it is asked for."""
        node = self._node
        frame = ReplicaPositionsFrame(follower=follower)
        while True:
            frame.positions.extend(self._waiting())
            if frame.positions or frame.HasField("follower"):
                yield frame
                frame = ReplicaPositionsFrame()
            while not node.asking:
                node.wake.clear()
                await node.wake.wait()
                if self.is_over:
                    node.wake.set()  # it may have been another stream's turn
                    return
            await asyncio.sleep(0)  # others that are about to ask go along
            if self.is_over:
                return

    def _waiting(self) -> list[ReplicaPosition]:
        asking = self._node.asking
        positions: list[ReplicaPosition] = []
        throttled = 0
        throttled_max = max(limits.THROTTLED_AT_ONCE, self._quota.bound / limits.THROTTLED_BYTES)
        while asking and len(positions) < limits.POSITIONS_AT_ONCE:
            replica = next(iter(asking))
            del asking[replica]
            if replica.following.is_held_back_by_quota:
                if throttled >= throttled_max or self._held.is_exceeded:
                    self._held.hold(replica)
                    continue
                throttled += 1
            position = replica.following.take_position()
            if position is not None:
                positions.append(
                    ReplicaPosition(
                        topic_id=replica.topic_id,
                        partition=replica.index,
                        disk_refuses=replica.following.disk_refuses,
                        **position._asdict(),
                    )
                )
        return positions

    def _release(self, replica: Replica) -> None:
        if self._node.replicas.get((replica.topic_id, replica.index)) is replica:
            self._node.asking[replica] = None
            self._node.wake.set()


def _is_stalled(replica: Replica) -> bool:
    return replica.lane is not None and replica.lane.is_stalled
