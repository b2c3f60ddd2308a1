"""The server's end of a storage node's streams, as gRPC calls it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

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
from barnabas.rpc.answers import AnswerQueue
from barnabas.rpc.fetch_frames import EncodedResult, encode_fetch_results, encode_result
from barnabas.rpc.replication_frames import encode_replica_records
from barnabas.rpc.serving import AT_ONCE, ServiceEnding, take_until, until_done, until_gone
from barnabas.rpc.storage_streams import INSIDE


def stream_handlers(
    service: StorageService, counts: StorageStreamCounts, ending: ServiceEnding
) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """The handlers, by method; `counts` are those of the node's end. The streams end with `ending`."""

    async def append(frames: AsyncIterator[AppendFrame], context: Any) -> None:
        with ending.under_way:
            await context.send_initial_metadata(AT_ONCE)
            await until_gone(_serve_appends(service.appends, frames, context.write, counts.appends, ending))

    async def fetch(frames: AsyncIterator[FetchFrame], context: Any) -> None:
        with ending.under_way:
            await context.send_initial_metadata(AT_ONCE)
            is_client = INSIDE not in (context.invocation_metadata() or ())
            serving = _serve_fetches(
                service.fetches, frames, context.write, counts.fetches, ending, is_client=is_client
            )
            await until_gone(serving)

    async def replicate(positions: AsyncIterator[ReplicaPositionsFrame], context: Any) -> None:
        with ending.under_way:
            await context.send_initial_metadata(AT_ONCE)
            await until_gone(take_until(ending, _serve_follower(service, positions, context.write)))

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
        await take_until(ending, take_requests())
        if ending.is_set():
            # What was appended and is not answered would have an unknown outcome.
            await answers.wait_until_written()
            # gRPC resets a stream that ends while its peer writes, and the peer drops answers that it has not read yet.
            await asyncio.sleep(limits.LAST_ANSWERS_SECONDS)

    await until_done(take_until_the_end(), answers.write_forever(write))


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
        taking = take_until(ending, take_requests())
        await until_done(taking, answers.write_forever(write), fetches.serve_woken())
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
