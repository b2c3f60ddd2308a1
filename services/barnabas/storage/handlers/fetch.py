"""Storage.Fetch: record batches of partitions that this node leads; a request may wait for data.

Requests are answered out of order, each once it has min_bytes, or an error, or its time is over, or its sender
hurries it; one that its sender withdraws is forgotten. What is in memory is read on the event loop, the rest in
threads of each log directory (`cold_reads`). The gateway keeps the fetch sessions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from time import perf_counter

from barnabas.kernel.logs import get_logger
from barnabas.kernel.tracing import start_span
from barnabas.rpc.answers import AnswerQueue
from barnabas.rpc.v1.storage_pb2 import FetchFrame, FetchRequest
from barnabas.storage import limits
from barnabas.storage.cold_reads import ColdReads
from barnabas.storage.counts import NodeCounts
from barnabas.storage.delayed_fetch import DelayedFetch, FetchPurgatory
from barnabas.storage.fetch_encoding import EncodedResult, encode_frame, encode_result
from barnabas.storage.reading import FetchReader, ReadOutcome, failed
from barnabas.storage.streams import serve_until_done

log = get_logger("storage.fetch")

Write = Callable[[bytes], Awaitable[None]]
"""Writes an encoded FetchResultFrame."""


class FetchHandler:
    """Serves Fetch streams; owns the counts of requests."""

    def __init__(self, reader: FetchReader, purgatory: FetchPurgatory, counts: NodeCounts) -> None:
        self.read_times = counts.read_times
        self.stream_counts = counts.streams.fetches
        self.reader = reader
        self.purgatory = purgatory
        self.cold_reads = 0

    async def serve(self, frames: AsyncIterator[FetchFrame], write: Write, *, is_client: bool = True) -> None:
        """Serve one stream until the peer ends it; `is_client`: what is read goes to clients."""
        stream = _FetchStream(self, is_client=is_client)
        try:
            await serve_until_done(
                stream.take_requests(frames), stream.answers.write_forever(write), stream.serve_woken()
            )
        finally:
            stream.close()


class _FetchStream:
    """Owner of the fetches of one stream that are not answered yet."""

    def __init__(self, handler: FetchHandler, *, is_client: bool) -> None:
        self.answers: AnswerQueue[EncodedResult] = AnswerQueue(
            handler.stream_counts.sent.counting_encoder(encode_frame),
            bytes_max=limits.FETCH_ANSWERS_BYTES_MAX,
            counts=handler.stream_counts,
        )
        self._is_client = is_client
        self._handler = handler
        self._fetches: dict[int, DelayedFetch] = {}
        self._woken: deque[DelayedFetch] = deque()
        self._wake = asyncio.Event()
        self._cold_reads = ColdReads(handler.reader, self.answers.wait_for_room, is_client=is_client)
        self._cold_tasks: set[asyncio.Task[None]] = set()

    async def take_requests(self, frames: AsyncIterator[FetchFrame]) -> None:
        async for frame in frames:
            self._handler.stream_counts.received.count(frame.requests)
            for request in frame.requests:
                await self.answers.wait_for_room()
                self._take(request)
            for correlation_id in frame.hurry:
                fetch = self._fetches.get(correlation_id)
                if fetch is not None:
                    fetch.hurry()
            for correlation_id in frame.withdraw:
                self._withdraw(correlation_id)

    def _take(self, request: FetchRequest) -> None:
        fetch = DelayedFetch(request, self._on_complete)
        if request.traceparent:
            fetch.span = start_span("storage.fetch", traceparent=request.traceparent)
        fetch.hurried = request.max_wait_ms <= 0
        self._fetches[request.correlation_id] = fetch
        self._read(fetch)

    def _withdraw(self, correlation_id: int) -> None:
        """Nobody waits for the answer: the client has closed its connection, say."""
        fetch = self._fetches.pop(correlation_id, None)
        if fetch is None:
            return  # answered already
        fetch.is_withdrawn = True  # it may be among the woken, or be read in a thread
        fetch.stop_waiting()
        self._handler.purgatory.forget(fetch)
        if fetch.span is not None:
            fetch.span.end()

    def _on_complete(self, fetch: DelayedFetch) -> None:
        self._handler.purgatory.forget(fetch)
        self._woken.append(fetch)
        self._wake.set()

    async def serve_woken(self) -> None:
        """Read and answer fetches whose wait is over, no faster than the peer takes the answers."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._woken:
                await self.answers.wait_for_room()
                self._read(self._woken.popleft())

    def _read(self, fetch: DelayedFetch) -> None:
        if fetch.is_withdrawn:
            return
        started = perf_counter()
        try:
            outcome = self._handler.reader.read(fetch.request)
        except Exception:
            log.exception("fetch failed")
            outcome = failed(fetch.request)
        if len(outcome.answers) < len(fetch.request.partitions):
            self._handler.cold_reads += 1
            task = asyncio.create_task(self._read_cold(fetch, outcome), name="cold fetch")
            self._cold_tasks.add(task)
            task.add_done_callback(self._cold_tasks.discard)
            return
        self._handler.read_times.observe(perf_counter() - started)
        self._settle(fetch, outcome)

    async def _read_cold(self, fetch: DelayedFetch, outcome: ReadOutcome) -> None:
        """Read what is not in memory, in threads."""
        try:
            await self._cold_reads.finish(fetch, outcome)
        except Exception:
            log.exception("fetch failed")
            outcome = failed(fetch.request)
        if fetch.is_withdrawn:
            return
        if self._handler.reader.is_outdated(fetch.request, outcome):
            self._read(fetch)
        else:
            self._settle(fetch, outcome)

    def _settle(self, fetch: DelayedFetch, outcome: ReadOutcome) -> None:
        """Answer, or let the fetch wait for more."""
        request = fetch.request
        enough = outcome.is_final or outcome.size_bytes >= request.min_bytes
        if not enough and not fetch.hurried:
            watched = self._handler.reader.watched(request)
            if self._handler.purgatory.wait(fetch, outcome.size_bytes, watched):
                return
        self._fetches.pop(request.correlation_id, None)
        if self._is_client:
            for partition, size_bytes in outcome.sizes:
                partition.counts.bytes_out += size_bytes
        if fetch.span is not None:
            fetch.span.end()
        result = encode_result(request.correlation_id, outcome.answers)
        self.answers.put(result, result.size)

    def close(self) -> None:
        """Forget all fetches: nobody is there to answer."""
        for task in self._cold_tasks:
            task.cancel()
        for fetch in self._fetches.values():
            fetch.stop_waiting()
            self._handler.purgatory.forget(fetch)
        self._fetches.clear()
