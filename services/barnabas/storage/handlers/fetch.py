"""Storage.Fetch: record batches of partitions that this node leads, or follows (KIP-392); a request may wait for data.

Requests are answered out of order, each once it has min_bytes, or an error, or its time is over, or its sender
hurries it; one that its sender withdraws is forgotten. What is in memory is read on the event loop, the rest in
threads of each log directory (`cold_reads`). The gateway keeps the fetch sessions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter

from barnabas.kernel.logs import get_logger
from barnabas.kernel.tracing import start_span
from barnabas.links.local_storage import Read, ReadWait, Sought
from barnabas.links.storage_messages import PartitionFetched
from barnabas.messages.storage_pb2 import FetchRequest
from barnabas.storage.counts import NodeCounts
from barnabas.storage.fetching.cold_reads import ColdReads
from barnabas.storage.fetching.delayed_fetch import DelayedFetch, FetchPurgatory, WaitingRead
from barnabas.storage.fetching.reading import FetchReader, ReadOutcome, TooLittle, failed

log = get_logger("storage.fetch")

Answer = Callable[[FetchRequest, Sequence[PartitionFetched], int], None]
"""(request, what was read, its bytes)."""


class FetchHandler:
    """What all fetches share; owns the counts of requests."""

    def __init__(self, reader: FetchReader, purgatory: FetchPurgatory, counts: NodeCounts) -> None:
        self.read_times = counts.read_times
        self.reader = reader
        self.purgatory = purgatory
        self.cold_reads = 0

    def take_from_peer(
        self,
        answer: Answer,
        wait_for_room: Callable[[], Awaitable[None]],
        *,
        is_client: bool,
    ) -> UnansweredFetches:
        """What the fetches of one peer are given to."""
        return UnansweredFetches(self, answer, wait_for_room, is_client=is_client)

    def read_at_once(
        self,
        sought: Sequence[Sought],
        *,
        min_bytes: int,
        max_bytes: int,
        committed: bool,
        max_wait_ms: int,
        rack_id: str = "",
        wait: ReadWait | None = None,
    ) -> list[Read] | ReadWait | None:
        """Read for a gateway in the same process, or let it wait for more; see `LocalStorage.read_at_once`."""
        assert wait is None or isinstance(wait, WaitingRead), "it was given here"
        if max_wait_ms <= 0 or (wait is not None and wait.hurried):
            min_bytes = 0
        began = perf_counter()
        found = self.reader.read_at_once(
            sought, min_bytes=min_bytes, max_bytes=max_bytes, committed=committed, rack_id=rack_id
        )
        if isinstance(found, TooLittle):
            if wait is None:
                wait = WaitingRead(self.purgatory, found.min_bytes, max_wait_ms, committed=committed)
            if self.purgatory.wait(wait, found.size_bytes, found.watched):
                return wait
            # Too many wait already: it is answered with what there is.
            found = self.reader.read_at_once(
                sought, min_bytes=0, max_bytes=max_bytes, committed=committed, rack_id=rack_id
            )
            assert not isinstance(found, TooLittle), "it asks for nothing"
        if found is not None:
            self.read_times.observe(perf_counter() - began)
        return found


class UnansweredFetches:
    """Owner of the fetches of one peer that are not answered yet.

    `answer` is given each request with what was read for it; `wait_for_room` returns when there is room for an answer.
    """

    def __init__(
        self,
        handler: FetchHandler,
        answer: Answer,
        wait_for_room: Callable[[], Awaitable[None]],
        *,
        is_client: bool,
    ) -> None:
        self._answer = answer
        self._wait_for_room = wait_for_room
        self._is_client = is_client
        self._handler = handler
        self._fetches: dict[int, DelayedFetch] = {}
        self._woken: deque[DelayedFetch] = deque()
        self._wake = asyncio.Event()
        self._cold_reads = ColdReads(handler.reader, wait_for_room, is_client=is_client)
        self._cold_tasks: set[asyncio.Task[None]] = set()

    def hurry(self, correlation_id: int) -> None:
        """The answer is wanted at once, with whatever there is."""
        fetch = self._fetches.get(correlation_id)
        if fetch is not None:
            fetch.hurry()

    def take(self, request: FetchRequest, *, at_once: bool = True) -> None:
        """Answer `request` now or later; not `at_once`: read it when there is room."""
        request.min_bytes = self._handler.reader.enough_bytes(request.min_bytes, request.max_bytes)
        fetch = DelayedFetch(request, self._on_complete)
        if request.traceparent:
            fetch.span = start_span("storage.fetch", traceparent=request.traceparent)
        fetch.hurried = request.max_wait_ms <= 0
        self._fetches[request.correlation_id] = fetch
        if at_once:
            self._read(fetch)
        else:
            self._woken.append(fetch)
            self._wake.set()

    def withdraw(self, correlation_id: int) -> None:
        """Nobody waits for the answer: the client has closed its connection, say."""
        fetch = self._fetches.pop(correlation_id, None)
        if fetch is None:
            return  # answered already
        fetch.is_withdrawn = True  # it may be among the woken, or be read in a thread
        fetch.end()
        self._handler.purgatory.forget(fetch)

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
                await self._wait_for_room()
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
            fetch.limit_wait()
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
        if not fetch.hurried and self._handler.reader.is_outdated(fetch.request, outcome):
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
            for replica, size_bytes in outcome.sizes:
                replica.counts.bytes_out += size_bytes
        fetch.end()
        self._answer(request, outcome.answers, outcome.size_bytes)

    def close(self) -> None:
        """Forget all fetches: nobody is there to answer."""
        for task in self._cold_tasks:
            task.cancel()
        for fetch in self._fetches.values():
            fetch.end()
            self._handler.purgatory.forget(fetch)
        self._fetches.clear()
