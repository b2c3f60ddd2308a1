"""The client's end of gRPC on a `VirtualNetwork`: of `grpc.aio.Channel` what `barnabas.rpc` asks of it.

So everything above it is the services' own: which calls there are, how messages are packed, what becomes of requests
when a stream breaks. A channel has one connection at a time, makes it when a call needs it, and lets its address rest
for a moment after it could not be reached.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
import grpc.aio
from virtual_loop import Life
from virtual_network import TO_SERVER, Connection, Stream, VirtualNetwork

REST_SECONDS_MIN: Final = 0.05
REST_SECONDS_MAX: Final = 0.5

Convert = Callable[[Any], Any] | None


class VirtualChannel:
    """Owner of the connection to one address, and of the calls on it."""

    def __init__(self, network: VirtualNetwork, host: str, life: Life, address: str) -> None:
        self._network = network
        self._host = host
        self._life = life
        self._address = address
        self._end: ClientEnd | None = None
        self._waiting: list[VirtualCall] = []
        self._is_connecting = False
        self._is_closed = False
        self._rests_until = 0.0
        self._rest_seconds = REST_SECONDS_MIN

    def unary_unary(self, path: str, encode: Convert = None, decode: Convert = None) -> Callable[..., Any]:
        def ask(request: Any, *, timeout: float | None = None, metadata: Any = None) -> Any:
            call = self._begin(path, encode, decode, timeout, metadata)
            call.put(request)
            call.half_close()
            return call.answer()

        return ask

    def unary_stream(self, path: str, encode: Convert = None, decode: Convert = None) -> Callable[..., Any]:
        def ask(request: Any, *, timeout: float | None = None, metadata: Any = None) -> VirtualCall:
            call = self._begin(path, encode, decode, timeout, metadata)
            call.put(request)
            call.half_close()
            return call

        return ask

    def stream_stream(self, path: str, encode: Convert = None, decode: Convert = None) -> Callable[..., Any]:
        def ask(
            requests: AsyncIterator[Any] | None = None, *, timeout: float | None = None, metadata: Any = None
        ) -> VirtualCall:
            call = self._begin(path, encode, decode, timeout, metadata)
            if requests is not None:
                call.give_all(requests)
            return call

        return ask

    async def close(self, grace: float | None = None) -> None:
        self._is_closed = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call.cancel()
        if self._end is not None:
            self._end.close()

    def _begin(
        self, path: str, encode: Convert, decode: Convert, timeout: float | None, metadata: Any
    ) -> VirtualCall:
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        call = VirtualCall(path, encode, decode, timeout, metadata)
        loop = asyncio.get_running_loop()
        if self._end is not None:
            call.attach(self._end)
        elif loop.time() < self._rests_until:
            loop.call_soon(
                call.on_end, grpc.StatusCode.UNAVAILABLE, f"{self._address} could not be reached", ()
            )
        else:
            self._waiting.append(call)
            self._connect()
        return call

    def _connect(self) -> None:
        if not self._is_connecting:
            self._is_connecting = True
            self._network.connect(self._host, self._life, self._address, self._on_open, self._on_failed)

    def _on_open(self, connection: Connection) -> ClientEnd:
        self._is_connecting = False
        self._rest_seconds = REST_SECONDS_MIN
        self._end = end = ClientEnd(self, connection)
        if self._is_closed:
            end.close()
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call.attach(end)
        return end

    def _on_failed(self, reason: str) -> None:
        self._is_connecting = False
        self._rests_until = asyncio.get_running_loop().time() + self._rest_seconds
        self._rest_seconds = min(self._rest_seconds * 1.6, REST_SECONDS_MAX)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            said = f"failed to connect to all addresses; last error: {self._address}: {reason}"
            call.on_end(grpc.StatusCode.UNAVAILABLE, said, ())

    def on_broken(self, end: ClientEnd) -> None:
        if self._end is end:
            self._end = None


class ClientEnd:
    """Owner of the calls on one connection."""

    def __init__(self, channel: VirtualChannel, connection: Connection) -> None:
        self._channel = channel
        self._connection = connection
        self._calls: dict[int, VirtualCall] = {}
        self._ids = itertools.count(1)

    def begin(self, call: VirtualCall) -> int:
        number = next(self._ids)
        self._calls[number] = call
        return number

    def send(self, stream: Stream, kind: str, number: int, payload: Any, size_bytes: int = 0) -> None:
        connection = self._connection
        connection.send(TO_SERVER, stream, size_bytes, _to_server, connection, kind, number, payload)

    def on_frame(self, kind: str, number: int, payload: Any) -> None:
        call = self._calls.get(number)
        if call is None:
            return
        trace, (client, server) = self._connection.network.trace, self._connection.hosts
        size = f" {len(payload)} bytes" if kind == "message" else ""
        trace.say(client, f"<{server} {call.name}#{number} {kind}{size}")
        if kind == "message":
            call.on_message(payload)
        elif kind == "headers":
            call.on_headers()
        else:
            del self._calls[number]
            call.on_end(*payload)

    def forget(self, number: int) -> None:
        self._calls.pop(number, None)

    def on_broken(self, reason: str) -> None:
        trace, (client, server) = self._connection.network.trace, self._connection.hosts
        trace.say(client, f"connection to {server} broke: {reason}")
        self._channel.on_broken(self)
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.on_end(grpc.StatusCode.UNAVAILABLE, reason, ())

    def close(self) -> None:
        """The channel is closed."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.on_closed()
        self._channel.on_broken(self)
        self._connection.ends[0] = None
        self._connection.break_off("the client closed the connection")


