"""Coalesced streams over a real gRPC connection: order, results, breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.messages.storage_pb2 import (
    AppendFrame,
    AppendRequest,
    AppendResult,
    AppendResultFrame,
    FetchFrame,
    FetchRequest,
    FetchResult,
    FetchResultFrame,
)
from barnabas.rpc.answers import AnswerQueue
from barnabas.rpc.server import RpcServer
from barnabas.rpc.storage_streams import StorageConnection


class Servicer:
    """Answers appends in reverse within a frame, and fetches only when they are hurried."""

    def __init__(self) -> None:
        self.frames: list[int] = []
        self.order: list[int] = []

    async def Append(self, frames: AsyncIterator[AppendFrame], write: Callable[[Any], Any]) -> None:
        async for frame in frames:
            self.frames.append(len(frame.requests))
            self.order += [request.timeout_ms for request in frame.requests]
            results = [AppendResult(correlation_id=r.correlation_id) for r in reversed(frame.requests)]
            await write(AppendResultFrame(results=results))

    async def Fetch(
        self, frames: AsyncIterator[FetchFrame], write: Callable[[Any], Any], *, is_client: bool
    ) -> None:
        async for frame in frames:
            if frame.hurry:
                results = [FetchResult(correlation_id=number) for number in frame.hurry]
                await write(FetchResultFrame(results=results).SerializeToString())


@pytest.fixture
async def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/storage.sock"


@pytest.fixture
async def start(address: str) -> AsyncIterator[Callable[[], Any]]:
    servers: list[RpcServer] = []

    async def start_server() -> tuple[RpcServer, Servicer]:
        server, servicer = RpcServer(address), Servicer()
        await server.serve_storage(cast(Any, servicer), StorageStreamCounts())
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
    assert len(servicer.frames) < 100, "requests that wait together go out together"
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
