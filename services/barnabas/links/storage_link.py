"""What a gateway or a coordinator may ask of one storage node, however it is reached.

`rpc.storage_streams.StorageConnection` reaches it over gRPC, `host.local_node.LocalNode` in the same process.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from barnabas.rpc.append_frames import AppendBatches
    from barnabas.rpc.v1.storage_pb2 import AppendRequest, AppendResult, FetchRequest
    from barnabas.rpc.v1.storage_pb2_grpc import StorageAsyncStub

RequestT = TypeVar("RequestT", contravariant=True)
ResultT = TypeVar("ResultT")


class Requests(Protocol[RequestT, ResultT]):
    """Requests of one kind: they reach the node in the order in which they are sent; results come in any order."""

    is_silent: bool
    """Whether a request was given up and nothing has come from the node since: it is not worth waiting for."""

    def send(
        self, request: RequestT, size_bytes: int = 0, timeout_seconds: float | None = None
    ) -> asyncio.Future[ResultT]:
        """Send `request` (its correlation id is set here), or queue it, and return the future of its result.

        `size_bytes` is about how large it is; it counts against the limit of what may be unanswered. The future fails
        with `Unreachable` or `OutcomeUnknown`, after `timeout_seconds` at the latest; it may be cancelled, and the
        result is then dropped.
        """
        ...

    def give_up(self, request: RequestT) -> None:
        """The caller goes on without the result, which is dropped when it comes after all."""
        ...


class Fetches(Requests["FetchRequest", "FetchedResult"], Protocol):
    """Fetches, whose wait can be ended."""

    def hurry(self, request: FetchRequest) -> None:
        """Ask for the result of a request sent earlier, with whatever the node has by now."""
        ...

    def withdraw(self, request: FetchRequest) -> None:
        """Nobody waits for the request any more: the node is to forget it, and gives no result."""
        ...


class StorageLink(Protocol):
    """One storage node."""

    @property
    def address(self) -> str: ...
    @property
    def appends(self) -> Requests[AppendRequest | AppendBatches, AppendResult]: ...
    @property
    def fetches(self) -> Fetches: ...
    @property
    def stub(self) -> StorageAsyncStub:
        """The look-ups, one answer each."""
        ...

    async def close(self) -> None:
        """What waits fails."""
        ...
