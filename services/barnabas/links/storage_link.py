"""What others may ask of one storage node, however it is reached, and what a node answers.

`rpc.storage_streams.StorageConnection` reaches it over gRPC, `host.local_node.LocalNode` in the same process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.links.storage_messages import AppendBatches, FetchedResult, PartitionFetched, ReplicaFetched
    from barnabas.messages.storage_pb2 import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        AppendRequest,
        AppendResult,
        CoordinatorIdentity,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        DescribeProducersRequest,
        DescribeProducersResponse,
        FetchRequest,
        ListOffsetsRequest,
        ListOffsetsResponse,
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        PartitionAppend,
        ReplicaPositionsFrame,
    )


class Requests(Protocol):
    """Requests of one kind: they reach the node in the order in which they are sent; results come in any order.

    `send` sends a request (its correlation id is set there), or queues it, and returns the future of its result.
    `size_bytes` is about how large it is; it counts against the limit of what may be unanswered. The future fails with
    `Unreachable` or `OutcomeUnknown`, after `timeout_seconds` at the latest; it may be cancelled, and the result is
    then dropped.
    """

    is_silent: bool
    """Whether a request was given up and nothing has come from the node since: it is not worth waiting for."""

    @property
    def waiting_requests(self) -> int:
        """Requests without a result, those that were given up among them."""
        ...


class Appends(Requests, Protocol):
    """Record batches for partitions that the node leads."""

    @property
    def is_full(self) -> bool:
        """Whether as much is unanswered as the node may have: no more is to be read of those who write to it."""
        ...

    def has_room(self, size_bytes: int) -> bool:
        """Whether `send` takes a request of this size, or refuses it."""
        ...

    def send(
        self,
        request: AppendRequest | AppendBatches,
        size_bytes: int = 0,
        timeout_seconds: float | None = None,
    ) -> asyncio.Future[AppendResult]: ...


class Fetches(Requests, Protocol):
    """Reads, which may wait for data and whose wait can be ended."""

    def send(
        self, request: FetchRequest, size_bytes: int = 0, timeout_seconds: float | None = None
    ) -> asyncio.Future[FetchedResult]: ...

    def hurry(self, request: FetchRequest) -> None:
        """Ask for the result of a request sent earlier, with whatever the node has by now."""
        ...

    def give_up(self, request: FetchRequest) -> None:
        """The caller goes on without the result, which is dropped when it comes after all."""
        ...

    def withdraw(self, request: FetchRequest) -> None:
        """Nobody waits for the request any more: the node is to forget it, and gives no result."""
        ...


class AnswerRoom(Protocol):
    """What bounds the bytes that are read for clients, for all links of a gateway together."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be read now."""
        ...

    def on_read(self, size_bytes: int) -> None:
        """So much was read."""
        ...

    async def wait_for_room(self) -> None:
        """Return once something may be read."""
        ...


class NodeHere(Protocol):
    """What a coordinator may ask of the storage node in its own process beyond what it asks of any."""

    def write_at_once(self, coordinator: CoordinatorIdentity, item: PartitionAppend) -> int | None:
        """Append the coordinator's batches where they can be acknowledged, under acks=all, before this returns; the
        offset of the first.

        None where they cannot: the node does not lead, has to wait for its disk or for replicas, or refuses. Nothing
        has changed then, but by a fault of ours. Who asks then sends a request, whose result says why.
        """
        ...


