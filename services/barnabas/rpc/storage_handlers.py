"""The server's end of a storage node's streams, as gRPC calls it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Final

import grpc
import grpc.aio

from barnabas.kernel.logs import get_logger
from barnabas.links.storage_link import AppendService, FetchService, StorageService
from barnabas.links.storage_messages import PartitionFetched, ReplicaFetched
from barnabas.links.stream_counts import StorageStreamCounts, StreamCounts
from barnabas.messages.storage_pb2 import (
    AppendFrame,
    AppendResult,
    AppendResultFrame,
    FetchFrame,
    FetchRequest,
    ReplicaPositionsFrame,
)
from barnabas.rpc import limits
from barnabas.rpc.answers import AnswerQueue, PeerStalled
from barnabas.rpc.fetch_frames import EncodedResult, encode_fetch_results, encode_result
from barnabas.rpc.replication_frames import encode_replica_records
from barnabas.rpc.storage_streams import INSIDE

log = get_logger("rpc.storage")

_AT_ONCE: Final = ()
"""The metadata that a stream begins with: none, but they tell the peer that it is open."""


def stream_handlers(
    service: StorageService, counts: StorageStreamCounts, ending: asyncio.Event
) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """The handlers, by method; `counts` are those of the node's end. The streams end with `ending`."""

    async def append(frames: AsyncIterator[AppendFrame], context: Any) -> None:
        await context.send_initial_metadata(_AT_ONCE)
        await _until_gone(_serve_appends(service.appends, frames, context.write, counts.appends, ending))

    async def fetch(frames: AsyncIterator[FetchFrame], context: Any) -> None:
        await context.send_initial_metadata(_AT_ONCE)
        is_client = INSIDE not in (context.invocation_metadata() or ())
        serving = _serve_fetches(
            service.fetches, frames, context.write, counts.fetches, ending, is_client=is_client
        )
        await _until_gone(serving)

    async def replicate(positions: AsyncIterator[ReplicaPositionsFrame], context: Any) -> None:
        await context.send_initial_metadata(_AT_ONCE)
        await _until_gone(_take_until(ending, _serve_follower(service, positions, context.write)))

    appends, fetches = counts.appends, counts.fetches
    return {
        "Append": grpc.stream_stream_rpc_method_handler(
            append,
            appends.received.counting(AppendFrame.FromString),
            appends.sent.counting_encoder(AppendResultFrame.SerializeToString),
        ),
        "Fetch": grpc.stream_stream_rpc_method_handler(
            fetch, fetches.received.counting(FetchFrame.FromString), None
        ),
        "Replicate": grpc.stream_stream_rpc_method_handler(
            replicate, ReplicaPositionsFrame.FromString, encode_replica_records
        ),
    }


async def _until_gone(serving: Awaitable[None]) -> None:
    """A peer that went away or takes nothing ends its stream quietly."""
    try:
        await serving
    except* (grpc.aio.BaseError, grpc.aio.InternalError, PeerStalled) as group:
        log.debug("a peer went away", reason=str(group.exceptions[0]))


async def _serve_appends(
    service: AppendService,
    frames: AsyncIterator[AppendFrame],
    write: Callable[[AppendResultFrame], Awaitable[None]],
    counts: StreamCounts,
    ending: asyncio.Event,
) -> None:
    answers: AnswerQueue[AppendResult] = AnswerQueue(
        lambda results: AppendResultFrame(results=results),
        bytes_max=limits.APPEND_ANSWERS_BYTES_MAX,
        counts=counts,
    )

    def answer(result: AppendResult) -> None:
        answers.put(result, _size_bytes(result))

    async def take_requests() -> None:
        async for frame in frames:
            await answers.wait_for_room()
            counts.received.count(frame.requests)
            for request in frame.requests:
                service.handle(request, answer)

    async def take_until_the_end() -> None:
        await _take_until(ending, take_requests())
        if ending.is_set():
            # What was appended and is not answered would have an unknown outcome.
            await answers.wait_until_written()
            # gRPC resets a stream that ends while its peer writes, and the peer drops answers that it has not read yet.
            await asyncio.sleep(limits.LAST_ANSWERS_SECONDS)

    await _until_done(take_until_the_end(), answers.write_forever(write))


def _size_bytes(result: AppendResult) -> int:
    """About what an answer holds; the records to blame can be many."""
    blamed = sum(len(each.record_errors) for each in result.partitions)
    return limits.APPEND_ANSWER_BYTES * len(result.partitions) + limits.RECORD_ERROR_BYTES * blamed


async def _serve_fetches(
    service: FetchService,
    frames: AsyncIterator[FetchFrame],
    write: Callable[[bytes], Awaitable[None]],
    counts: StreamCounts,
    ending: asyncio.Event,
    *,
    is_client: bool,
) -> None:
    answers: AnswerQueue[EncodedResult] = AnswerQueue(
        counts.sent.counting_encoder(encode_fetch_results),
        bytes_max=limits.FETCH_ANSWERS_BYTES_MAX,
        counts=counts,
    )

    def answer(request: FetchRequest, partitions: Sequence[PartitionFetched], _: int) -> None:
        result = encode_result(request.correlation_id, partitions)
        answers.put(result, result.size)

    fetches = service.take_from_peer(answer, answers.wait_for_room, is_client=is_client)

    async def take_requests() -> None:
        async for frame in frames:
            counts.received.count(frame.requests)
            for request in frame.requests:
                await answers.wait_for_room()
                fetches.take(request)
            for correlation_id in frame.hurry:
                fetches.hurry(correlation_id)
            for correlation_id in frame.withdraw:
                fetches.withdraw(correlation_id)

    try:
        taking = _take_until(ending, take_requests())
        await _until_done(taking, answers.write_forever(write), fetches.serve_woken())
    finally:
        fetches.close()


async def _serve_follower(
    service: StorageService,
    positions: AsyncIterator[ReplicaPositionsFrame],
    write: Callable[[Sequence[ReplicaFetched]], Awaitable[None]],
) -> None:
    async with aclosing(service.Replicate(positions)) as frames:
        async for partitions in frames:
            await write(partitions)


async def _take_until(ending: asyncio.Event, taking: Coroutine[Any, Any, None]) -> None:
    """Run `taking` until it returns, or until `ending`. Raises a group with what it raised."""
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(taking)
        watching = tasks.create_task(ending.wait())
        await asyncio.wait((running, watching), return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        watching.cancel()


async def _until_done(first: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Run all until `first` returns, then cancel the others. Raises a group with what one of them raised."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(other) for other in others]
        try:
            await first
        finally:
            for task in running:
                task.cancel()
