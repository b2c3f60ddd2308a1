"""The server's end of a storage node's two coalesced streams, as gRPC calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final

import grpc
import grpc.aio

from barnabas.kernel.logs import get_logger
from barnabas.links.storage_link import StorageService
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.messages.storage_pb2 import AppendFrame, AppendResultFrame, FetchFrame
from barnabas.rpc.answers import PeerStalled
from barnabas.rpc.storage_streams import INSIDE

log = get_logger("rpc.storage")

_AT_ONCE: Final = ()
"""The metadata that a stream begins with: none, but they tell the peer that it is open."""


def stream_handlers(
    service: StorageService, counts: StorageStreamCounts
) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """The handlers, by method; `counts` are those of the node's end."""

    async def append(frames: AsyncIterator[AppendFrame], context: Any) -> None:
        await context.send_initial_metadata(_AT_ONCE)
        await _until_gone(service.Append(frames, context.write))

    async def fetch(frames: AsyncIterator[FetchFrame], context: Any) -> None:
        await context.send_initial_metadata(_AT_ONCE)
        is_client = INSIDE not in (context.invocation_metadata() or ())
        await _until_gone(service.Fetch(frames, context.write, is_client=is_client))

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
    }


async def _until_gone(serving: Awaitable[None]) -> None:
    """A peer that went away or takes nothing ends its stream quietly."""
    try:
        await serving
    except* (grpc.aio.BaseError, grpc.aio.InternalError, PeerStalled) as group:
        log.debug("a peer went away", reason=str(group.exceptions[0]))