class StorageLink(Protocol):
    """One storage node. Calls have their names in storage.proto, and fail with a `LinkError`, after `timeout` seconds
    at the latest.
    """

    @property
    def here(self) -> NodeHere | None:
        """The node, where it is the one in this process."""
        ...

    @property
    def address(self) -> str: ...
    @property
    def appends(self) -> Appends: ...
    @property
    def fetches(self) -> Fetches: ...

    def ListOffsets(
        self, request: ListOffsetsRequest, *, timeout: float | None = None
    ) -> Awaitable[ListOffsetsResponse]: ...

    def OffsetForLeaderEpoch(
        self, request: OffsetForLeaderEpochRequest, *, timeout: float | None = None
    ) -> Awaitable[OffsetForLeaderEpochResponse]: ...

    def DeleteRecords(
        self, request: DeleteRecordsRequest, *, timeout: float | None = None
    ) -> Awaitable[DeleteRecordsResponse]: ...

    def AlterReplicaLogDirs(
        self, request: AlterReplicaLogDirsRequest, *, timeout: float | None = None
    ) -> Awaitable[AlterReplicaLogDirsResponse]: ...

    def DescribeLogDirs(
        self, request: DescribeLogDirsRequest, *, timeout: float | None = None
    ) -> Awaitable[DescribeLogDirsResponse]: ...

    def DescribeProducers(
        self, request: DescribeProducersRequest, *, timeout: float | None = None
    ) -> Awaitable[DescribeProducersResponse]: ...

    async def close(self) -> None:
        """What waits fails."""
        ...


class RemoteStorageLink(StorageLink, Protocol):
    """A storage node that may be another one than that which asks: it can be followed, too."""

    def Replicate(
        self, positions: AsyncIterator[ReplicaPositionsFrame]
    ) -> AsyncGenerator[Sequence[ReplicaFetched]]:
        """Follow what is appended at the node, from the `positions` that are given; they end with the generator.

        It ends when the node ends the stream, and fails with a `LinkError` when that breaks.
        """
        ...


class TakenFetches(Protocol):
    """The fetches of one peer, at the node that answers them; they are named by their correlation ids."""

    def take(self, request: FetchRequest, *, at_once: bool = True) -> None:
        """Answer `request` now or later; not `at_once`: read it when there is room."""
        ...

    def hurry(self, correlation_id: int) -> None:
        """The answer is wanted at once, with whatever there is."""
        ...

    def withdraw(self, correlation_id: int) -> None:
        """Nobody waits for the answer."""
        ...

    async def serve_woken(self) -> None:
        """Answer fetches whose wait is over, until cancelled."""
        ...

    def close(self) -> None:
        """Forget all fetches: nobody is there to answer."""
        ...


class AppendService(Protocol):
    """A storage node's appends, to those who serve them to others."""

    def handle(self, request: AppendRequest, answer: Callable[[AppendResult], None]) -> None:
        """Append what `request` holds, behind what was given before; `answer` is called once, now or later."""
        ...

    def write_at_once(self, coordinator: CoordinatorIdentity, item: PartitionAppend) -> int | None:
        """See `NodeHere`."""
        ...


class FetchService(Protocol):
    """A storage node's fetches, to those who serve them to others."""

    def take_from_peer(
        self,
        answer: Callable[[FetchRequest, Sequence[PartitionFetched], int], None],
        wait_for_room: Callable[[], Awaitable[None]],
        *,
        is_client: bool,
    ) -> TakenFetches:
        """What one peer's fetches are given to. `answer` is called once for each, with the results and the bytes read.

        Nothing more is read before `wait_for_room` returns. `is_client`: what is read goes to clients.
        """
        ...


class StorageService(Protocol):
    """A storage node, to those who serve it to others."""

    @property
    def appends(self) -> AppendService: ...
    @property
    def fetches(self) -> FetchService: ...

    def Replicate(
        self, positions: AsyncIterator[ReplicaPositionsFrame]
    ) -> AsyncGenerator[Sequence[ReplicaFetched]]:
        """What one follower is to hear. The next frame is asked for once the one before was sent."""
        ...

    async def ListOffsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse: ...

    async def OffsetForLeaderEpoch(
        self, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse: ...

    async def DeleteRecords(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse: ...

    async def AlterReplicaLogDirs(
        self, request: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse: ...

    async def DescribeLogDirs(self, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse: ...

    async def DescribeProducers(self, request: DescribeProducersRequest) -> DescribeProducersResponse: ...
