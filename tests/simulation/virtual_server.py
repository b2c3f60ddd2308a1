"""The server's end of gRPC on a `VirtualNetwork`: of `grpc.aio.server` what `barnabas.rpc.server` asks of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc
import grpc.aio
from virtual_loop import Life
from virtual_network import TO_CLIENT, Connection, Stream, VirtualNetwork


class Details(NamedTuple):
    """A grpc.HandlerCallDetails."""

    method: str
    invocation_metadata: tuple[tuple[str, str], ...] = ()


class VirtualServer:
    """Owner of one address, while it is served, and of the calls that are answered there."""

    def __init__(self, network: VirtualNetwork, host: str, life: Life) -> None:
        self.network = network
        self.host = host
        self.life = life
        self.calls: dict[ServerCall, None] = {}
        self._ends: dict[ServerEnd, None] = {}
        self._handlers: list[Any] = []
        self._address = ""
        self._is_stopping = False

    def add_insecure_port(self, address: str) -> int:
        if address in self.network.listeners:
            raise RuntimeError(f"{address} is taken")
        self._address = address
        return int(address.rpartition(":")[2])

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        self._handlers += handlers

    async def start(self) -> None:
        self.network.listeners[self._address] = self

    async def stop(self, grace: float | None) -> None:
        if self.network.listeners.get(self._address) is self:
            del self.network.listeners[self._address]
        self._is_stopping = True
        if grace and self.calls:
            await asyncio.wait([call.task for call in self.calls], timeout=grace)
        for call in list(self.calls):
            call.task.cancel()
        if self.calls:
            await asyncio.wait([call.task for call in self.calls])
        for end in list(self._ends):
            end.close()

    def accept(self, connection: Connection) -> ServerEnd:
        end = ServerEnd(self, connection)
        self._ends[end] = None
        return end

    def forget(self, end: ServerEnd) -> None:
        self._ends.pop(end, None)

    def handler(self, path: str) -> Any:
        """None when it is stopping, or knows no such call."""
        if self._is_stopping:
            return None
        for generic in self._handlers:
            found = generic.service(Details(path))
            if found is not None:
                return found
        return None


class ServerEnd:
    """Owner of the calls of one connection."""

    def __init__(self, server: VirtualServer, connection: Connection) -> None:
        self._server = server
        self.connection = connection
        self._calls: dict[int, ServerCall] = {}

    def on_frame(self, kind: str, number: int, payload: Any) -> None:
        client, host = self.connection.hosts
        if kind == "begin":
            path, metadata = payload
            self._server.network.trace.say(host, f"<{client} {path.rpartition('/')[2]}#{number} begin")
            self._begin(number, path, metadata)
            return
        call = self._calls.get(number)
        if call is None:
            return
        size = f" {len(payload)} bytes" if kind == "message" else ""
        self._server.network.trace.say(host, f"<{client} {call.name}#{number} {kind}{size}")
        if kind == "message":
            call.on_message(payload)
        elif kind == "half-close":
            call.on_half_close()
        else:
            call.task.cancel()

    def _begin(self, number: int, path: str, metadata: tuple[tuple[str, str], ...]) -> None:
        handler = self._server.handler(path)
        call = ServerCall(self, number, path, metadata, handler)
        if handler is None:
            call.finish(grpc.StatusCode.UNAVAILABLE, "the server does not take it")
            return
        self._calls[number] = call
        self._server.calls[call] = None
        context = self._server.life.context.copy()
        call.task = asyncio.get_running_loop().create_task(call.run(), name=call.name, context=context)
        call.task.add_done_callback(lambda _: self._on_done(call))

    def _on_done(self, call: ServerCall) -> None:
        self._calls.pop(call.number, None)
        self._server.calls.pop(call, None)

    def send(self, stream: Stream, kind: str, number: int, payload: Any, size_bytes: int = 0) -> None:
        connection = self.connection
        connection.send(TO_CLIENT, stream, size_bytes, _to_client, connection, kind, number, payload)

    def on_broken(self, reason: str) -> None:
        client, host = self.connection.hosts
        self._server.network.trace.say(host, f"connection from {client} broke: {reason}")
        self._server.forget(self)
        for call in list(self._calls.values()):
            call.task.cancel()

    def close(self) -> None:
        """The server has stopped."""
        self._server.forget(self)
        self.connection.ends[1] = None
        self.connection.break_off("the server closed the connection")


def _to_client(connection: Connection, kind: str, number: int, payload: Any) -> None:
    end = connection.ends[0]
    if end is not None:
        end.on_frame(kind, number, payload)  # type: ignore[attr-defined]


class ServerCall:
    """One call, of any kind, as its handler has it: a grpc.aio.ServicerContext."""

    task: asyncio.Task[None]

    def __init__(self, end: ServerEnd, number: int, path: str, metadata: Any, handler: Any) -> None:
        self.name = path.rpartition("/")[2]
        self.number = number
        self._end = end
        self._metadata = metadata
        self._handler = handler
        self._down = Stream()
        self._incoming: deque[bytes] = deque()
        self._is_half_closed = False
        self._changed = asyncio.Event()
        self._is_finished = False

    async def run(self) -> None:
        try:
            await self._serve()
            self.finish(grpc.StatusCode.OK, "")
        except grpc.aio.AbortError:
            pass
        except asyncio.CancelledError:
            self.finish(grpc.StatusCode.UNAVAILABLE, "the server ended the call")
        except Exception as error:
            self.finish(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}")
            raise

    async def _serve(self) -> None:
        handler = self._handler
        request = self if handler.request_streaming else await self._next()
        if not handler.response_streaming:
            await self.write(await handler.unary_unary(request, self))
            return
        serve = handler.stream_stream if handler.request_streaming else handler.unary_stream
        serving = serve(request, self)
        if hasattr(serving, "__aiter__"):
            async for message in serving:
                await self.write(message)
        else:
            await serving

    # -- requests -----------------------------------------------------------------------------------------------

    def on_message(self, data: bytes) -> None:
        self._incoming.append(data)
        self._changed.set()

    def on_half_close(self) -> None:
        self._is_half_closed = True
        self._changed.set()

    def __aiter__(self) -> ServerCall:
        return self

    async def __anext__(self) -> Any:
        return await self._next()

    async def _next(self) -> Any:
        while not self._incoming:
            if self._is_half_closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        data, decode = self._incoming.popleft(), self._handler.request_deserializer
        return data if decode is None else decode(data)

    # -- the context --------------------------------------------------------------------------------------------

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return tuple(self._metadata)

    async def send_initial_metadata(self, _: object) -> None:
        self._end.send(self._down, "headers", self.number, None)

    async def write(self, message: Any) -> None:
        if self._is_finished:
            raise grpc.aio.InternalError("the connection is gone")
        encode = self._handler.response_serializer
        data = message if encode is None else encode(message)
        self._end.send(self._down, "message", self.number, data, len(data))
        await asyncio.sleep(0)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing: Any = ()) -> None:
        self.finish(code, details, tuple(trailing))
        raise grpc.aio.AbortError("Locally aborted.")

    def finish(self, code: grpc.StatusCode, details: str, trailing: tuple[Any, ...] = ()) -> None:
        if not self._is_finished:
            self._is_finished = True
            self._end.send(self._down, "end", self.number, (code, details, trailing))
