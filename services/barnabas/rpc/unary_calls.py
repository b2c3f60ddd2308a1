"""Waiting for a step of a gRPC call, so that a lost connection is always an AioRpcError."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import grpc
import grpc.aio

ResponseT = TypeVar("ResponseT")


async def answer_of(call: Awaitable[ResponseT]) -> ResponseT:
    """The answer to a unary gRPC call, or one step of a stream; cancelling the caller cancels the call.

    Raises grpc.aio.AioRpcError. gRPC ends calls on a channel that is being closed with CancelledError, which would look
    as if the caller were to stop: that becomes UNAVAILABLE.
    """
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise unavailable("the connection was closed during the call") from None


def unavailable(details: str) -> grpc.aio.AioRpcError:
    """What a call fails with when its peer cannot be reached."""
    none = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none, details, None)
