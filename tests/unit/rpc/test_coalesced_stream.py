"""Coalesced streams over a real gRPC connection: order, results, breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.messages.storage_pb2 import AppendRequest, AppendResult, FetchRequest
from barnabas.rpc import limits
from barnabas.rpc.answers import AnswerQueue
from barnabas.rpc.server import RpcServer, make_server
from barnabas.rpc.storage_streams import StorageConnection


class Hurried:
    """Answers fetches only when they are hurried."""

    def __init__(self, answer: Callable[[FetchRequest, list[Any], int], None]) -> None:
        self._answer = answer
        self._fetches: dict[int, FetchRequest] = {}

    def take(self, request: FetchRequest) -> None:
        self._fetches[request.correlation_id] = request

    def hurry(self, correlation_id: int) -> None:
        self._answer(self._fetches.pop(correlation_id), [], 0)

    async def serve_woken(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        self._fetches.clear()


class Servicer:
    """Answers appends that came together in reverse, unless it `holds` them, and fetches only when they are hurried."""

    def __init__(self) -> None:
        self.counts = StorageStreamCounts()
        self.order: list[int] = []
        self.holds = False
        self._together: list[tuple[AppendRequest, Callable[[AppendResult], None]]] = []
        self.appends = self.fetches = self

    def handle(self, request: AppendRequest, answer: Callable[[AppendResult], None]) -> None:
        self.order.append(request.timeout_ms)
        if not self._together:
            asyncio.get_running_loop().call_soon(self.answer)
        self._together.append((request, answer))

    def answer(self) -> None:
        while self._together and not self.holds:
            request, answer = self._together.pop()
            answer(AppendResult(correlation_id=request.correlation_id))

    def take_from_peer(
        self, answer: Callable[[FetchRequest, list[Any], int], None], _: Any, *, is_client: bool
    ) -> Hurried:
        return Hurried(answer)


@pytest.fixture
async def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/storage.sock"


@pytest.fixture
async def start(address: str) -> AsyncIterator[Callable[[], Any]]:
    servers: list[RpcServer] = []

    async def start_server() -> tuple[RpcServer, Servicer]:
        server, servicer = RpcServer(address, make_server()), Servicer()
        await server.serve_storage(cast(Any, servicer), servicer.counts)
        servers.append(server)
        return server, servicer

    yield start_server
    for server in servers:
        await server.stop(None)


async def test_requests_keep_their_order_and_find_their_results(
    address: str, start: Callable[[], Any]
) -> None:
    _, servicer = await start()
    connection = StorageConnection(address)
    futures = [connection.appends.send(AppendRequest(timeout_ms=number), 10) for number in range(2000)]
    results = await asyncio.gather(*futures)
    assert [result.correlation_id for result in results] == list(range(1, 2001))
    assert servicer.order == list(range(2000))
    assert sum(servicer.counts.appends.received.items.counts) < 100, (
        "requests that wait together go out together"
    )
    await connection.close()


async def test_a_hurried_request_is_answered(address: str, start: Callable[[], Any]) -> None:
    await start()
    connection = StorageConnection(address)
    request = FetchRequest(max_wait_ms=60_000)
    future = connection.fetches.send(request)
    connection.fetches.hurry(request)
    assert (await future).correlation_id == request.correlation_id
    await connection.close()


async def test_nobody_there_is_unreachable_and_later_there_again(
    address: str, start: Callable[[], Any]
) -> None:
    connection = StorageConnection(address)
    with pytest.raises(Unreachable):
        await connection.appends.send(AppendRequest())
    await start()
    async with asyncio.timeout(10):
        while True:
            try:
                await connection.appends.send(AppendRequest())
                break
            except Unreachable:
                await asyncio.sleep(0.01)
    await connection.close()


async def test_a_break_leaves_the_outcome_unknown(address: str, start: Callable[[], Any]) -> None:
    server, _ = await start()
    connection = StorageConnection(address)
    warm = FetchRequest()
    first = connection.fetches.send(warm)
    connection.fetches.hurry(warm)
    await first
    waiting = connection.fetches.send(FetchRequest())
    await asyncio.sleep(0)  # let it be written
    while connection.fetches._queue:
        await asyncio.sleep(0)
    await server.stop(None)
    with pytest.raises(OutcomeUnknown):
        await waiting
    await connection.close()


async def test_answers_leave_together_and_give_room_again() -> None:
    queue: AnswerQueue[int] = AnswerQueue(list, bytes_max=10)
    written: list[list[int]] = []
    for number in range(5):
        queue.put(number, 4)

    async def write(frame: list[int]) -> None:
        written.append(frame)

    writer = asyncio.create_task(queue.write_forever(write))
    async with asyncio.timeout(5):
        await queue.wait_for_room()
    assert written == [[0, 1, 2, 3, 4]]
    writer.cancel()


async def test_a_server_that_stops_has_answered_what_it_has_taken(
    address: str, start: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes on meanwhile gets the answers all the same, and nothing is taken that is not answered."""
    monkeypatch.setattr(limits, "FRAME_ITEMS_MAX", 20)
    server, servicer = await start()
    servicer.holds = True
    connection = StorageConnection(address)
    futures: list[asyncio.Future[AppendResult]] = []

    async def go_on() -> None:
        while True:
            futures.append(connection.appends.send(AppendRequest(), 10))
            await asyncio.sleep(0)

    writing = asyncio.create_task(go_on())
    while len(servicer.order) < 2_000:
        await asyncio.sleep(0)
    servicer.holds = False
    servicer.answer()
    await server.stop(5.0)
    writing.cancel()
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    answered = sum(isinstance(outcome, AppendResult) for outcome in outcomes)
    assert answered == len(servicer.order)
    await connection.close()
