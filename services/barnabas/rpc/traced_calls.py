"""Traces across unary gRPC calls: the caller's span goes along as `traceparent` in the call's metadata.

Only installed while tracing is on (see `barnabas.rpc.connections`). Coalesced streams carry it in their messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from barnabas.kernel.tracing import call_span_name, current_traceparent, start_span

if TYPE_CHECKING:
    CallerInterceptor = grpc.aio.UnaryUnaryClientInterceptor[Any, Any]
    Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:  # generic in their stubs only
    CallerInterceptor = grpc.aio.UnaryUnaryClientInterceptor
    Interceptor = grpc.aio.ServerInterceptor

TRACEPARENT: Final = "traceparent"
"""The key of W3C's trace context."""


def span_name(method: str) -> str:
    """The name of a call's span, `storage.list_offsets` for `/barnabas.rpc.v1.Storage/ListOffsets`."""
    service, _, call = method.rpartition("/")
    return call_span_name(service.rpartition(".")[2], call)


class CallerTraces(CallerInterceptor):
    """Sends the current span of the calling task along."""

    async def intercept_unary_unary(
        self,
        continuation: Callable[[Any, Any], Any],
        client_call_details: Any,
        request: Any,
    ) -> Any:
        traceparent = current_traceparent()
        if traceparent:
            metadata = client_call_details.metadata or grpc.aio.Metadata()
            metadata.add(TRACEPARENT, traceparent)
            client_call_details = client_call_details._replace(metadata=metadata)
        return await continuation(client_call_details, request)


class ServerTraces(Interceptor):
    """Runs each unary call of a traced caller in a span of its own."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        traceparent = dict(handler_call_details.invocation_metadata or ()).get(TRACEPARENT, "")
        if handler is None or handler.unary_unary is None or not traceparent:
            return handler
        name = span_name(handler_call_details.method)

        async def serve(request: Any, context: Any) -> Any:
            with start_span(name, traceparent=str(traceparent)):
                return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            serve, handler.request_deserializer, handler.response_serializer
        )
