"""The client's end of a coalesced stream: many requests in flight, few messages on the wire.

A gRPC message costs about 100 µs of processor time in Python however small it is, so whatever was asked while the
previous frame was being written goes out together as the next one. Requests leave in the order asked; results are
matched by correlation id.

The stream is opened on first use and again after it broke. A request that was written to a stream that breaks fails
with `OutcomeUnknown`: its outcome is unknown. One that was not written fails with `Unreachable`: it was certainly not
carried out. A request whose time is over fails in the same two ways (`DeadlinePassed`, `NotSentInTime`), whatever the
peer does.

A peer that does not answer is not written to for ever: only so many unanswered bytes are on their way to it, gRPC's
own buffers among them (but for streams on which answers wait for later requests, `bounds_in_flight`), and a stream that
takes no byte for STALLED_WRITE_SECONDS_MAX is given up. (The connection's keep-alive does not notice that: its probe
waits behind the bytes that nobody takes.)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

import grpc
import grpc.aio

from barnabas.kernel.logs import get_logger
from barnabas.links.deadlines import Deadlines
from barnabas.links.errors import (
    ConnectionRefused,
    DeadlinePassed,
    LinkError,
    NotSentInTime,
    OutcomeUnknown,
    Refusal,
    Refused,
    Unreachable,
)
from barnabas.links.limits import UNANSWERED_BYTES_MAX
from barnabas.links.stream_counts import StreamCounts
from barnabas.rpc import limits
from barnabas.rpc.status_codes import error_of

log = get_logger("rpc.coalesced")


class Correlated(Protocol):
    """A request or result that carries its correlation id."""

    correlation_id: int


RequestT = TypeVar("RequestT", bound=Correlated)
ResultT = TypeVar("ResultT", bound=Correlated)


class _Entry(Generic[RequestT, ResultT]):
    """A request from `send` to its result. `request` is None once it needs no sending (any more)."""

    __slots__ = ("future", "is_written", "request", "size_bytes", "tick")

    def __init__(self, request: RequestT, future: asyncio.Future[ResultT], size_bytes: int) -> None:
        self.request: RequestT | None = request
        self.future = future
        self.size_bytes = size_bytes
        self.is_written = False
        self.tick = -1
        """Where its deadline is kept; -1 without one."""


class CoalescedStream(Generic[RequestT, ResultT]):
    """Owns one bidirectional stream to one peer and the requests that wait on it.

    `open_call` starts the gRPC call; `make_frame` packs requests, hurried and withdrawn correlation ids (where the
    stream knows them) into a message, `results_of` unpacks one. The server must send its initial metadata at once:
    that is how the stream knows that it is connected.
    """

    def __init__(
        self,
        open_call: Callable[[], Any],
        make_frame: Callable[[Sequence[RequestT], Sequence[int], Sequence[int]], Any],
        results_of: Callable[[Any], Sequence[ResultT]],
        *,
        name: str,
        counts: StreamCounts | None = None,
        unanswered_bytes_max: int = UNANSWERED_BYTES_MAX,
        bounds_in_flight: bool = True,
        is_ordered: bool = False,
        on_results: Callable[[Sequence[ResultT]], Awaitable[None]] | None = None,
    ) -> None:
        """`counts` are those of all streams of its kind. `bounds_in_flight`: so much that is not answered is
        written and no more; not where a request's answer waits for other requests. `is_ordered`: what is behind
        a request that cannot be sent in time is not sent either, so that the peer never has a later one without
        it. `on_results` is given each message's and returns when there is room for those of another.
        """
        self._on_results = on_results
        self._is_ordered = is_ordered
        self._counts = StreamCounts() if counts is None else counts
        self._counts.open.add(self)
        self._open_call = open_call
        self._make_frame = make_frame
        self._results_of = results_of
        self._name = name
        self._unanswered_bytes_max = unanswered_bytes_max
        self._bounds_in_flight = bounds_in_flight
        self._next_correlation_id = 1
        self._waiting: dict[int, _Entry[RequestT, ResultT]] = {}
        self._queue: deque[_Entry[RequestT, ResultT]] = deque()
        self._queued_bytes = 0
        self._written_bytes = 0
        """Of requests that were written and not answered, whether or not somebody still waits for them."""
        self._hurried: list[int] = []
        self._withdrawn: list[int] = []
        self._deadlines = Deadlines(self._on_passed)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing_since: float | None = None
        """When the write that is under way began, by the event loop's time; None while there is none."""
        self._connected = False
        self._closed = False
        self.is_silent = False
        """Whether a request was given up and nothing has come from the peer since: it is not worth waiting for."""

    @property
    def waiting_requests(self) -> int:
        """Requests without a result."""
        return len(self._waiting)

    @property
    def queued_bytes(self) -> int:
        """About how many bytes of requests are not written yet."""
        return self._queued_bytes

    @property
    def unanswered_bytes(self) -> int:
        """About how many bytes of requests have no result yet."""
        return self._queued_bytes + self._written_bytes

    @property
    def is_full(self) -> bool:
        """Whether as much is unanswered as the stream is to hold."""
        return self.unanswered_bytes >= self._unanswered_bytes_max

    def has_room(self, size_bytes: int) -> bool:
        """Whether `send` takes a request of this size; a single one may be of any size."""
        held_bytes = self._queued_bytes + self._written_bytes
        return not held_bytes or held_bytes + size_bytes <= self._unanswered_bytes_max

    def send(
        self, request: RequestT, size_bytes: int = 0, timeout_seconds: float | None = None
    ) -> asyncio.Future[ResultT]:
        """Queue `request` (its correlation id is set here) and return the future of its result.

        `size_bytes` is about how large the request is; it counts against the limit of what may be unanswered. The
        future fails with OutcomeUnknown or Unreachable, after `timeout_seconds` at the latest; it may be cancelled, and
        the result is then dropped.
        """
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        if self._closed or not self.has_room(size_bytes):
            reason = "the connection is closed" if self._closed else "too much is waiting"
            future.set_exception(Unreachable(f"{self._name}: {reason}"))
            return future
        key = request.correlation_id = self._next_correlation_id
        self._next_correlation_id = key + 1
        entry = _Entry(request, future, size_bytes)
        if timeout_seconds is not None:
            entry.tick = self._deadlines.add(key, timeout_seconds)
        self._waiting[key] = entry
        self._queue.append(entry)
        self._queued_bytes += size_bytes
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=self._name)
        return future

    def hurry(self, request: RequestT) -> None:
        """Ask for the result of a request sent earlier, with whatever the peer has by now."""
        if request.correlation_id in self._waiting:
            self._hurried.append(request.correlation_id)
            self._wake.set()

    def withdraw(self, request: RequestT) -> None:
        """Nobody waits for the request any more: the peer is to forget it, and gives no result."""
        key = request.correlation_id
        entry = self._waiting.get(key)
        if entry is None:
            return
        self._forget(key, entry)
        if entry.is_written:
            self._withdrawn.append(key)
            self._wake.set()
        if not entry.future.done():
            entry.future.cancel()

    def give_up(self, request: RequestT) -> None:
        """The caller goes on without the result, which is dropped when it comes after all."""
        if request.correlation_id in self._waiting:
            self.is_silent = True

    async def close(self) -> None:
        """End the stream; what waits fails."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            # A task that is cancelled before its first step runs none of its own clean-up.
            self._fail_all(OutcomeUnknown(f"{self._name}: closed"))

    async def _run(self) -> None:
        """Serve one life of the stream: from the first request to the break."""
        call = self._open_call()
        error: LinkError = OutcomeUnknown(f"{self._name}: closed")
        try:
            # wait_for_connection ends the wait early when the peer refuses; keepalive ends it when it is silent.
            await call.wait_for_connection()
            self._connected = True
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(call))
                tasks.create_task(self._write(call))
                tasks.create_task(self._watch_writes())
        except grpc.aio.AioRpcError as rpc_error:
            error = self._break_error(rpc_error)
        except ExceptionGroup as group:
            error = self._break_error(group.exceptions[0])
        finally:
            self._connected = False
            self._writing_since = None
            call.cancel()
            self._fail_all(error)

    def _break_error(self, cause: Exception) -> LinkError:
        details: object = cause
        failed: LinkError | None = None
        if isinstance(cause, grpc.aio.AioRpcError):
            details, failed = cause.details(), error_of(cause)
        if isinstance(failed, Refused) and failed.why is Refusal.UNKNOWN_CALL:
            return failed  # to gRPC's client it was open for a moment
        if self._connected:
            log.warning("stream broke", stream=self._name, reason=details)
            self._counts.breaks += 1
            return OutcomeUnknown(f"{self._name}: {details}")
        log.debug("cannot connect", stream=self._name, reason=details)
        kind = ConnectionRefused if isinstance(failed, ConnectionRefused) else Unreachable
        return kind(f"{self._name}: {details}")

    def _fail_all(self, error: LinkError) -> None:
        waiting, self._waiting = self._waiting, {}
        self._queue.clear()
        self._hurried.clear()
        self._withdrawn.clear()
        self._deadlines.clear()
        self._queued_bytes = self._written_bytes = 0
        self.is_silent = False
        for entry in waiting.values():
            if not entry.future.done():
                is_its_own = entry.is_written or not isinstance(error, OutcomeUnknown)
                entry.future.set_exception(error if is_its_own else Unreachable(str(error)))
                entry.future.exception()  # whoever gave up waiting need not hear of it

    def _forget(self, key: int, entry: _Entry[RequestT, ResultT]) -> None:
        """No result is expected for the request any more, or it came."""
        del self._waiting[key]
        if entry.tick >= 0:
            self._deadlines.discard(key, entry.tick)
        if entry.is_written:
            self._written_bytes -= entry.size_bytes
            if self._queue:
                self._wake.set()  # there is room for the next
        else:
            entry.request = None  # it stays in the queue, but is not sent
            self._queued_bytes -= entry.size_bytes

    def _on_passed(self, keys: Sequence[int]) -> None:
        """The time of these requests is over. What was written still counts, for it still lies somewhere."""
        self.is_silent = True
        for key in keys:
            entry = self._waiting.get(key)
            if entry is None:
                continue  # it went with one before it
            entry.tick = -1
            if entry.is_written:
                self._fail(entry, DeadlinePassed)
                continue
            for unsent_key, unsent in self._unsent_from(entry) if self._is_ordered else [(key, entry)]:
                self._forget(unsent_key, unsent)
                self._fail(unsent, NotSentInTime)

    def _fail(self, entry: _Entry[RequestT, ResultT], kind: type[Exception]) -> None:
        if not entry.future.done():
            entry.future.set_exception(kind(f"{self._name}: no result in time"))
            entry.future.exception()  # whoever gave up waiting need not hear of it

    def _unsent_from(self, first: _Entry[RequestT, ResultT]) -> list[tuple[int, _Entry[RequestT, ResultT]]]:
        """`first` and all that wait behind it to be sent."""
        unsent = [(each.request.correlation_id, each) for each in self._queue if each.request is not None]
        return unsent[[each for _, each in unsent].index(first) :]

    async def _read(self, call: Any) -> None:
        frames: AsyncIterator[Any] = call
        async for frame in frames:
            self.is_silent = False
            results = self._results_of(frame)
            for result in self._counts.received.counted(results):
                entry = self._waiting.get(result.correlation_id)
                if entry is None:
                    continue  # it was withdrawn
                self._forget(result.correlation_id, entry)
                if not entry.future.done():
                    entry.future.set_result(result)
            if self._on_results is not None:
                await self._on_results(results)
            del frame, results  # large, and the next may be long in coming
        raise OutcomeUnknown(f"{self._name}: the peer ended the stream")

    async def _write(self, call: Any) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (frame := self._next_frame()) is not None:
                self._writing_since, started = loop.time(), perf_counter()
                try:
                    await call.write(frame)
                except (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
                    # A peer that ended the stream in order has answered before: `_read` gets there, and ends this.
                    self._writing_since = None
                    await asyncio.sleep(limits.LAST_RESULTS_SECONDS_MAX)
                    raise
                self._writing_since = None
                self._counts.write_wait_seconds += perf_counter() - started
                del frame  # large, and the next may be long in coming

    async def _watch_writes(self) -> None:
        """Give the stream up when a write does not end; a time-out for each write would cost more than the write."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(limits.STALLED_WRITE_SECONDS_MAX / 8)
            since = self._writing_since
            if since is not None and loop.time() - since > limits.STALLED_WRITE_SECONDS_MAX:
                raise OutcomeUnknown(f"{self._name}: the peer takes nothing")

    def _next_frame(self) -> Any:
        """What is to be written next; None when there is nothing, or no room on the way."""
        requests: list[RequestT] = []
        frame_bytes = 0
        while self._queue and len(requests) < limits.FRAME_ITEMS_MAX:
            entry = self._queue[0]
            request = entry.request
            if request is not None:
                size_bytes = entry.size_bytes
                if requests and frame_bytes + size_bytes > limits.FRAME_BYTES_TARGET:
                    break
                in_flight_bytes = self._written_bytes if self._bounds_in_flight else 0
                if in_flight_bytes and in_flight_bytes + size_bytes > limits.STREAM_IN_FLIGHT_BYTES_MAX:
                    break
                requests.append(request)
                frame_bytes += size_bytes
                self._queued_bytes -= size_bytes
                self._written_bytes += size_bytes
                entry.is_written = True
                entry.request = None
            self._queue.popleft()
        hurried, withdrawn = self._take_hurried(), self._withdrawn
        if not (requests or hurried or withdrawn):
            return None
        self._withdrawn = []
        if requests:
            self._counts.sent.count(requests)
        return self._make_frame(requests, hurried, withdrawn)

    def _take_hurried(self) -> list[int]:
        """Those that the peer knows; the others follow when they were written."""
        if not self._hurried:
            return []
        known = [key for key in self._hurried if key in self._waiting]
        hurried = [key for key in known if self._waiting[key].is_written]
        self._hurried = [key for key in known if not self._waiting[key].is_written]
        return hurried
