"""What a service answers to others over gRPC: plain objects whose methods take a message and return one.

A method refuses by raising an error of links. A service has the methods of its protocol in `links/`; one that
it lacks is answered as by an earlier version, which does not know it.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from barnabas.kernel.tracing import is_tracing
from barnabas.links.errors import LinkError, Unreachable
from barnabas.rpc.connections import OPTIONS
from barnabas.rpc.serving import ServiceEnding
from barnabas.rpc.status_codes import ending_of

if TYPE_CHECKING:
    from barnabas.links.controller_link import ControllerService
    from barnabas.links.coordinator_link import CoordinatorService
    from barnabas.links.storage_link import StorageService
    from barnabas.links.stream_counts import StorageStreamCounts
    from barnabas.links.transactions_link import TransactionsService


@dataclass
class _Shared:
    """What the services at one address have together."""

    server: grpc.aio.Server
    first: RpcServer
    """Whose start is that of all."""
    services: set[RpcServer]
    """Those that have not ended."""


class RpcServer:
    """One service at an address, which is taken from the start; it answers from `serve_...` to `stop`.

    Owns a gRPC server, alone or with the others at the same address (`another`), which are served from the moment on in
    which the first one is: whoever finds one of them there finds all. Whoever ends last stops the server.
    """

    def __init__(self, address: str, server: grpc.aio.Server) -> None:
        """`address` is `host:port` or `unix:/path`; `server` is new. Raises OSError when it cannot be bound."""
        self.address = _bind(server, address)
        """The address with the real port in place of 0."""
        self._shared = _Shared(server, self, {self})
        self._ending = ServiceEnding()

    def another(self) -> RpcServer:
        """One more service at this address, before all at it have ended. It is to be served before this one is."""
        made = copy.copy(self)
        made._ending = ServiceEnding()
        self._shared.services.add(made)
        return made

    async def serve_controller(self, service: ControllerService) -> None:
        from barnabas.messages.controller_pb2 import DESCRIPTOR

        await self._serve(DESCRIPTOR.services_by_name["Controller"], service)

    async def serve_coordinator(
        self, groups: CoordinatorService, transactions: TransactionsService | None = None
    ) -> None:
        from barnabas.messages import coordinator_pb2, transactions_pb2
        from barnabas.rpc.call_handlers import calls_handler
        from barnabas.rpc.coalesced_calls import CALLS

        if transactions is not None:
            contract = transactions_pb2.DESCRIPTOR.services_by_name["TransactionCoordinator"]
            self._add(contract, transactions, {CALLS: calls_handler(contract, transactions, self._ending)})
        contract = coordinator_pb2.DESCRIPTOR.services_by_name["GroupCoordinator"]
        await self._serve(contract, groups, {CALLS: calls_handler(contract, groups, self._ending)})

    async def serve_storage(self, service: StorageService, counts: StorageStreamCounts) -> None:
        """`counts` are those of the node's end of its streams."""
        from barnabas.messages.storage_pb2 import DESCRIPTOR
        from barnabas.rpc.storage_handlers import stream_handlers

        await self._serve(
            DESCRIPTOR.services_by_name["Storage"], service, stream_handlers(service, counts, self._ending)
        )

    async def _serve(
        self, contract: ServiceDescriptor, service: object, streams: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._add(contract, service, streams)
        if self is self._shared.first:
            await self._shared.server.start()

    def _add(
        self, contract: ServiceDescriptor, service: object, streams: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        handlers = {**_handlers(contract, service, self._ending), **streams}
        generic = grpc.method_handlers_generic_handler(contract.full_name, handlers)
        self._shared.server.add_generic_rpc_handlers((generic,))

    async def stop(self, grace_seconds: float | None) -> None:
        """Take no more calls; those under way have `grace_seconds`, or None at all.

        In that time a storage node's streams take nothing more, write the answers of appends that they have been given,
        and end. What takes longer is ended with the server, which may be when another service at the address ends.
        """
        self._ending.set()
        self._shared.services.discard(self)
        if self._shared.services:
            await self._ending.under_way.wait_until_none(grace_seconds)
        else:
            await self._shared.server.stop(grace_seconds)


def make_server() -> grpc.aio.Server:
    """With the limits that every link between services has."""
    return grpc.aio.server(options=[*OPTIONS, ("grpc.so_reuseport", 0)], interceptors=_interceptors())


def _interceptors() -> list[Any]:
    if not is_tracing():
        return []
    from barnabas.rpc.traced_calls import ServerTraces

    return [ServerTraces()]


def _bind(server: grpc.aio.Server, address: str) -> str:
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(
            f"cannot listen at {address}: it is taken, or not an address of this machine"
        ) from error
    if address.startswith("unix:"):
        return address
    return f"{address.rpartition(':')[0]}:{port}"


def _handlers(
    contract: ServiceDescriptor, service: object, ending: ServiceEnding
) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """Those of all calls that are no coalesced streams."""
    calls = [method for method in contract.methods if not method.client_streaming]
    known = [method for method in calls if hasattr(service, method.name)]
    return {method.name: _handler(method, getattr(service, method.name), ending) for method in known}


def _handler(
    method: MethodDescriptor, serve: Callable[[Any], Any], ending: ServiceEnding
) -> grpc.RpcMethodHandler[Any, Any]:
    decode = GetMessageClass(method.input_type).FromString
    encode = GetMessageClass(method.output_type).SerializeToString
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_streaming(serve), decode, encode)
    return grpc.unary_unary_rpc_method_handler(_answering(serve, ending), decode, encode)


def _answering(serve: Callable[[Any], Awaitable[Any]], ending: ServiceEnding) -> Any:
    async def answer(request: Any, context: Any) -> Any:
        try:
            if ending.is_set():  # what shares the address is still served
                raise Unreachable("the service has stopped")
            with ending.under_way:
                return await serve(request)
        except LinkError as error:
            await context.abort(*ending_of(error))

    return answer


def _streaming(serve: Callable[[Any], Any]) -> Any:
    async def stream(request: Any, context: Any) -> None:
        try:
            async with aclosing(serve(request)) as messages:
                async for message in messages:
                    await context.write(message)
        except LinkError as error:
            await context.abort(*ending_of(error))

    return stream
