"""The client's end of a service's calls that travel together: each is awaited as one of its own would be.

A call of its own costs gRPC several times what a message on a stream does, and here many calls share a message. What
becomes of one is what would become of it alone, but for two things: the connection's break fails those that were not
sent yet with Unreachable, and deadlines are noticed a little late (`links.deadlines`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from barnabas.kernel.tracing import current_traceparent
from barnabas.links.errors import DeadlinePassed, Refusal, Refused
from barnabas.messages.calls_pb2 import Call, CallFrame, CallResult, CallResultFrame
from barnabas.rpc import limits
from barnabas.rpc.calls import ServiceCalls, method_path
from barnabas.rpc.coalesced import CoalescedStream
from barnabas.rpc.status_codes import error_of_failure

if TYPE_CHECKING:
    from barnabas.links.transactions_link import TransactionQuestion

CALLS = "Calls"
"""The method of a service whose stream carries its calls."""


class CoalescedCalls:
    """Owns a channel, and the stream on it. Has a method for each call of the service, as `ServiceCalls` has.

    A call travels alone where it is large, or its answer may be, so that no other waits behind it; and for a while
    where the peer is of an earlier version, which has no such stream.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        service: ServiceDescriptor,
        name: str,
        is_answer_large: Callable[[Any], bool],
    ) -> None:
        """`name` is the stream's, for logs. `is_answer_large` says of a request whether its answer may have many MB."""
        self._is_answer_large = is_answer_large
        self._alone = ServiceCalls(channel, service)
        self._alone_until = 0.0
        """By the event loop's time."""
        stream = channel.stream_stream(
            method_path(service.methods_by_name[CALLS]),
            CallFrame.SerializeToString,
            CallResultFrame.FromString,
        )
        self._stream: CoalescedStream[Call, CallResult] = CoalescedStream(
            lambda: stream(None),
            lambda calls, _hurried, withdrawn: CallFrame(calls=calls, withdraw=withdrawn),
            lambda frame: frame.results,
            name=name,
            bounds_in_flight=False,  # the members of a group wait for one another
        )
        for method in service.methods:
            if not (method.client_streaming or method.server_streaming):
                setattr(self, method.name, self._call(method))

    def begin(self, *_: Any) -> None:
        """Nothing is decided at once, over a network."""

    async def close(self) -> None:
        """What waits fails."""
        await self._stream.close()
        await self._alone.close()

    def _call(self, method: MethodDescriptor) -> Callable[..., Awaitable[Any]]:
        name, decode = method.name, GetMessageClass(method.output_type).FromString
        alone = getattr(self._alone, name)

        async def call(request: Any, *, timeout: float | None = None) -> Any:
            is_earlier_peer = self._alone_until and asyncio.get_running_loop().time() < self._alone_until
            if is_earlier_peer or self._is_answer_large(request):
                return await alone(request, timeout=timeout)
            encoded = request.SerializeToString()
            if len(encoded) > limits.CALL_BYTES_MAX:
                return await alone(request, timeout=timeout)
            one = Call(method=name, request=encoded, traceparent=current_traceparent())
            try:
                result = await self._result(one, timeout)
            except Refused as refused:
                if refused.why is not Refusal.UNKNOWN_CALL:
                    raise
                self._alone_until = asyncio.get_running_loop().time() + limits.EARLIER_PEER_SECONDS
                return await alone(request, timeout=timeout)
            if result.HasField("failure"):
                raise error_of_failure(result.failure)
            return decode(result.response)

        return call

    async def _result(self, call: Call, timeout: float | None) -> CallResult:
        try:
            return await self._stream.send(call, len(call.request) + limits.CALL_BYTES, timeout)
        except (asyncio.CancelledError, DeadlinePassed):
            self._stream.withdraw(call)
            raise


class TransactionCalls(CoalescedCalls):
    """The calls of a transaction coordinator in another process."""

    def verify_nowait(self, _: TransactionQuestion) -> bool:
        """Never at once, over a network."""
        return False
