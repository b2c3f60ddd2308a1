"""The link of a gateway, or a coordinator, to the storage node in its own process: the node's handlers, called without
a network between.

To either it looks like `rpc.storage_streams.StorageConnection`: the same requests, results, errors and deadlines.
Record batches are handed over as they are, and so are the bytes that were read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

from barnabas.links.deadlines import Deadlines
from barnabas.links.errors import DeadlinePassed, OutcomeUnknown, Unreachable
from barnabas.links.storage_messages import AppendBatches, FetchedResult
from barnabas.messages.storage_pb2 import AppendRequest, AppendResult, FetchRequest

if TYPE_CHECKING:
    from barnabas.links.storage_link import AnswerRoom, AppendService, FetchService, TakenFetches
    from barnabas.links.storage_messages import PartitionFetched

RequestT = TypeVar("RequestT", bound=Any)
ResultT = TypeVar("ResultT")

_NOT_SERVING: Final = "the storage node in this process does not serve"


class _Append(NamedTuple):
    """One partition of an append, as the handler reads it from a message."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    records: bytes
    behind_refused: bool


class _AppendRequest:
    """An AppendBatches with the fields of an AppendRequest; records are copied only out of a frame that they share."""

    __slots__ = ("acks", "correlation_id", "partitions", "timeout_ms", "traceparent", "transaction")

    def __init__(self, batches: AppendBatches) -> None:
        head = batches.head
        self.correlation_id = batches.correlation_id
        self.acks = head.acks
        self.timeout_ms = head.timeout_ms
        self.traceparent = head.traceparent
        self.transaction = head.transaction if head.HasField("transaction") else None
        self.partitions = [
            _Append(each.topic_id, each.partition, each.leader_epoch, bytes(records), each.behind_refused)
            for each, records in zip(batches.partitions, batches.records, strict=True)
        ]

    def HasField(self, name: str) -> bool:
        """As of a message: a gateway is no coordinator."""
        return name == "transaction" and self.transaction is not None


def _as_request(batches: AppendRequest | AppendBatches) -> AppendRequest:
    """What the handler reads."""
    if isinstance(batches, AppendRequest):
        return batches
    if not batches.head.HasField("coordinator"):
        return cast(AppendRequest, _AppendRequest(batches))
    # Markers: few and small.
    request = AppendRequest(correlation_id=batches.correlation_id, partitions=batches.partitions)
    request.MergeFrom(batches.head)
    for item, records in zip(request.partitions, batches.records, strict=True):
        item.records = bytes(records)
    return request


class _LocalRequests(Generic[RequestT, ResultT]):
    """Owner of the requests of one kind that have no result yet; what `CoalescedStream` is between processes."""

    is_silent = False
    """A node in this process answers if anybody does."""

    def __init__(self) -> None:
        self._next_id = 1
        self._waiting: dict[int, asyncio.Future[ResultT]] = {}
        self._ticks: dict[int, int] = {}
        """Where the deadlines of those that have one are kept."""
        self._deadlines = Deadlines(self._on_passed)
        self._begin: Callable[[RequestT], None] | None = None

    @property
    def waiting_requests(self) -> int:
        """Requests without a result."""
        return len(self._waiting)

    def send(
        self, request: RequestT, size_bytes: int = 0, timeout_seconds: float | None = None
    ) -> asyncio.Future[ResultT]:
        """Hand over `request` now; the future of its result fails as that of `CoalescedStream.send` does."""
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        if self._begin is None:
            future.set_exception(Unreachable(_NOT_SERVING))
            return future
        key = request.correlation_id = self._next_id
        self._next_id = key + 1
        self._waiting[key] = future
        self._begin(request)
        if timeout_seconds is not None and key in self._waiting:
            self._ticks[key] = self._deadlines.add(key, timeout_seconds)
        return future

    def give_up(self, request: RequestT) -> None:
        """The caller goes on without the result, which is dropped when it comes after all."""

    def _settle(self, key: int, result: ResultT) -> None:
        future = self._forget(key)
        if future is not None and not future.done():
            future.set_result(result)

    def _forget(self, key: int) -> asyncio.Future[ResultT] | None:
        tick = self._ticks.pop(key, -1)
        if tick >= 0:
            self._deadlines.discard(key, tick)
        return self._waiting.pop(key, None)

    def _on_passed(self, keys: Iterable[int]) -> None:
        for key in keys:
            self._ticks.pop(key)
            _fail(self._waiting.pop(key), DeadlinePassed("no result in time"))

    def close(self) -> None:
        """The node serves no longer; what waits fails."""
        self._begin = None
        waiting, self._waiting = self._waiting, {}
        self._ticks.clear()
        self._deadlines.clear()
        for future in waiting.values():
            _fail(future, OutcomeUnknown(_NOT_SERVING))


class LocalAppends(_LocalRequests[AppendRequest | AppendBatches, AppendResult]):
    """Appends, in the order in which they are sent."""

    is_full = False
    """What waits for a log directory is bounded by its lane, which refuses the rest."""

    def has_room(self, size_bytes: int) -> bool:
        """See `links.storage_link.Appends`."""
        return True

    def open(self, service: AppendService) -> None:
        """The node serves from now on."""

        def begin(batches: AppendRequest | AppendBatches) -> None:
            service.handle(_as_request(batches), self._on_result)

        self._begin = begin

    def _on_result(self, result: AppendResult) -> None:
        self._settle(result.correlation_id, result)


class LocalFetches(_LocalRequests[FetchRequest, FetchedResult]):
    """Fetches; what was read is handed over as it is. Nothing is read while there is no `room`."""

    _taken: TakenFetches | None = None
    room: AnswerRoom | None = None

    def __init__(self, *, reads_for_clients: bool = True) -> None:
        super().__init__()
        self._reads_for_clients = reads_for_clients

    def open(self, service: FetchService) -> TakenFetches:
        """The node serves from now on, as long as the `serve_woken` of what is returned runs."""
        self._taken = service.take_from_peer(
            self._deliver, self._wait_for_room, is_client=self._reads_for_clients
        )
        self._begin = self._take
        return self._taken

    def _take(self, request: FetchRequest) -> None:
        assert self._taken is not None, "it serves"
        self._taken.take(request, at_once=self.room is None or not self.room.is_full)

    async def _wait_for_room(self) -> None:
        if self.room is not None:
            await self.room.wait_for_room()

    def hurry(self, request: FetchRequest) -> None:
        """Have the request answered with whatever there is by now."""
        if self._taken is not None:
            self._taken.hurry(request.correlation_id)

    def withdraw(self, request: FetchRequest) -> None:
        """Nobody waits for the request any more."""
        if self._taken is not None:
            self._taken.withdraw(request.correlation_id)
        future = self._forget(request.correlation_id)
        if future is not None and not future.done():
            future.cancel()

    def _deliver(
        self, request: FetchRequest, partitions: Sequence[PartitionFetched], size_bytes: int
    ) -> None:
        key = request.correlation_id
        if self.room is not None:
            self.room.on_read(size_bytes)
        self._settle(key, FetchedResult(key, partitions))


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever gave up waiting need not hear of it
