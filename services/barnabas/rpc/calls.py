"""The calls of a service over a channel: as protos/ names them, and failing with the errors of links alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from barnabas.links.errors import Unreachable
from barnabas.rpc.status_codes import error_of
from barnabas.rpc.unary_calls import answer_of

ResponseT = TypeVar("ResponseT")


class ServiceCalls:
    """Owns a channel. Has a method for each call of the service, `calls.ListOffsets(request, timeout=seconds)`, and one
    that gives an async generator for each whose answer is a stream. Coalesced streams are not among them.
    """

    def __init__(self, channel: grpc.aio.Channel, service: ServiceDescriptor) -> None:
        self._channel = channel
        for method in service.methods:
            if not method.client_streaming:
                make = _streaming_call if method.server_streaming else _call
                setattr(self, method.name, make(channel, method))

    async def close(self) -> None:
        """What waits fails."""
        await self._channel.close(grace=None)


def method_path(method: MethodDescriptor) -> str:
    """What gRPC calls a method, `/barnabas.rpc.v1.Storage/ListOffsets`."""
    return f"/{method.containing_service.full_name}/{method.name}"


def _call(channel: grpc.aio.Channel, method: MethodDescriptor) -> Callable[..., Awaitable[Any]]:
    ask = channel.unary_unary(
        method_path(method),
        GetMessageClass(method.input_type).SerializeToString,
        GetMessageClass(method.output_type).FromString,
    )

    async def call(request: Any, *, timeout: float | None = None) -> Any:
        return await _outcome(_begun(ask, request, timeout))

    return call


def _streaming_call(
    channel: grpc.aio.Channel, method: MethodDescriptor
) -> Callable[[Any], AsyncGenerator[Any]]:
    response_class = GetMessageClass(method.output_type)
    ask = channel.unary_stream(
        method_path(method), GetMessageClass(method.input_type).SerializeToString, response_class.FromString
    )

    def stream(request: Any) -> AsyncGenerator[Any]:
        return streamed(ask, request, response_class)

    return stream


async def streamed(
    ask: Callable[..., Any], request: Any, response_class: type[ResponseT]
) -> AsyncGenerator[ResponseT]:
    """The messages of an answer that is a stream, each a `response_class`; `request` may be a stream, too.

    Raises LinkError.
    """
    call = _begun(ask, request, None)
    try:
        while isinstance(message := await _outcome(call.read()), response_class):  # else it has ended
            yield message
    finally:
        call.cancel()


def _begun(ask: Callable[..., Any], request: Any, timeout: float | None) -> Any:
    try:
        return ask(request, timeout=timeout)
    except grpc.aio.UsageError as error:
        raise Unreachable(f"the connection is closed: {error}") from error


async def _outcome(step: Awaitable[ResponseT]) -> ResponseT:
    try:
        return await answer_of(step)
    except grpc.aio.AioRpcError as failed:
        raise error_of(failed) from None