def _to_server(connection: Connection, kind: str, number: int, payload: Any) -> None:
    end = connection.ends[1]
    if end is not None:
        end.on_frame(kind, number, payload)  # type: ignore[attr-defined]


class VirtualCall:
    """One call, of any kind, as the client has it."""

    def __init__(
        self, path: str, encode: Convert, decode: Convert, timeout: float | None, metadata: Any
    ) -> None:
        self.name = path.rpartition("/")[2]
        self._path = path
        self._encode = encode
        self._decode = decode
        self._metadata = tuple(metadata or ())
        self._end: ClientEnd | None = None
        self._number = 0
        self._up = Stream(self.name)
        self._unsent: list[tuple[str, Any, int]] = []
        self._incoming: deque[bytes] = deque()
        self._has_headers = False
        self._is_cancelled = False
        self._outcome: tuple[grpc.StatusCode, str, tuple[Any, ...]] | None = None
        self._changed = asyncio.Event()
        self._giving: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        if timeout is not None:
            self._deadline = asyncio.get_running_loop().call_later(timeout, self._on_deadline)

    # -- what comes ---------------------------------------------------------------------------------------------

    def attach(self, end: ClientEnd) -> None:
        """There is a connection."""
        if self._outcome is not None:
            return
        self._end, self._number = end, end.begin(self)
        self._send("begin", (self._path, self._metadata))
        unsent, self._unsent = self._unsent, []
        for kind, payload, size in unsent:
            self._send(kind, payload, size)

    def on_headers(self) -> None:
        self._has_headers = True
        self._changed.set()

    def on_message(self, data: bytes) -> None:
        self._has_headers = True
        self._incoming.append(data)
        self._changed.set()

    def on_end(self, code: grpc.StatusCode, details: str, trailing: tuple[Any, ...]) -> None:
        if self._outcome is None:
            self._outcome = code, details, trailing
            self._settle()

    def on_closed(self) -> None:
        self._is_cancelled = True
        self.on_end(grpc.StatusCode.CANCELLED, "Locally cancelled by application!", ())

    def _on_deadline(self) -> None:
        self._leave()
        self.on_end(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ())

    def _settle(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._giving is not None:
            self._giving.cancel()
        self._unsent.clear()
        self._changed.set()

    # -- what the caller does -----------------------------------------------------------------------------------

    def _send(self, kind: str, payload: Any, size: int = 0) -> None:
        if self._end is None:
            self._unsent.append((kind, payload, size))
        else:
            self._end.send(self._up, kind, self._number, payload, size)

    def put(self, message: Any) -> None:
        data = message if self._encode is None else self._encode(message)
        self._send("message", data, len(data))

    def half_close(self) -> None:
        self._send("half-close", None)

    def give_all(self, messages: AsyncIterator[Any]) -> None:
        """Send them as they come."""

        async def give() -> None:
            try:
                async for message in messages:
                    await self.write(message)
                self.half_close()
            except Exception:
                self.cancel()
                raise

        self._giving = asyncio.get_running_loop().create_task(give())

    async def write(self, message: Any) -> None:
        if self._outcome is not None:
            raise asyncio.InvalidStateError("RPC already finished.")
        self.put(message)
        await asyncio.sleep(0)

    async def done_writing(self) -> None:
        self.half_close()

    async def wait_for_connection(self) -> None:
        while not self._has_headers and self._outcome is None:
            await self._change()
        if not self._has_headers:
            self._raise()

    async def read(self) -> Any:
        while True:
            if self._incoming:
                data = self._incoming.popleft()
                return data if self._decode is None else self._decode(data)
            if self._outcome is not None:
                if self._outcome[0] is grpc.StatusCode.OK:
                    return grpc.aio.EOF
                self._raise()
            await self._change()

    async def answer(self) -> Any:
        """That of a call with one."""
        message = await self.read()
        assert message is not grpc.aio.EOF, f"{self.name} ended without an answer"
        return message

    async def _change(self) -> None:
        self._changed.clear()
        try:
            await self._changed.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise

    def _raise(self) -> None:
        assert self._outcome is not None
        if self._is_cancelled:
            raise asyncio.CancelledError
        code, details, trailing = self._outcome
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)

    def __aiter__(self) -> VirtualCall:
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is grpc.aio.EOF:
            raise StopAsyncIteration
        return message

    def cancel(self) -> bool:
        if self._outcome is not None:
            return False
        self._leave()
        self.on_closed()
        return True

    def _leave(self) -> None:
        """Nobody waits for the server any more."""
        if self._end is not None and self._outcome is None:
            self._end.forget(self._number)
            self._send("cancel", None)
