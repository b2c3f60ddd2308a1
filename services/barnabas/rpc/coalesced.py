"""The client's end of a coalesced stream: many requests in flight, few messages on the wire.

A gRPC message costs about 100 µs of processor time in Python however small it is, so whatever was asked while the
previous frame was being written goes out together as the next one. Requests leave in the order asked; results are
matched by correlation id.

The stream is opened on first use and again after it broke. A request on a stream that breaks fails with
`StreamBroken`; its outcome is then unknown. A request while the peer cannot be reached fails with `Unreachable`: it
was certainly not carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

import grpc
import grpc.aio

from barnabas.kernel.logs import get_logger
from barnabas.rpc import limits
from barnabas.rpc.stream_counts import StreamCounts

log = get_logger("rpc.coalesced")


class Correlated(Protocol):
    """A request or result that carries its correlation id."""

    correlation_id: int


RequestT = TypeVar("RequestT", bound=Correlated)
ResultT = TypeVar("ResultT", bound=Correlated)


class StreamBroken(Exception):
    """The stream ended before the result came: whether the request was carried out is unknown."""


class Unreachable(Exception):
    """The request was not sent: the peer cannot be reached, or too much waits for it already."""


class CoalescedStream(Generic[RequestT, ResultT]):
    """Owns one bidirectional stream to one peer and the requests that wait on it.

    `open_call` starts the gRPC call, `make_frame` packs requests (and hurried correlation ids, where the stream
    knows them) into a message, `results_of` unpacks one. The server must send its initial metadata at once: that
    is how the stream knows that it is connected.
    """

    def __init__(
        self,
        open_call: Callable[[], Any],
        make_frame: Callable[[Sequence[RequestT], Sequence[int]], Any],
        results_of: Callable[[Any], Sequence[ResultT]],
        *,
        name: str,
        counts: StreamCounts | None = None,
    ) -> None:
        """`counts` are those of all streams of its kind."""
        self._counts = StreamCounts() if counts is None else counts
        self._counts.open.add(self)
        self._open_call = open_call
        self._make_frame = make_frame
        self._results_of = results_of
        self._name = name
        self._next_correlation_id = 1
        self._waiting: dict[int, asyncio.Future[ResultT]] = {}
        self._queue: deque[tuple[RequestT, int]] = deque()
        self._queued_bytes = 0
        self._hurried: list[int] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connected = False
        self._closed = False

    @property
    def waiting_requests(self) -> int:
        """Requests without a result."""
        return len(self._waiting)

    @property
    def queued_bytes(self) -> int:
        """About how many bytes of requests are not written yet."""
        return self._queued_bytes

    def send(self, request: RequestT, size_bytes: int = 0) -> asyncio.Future[ResultT]:
        """Queue `request` (its correlation id is set here) and return the future of its result.

        `size_bytes` is about how large the request is; it counts against the queue's limit. The future fails with
        StreamBroken or Unreachable; it may be cancelled, and the result is then dropped.
        """
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        if self._closed or self._queued_bytes + size_bytes > limits.STREAM_QUEUED_BYTES_MAX:
            future.set_exception(Unreachable(f"{self._name}: too much is waiting"))
            return future
        request.correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self._waiting[request.correlation_id] = future
        self._queue.append((request, size_bytes))
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

    async def close(self) -> None:
        """End the stream; what waits fails with StreamBroken."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        """Serve one life of the stream: from the first request to the break."""
        call = self._open_call()
        error: Exception = StreamBroken(f"{self._name}: closed")
        try:
            # wait_for_connection ends the wait early when the peer refuses; keepalive ends it when it is silent.
            await call.wait_for_connection()
            self._connected = True
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(call))
                tasks.create_task(self._write(call))
        except grpc.aio.AioRpcError as rpc_error:
            error = self._break_error(rpc_error)
        except ExceptionGroup as group:
            error = self._break_error(group.exceptions[0])
        finally:
            never_sent = (
                {request.correlation_id for request, _ in self._queue} if not self._connected else set()
            )
            self._connected = False
            call.cancel()
            self._fail_all(error, never_sent)

    def _break_error(self, cause: Exception) -> Exception:
        details = cause.details() if isinstance(cause, grpc.aio.AioRpcError) else cause
        if self._connected:
            log.warning("stream broke", stream=self._name, reason=details)
            self._counts.breaks += 1
            return StreamBroken(f"{self._name}: {details}")
        log.debug("cannot connect", stream=self._name, reason=details)
        return Unreachable(f"{self._name}: {details}")

    def _fail_all(self, error: Exception, never_sent: set[int]) -> None:
        waiting, self._waiting = self._waiting, {}
        self._queue.clear()
        self._hurried.clear()
        self._queued_bytes = 0
        for correlation_id, future in waiting.items():
            if not future.done():
                unsent = correlation_id in never_sent
                future.set_exception(Unreachable(str(error)) if unsent else error)
                future.exception()  # whoever gave up waiting need not hear of it

    async def _read(self, call: Any) -> None:
        frames: AsyncIterator[Any] = call
        async for frame in frames:
            for result in self._counts.received.counted(self._results_of(frame)):
                future = self._waiting.pop(result.correlation_id, None)
                if future is not None and not future.done():
                    future.set_result(result)
        raise StreamBroken(f"{self._name}: the peer ended the stream")

    async def _write(self, call: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue or self._hurried:
                frame = self._next_frame()
                started = perf_counter()
                await call.write(frame)
                self._counts.write_wait_seconds += perf_counter() - started
                del frame  # large, and the next may be long in coming

    def _next_frame(self) -> Any:
        requests: list[RequestT] = []
        frame_bytes = 0
        while (
            self._queue
            and len(requests) < limits.FRAME_ITEMS_MAX
            and (not requests or frame_bytes + self._queue[0][1] <= limits.FRAME_BYTES_TARGET)
        ):
            request, size_bytes = self._queue.popleft()
            requests.append(request)
            frame_bytes += size_bytes
        self._queued_bytes -= frame_bytes
        hurried, self._hurried = self._hurried, []
        if requests:
            self._counts.sent.count(requests)
        return self._make_frame(requests, hurried)
