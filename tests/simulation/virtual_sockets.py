"""Sockets on a `VirtualNetwork`, as asyncio gives them to clients and to who serves them: bytes in their order.

Bytes come in other pieces than those in which they were sent. Nobody asks after a peer that is silent, as gRPC does:
a connection whose way is cut is there until somebody closes it or its peer's end is noticed, and what was stuck on it
arrives late.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, cast

from virtual_loop import OWNER, Life
from virtual_network import Connection, Stream, VirtualNetwork

CLIENT: Final = 0
SERVER: Final = 1
"""The sides of a connection, as `Connection.ends` has them."""

SPLIT: Final = 0.03
"""How often what is written at a time arrives in two pieces."""

END_OF_FILE: Final = b""

MakeProtocol = Callable[[], asyncio.Protocol]


TCP_ESTABLISHED: Final = b"\1"
TCP_CLOSE_WAIT: Final = b"\10"


class VirtualSocket:
    """What is asked of a socket itself."""

    def __init__(self, unread: Collection[bytes]) -> None:
        self._unread = unread

    def setsockopt(self, *_: int) -> None:
        """It has no options."""

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """Of TCP_INFO the first byte, its state."""
        assert (level, option, size) == (socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        return TCP_CLOSE_WAIT if END_OF_FILE in self._unread else TCP_ESTABLISHED


class VirtualTransport(asyncio.Transport):
    """One end of a connection; owner of what has come while its protocol does not read."""

    def __init__(self, connection: Connection, side: int, protocol: asyncio.Protocol) -> None:
        super().__init__()
        connection.is_kept_alive = False
        self._connection = connection
        self._side = side
        self._protocol = protocol
        self._stream = Stream()
        self._unread: deque[bytes] = deque()
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._has_ended_writing = False

    # -- what comes ---------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """The protocol hears of it."""
        self._protocol.connection_made(self)

    def on_bytes(self, data: bytes) -> None:
        self._unread.append(data)
        self._give()

    def _give(self) -> None:
        while self._unread and self._is_reading and not self._is_closing:
            data = self._unread.popleft()
            if data != END_OF_FILE:
                self._protocol.data_received(data)
            elif not self._protocol.eof_received():
                self.close()

    def on_broken(self, reason: str) -> None:
        self._end(ConnectionResetError(errno.ECONNRESET, reason))

    def _end(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_closing = self._is_lost = True
        ends = self._connection.ends
        ends[self._side] = None
        if ends == [None, None]:
            self._connection.network.forget(self._connection)
        self._protocol.connection_lost(error)

    # -- what asyncio's transports do -----------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        own, peer = self._connection.hosts[self._side], self._connection.hosts[1 - self._side]
        return {"socket": VirtualSocket(self._unread), "peername": (peer, 0), "sockname": (own, 0)}.get(
            name, default
        )

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data and not (self._is_closing or self._has_ended_writing):
            self._send(bytes(data))

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(pieces))

    def _send(self, data: bytes) -> None:
        chance = self._connection.network.chance
        if len(data) > 1 and chance.random() < SPLIT:
            middle = chance.randint(1, len(data) - 1)
            self._send(data[:middle])
            data = data[middle:]
        self._connection.send(
            self._side, self._stream, len(data), _deliver, self._connection, 1 - self._side, data
        )

    def write_eof(self) -> None:
        if not self._has_ended_writing:
            self._has_ended_writing = True
            self._send(END_OF_FILE)

    def close(self) -> None:
        if not self._is_closing:
            self.write_eof()
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._end, None)

    def abort(self) -> None:
        if not self._is_lost:
            self._is_closing = True
            self._connection.ends[self._side] = None
            self._connection.break_off("connection reset by peer")
            asyncio.get_running_loop().call_soon(self._end, None)

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self._give)

    def get_write_buffer_size(self) -> int:
        return 0


def _deliver(connection: Connection, side: int, data: bytes) -> None:
    end = connection.ends[side]
    if end is not None:
        cast(VirtualTransport, end).on_bytes(data)


class VirtualPort:
    """A port that is taken, and listened at while it serves: of an asyncio.Server what is asked of one."""

    def __init__(
        self, network: VirtualNetwork, life: Life, address: str, make_protocol: MakeProtocol
    ) -> None:
        self.life = life
        self.host = life.name
        self._network = network
        self._address = address
        self._make_protocol = make_protocol

    def is_serving(self) -> bool:
        return self._network.listeners.get(self._address) is self

    async def start_serving(self) -> None:
        self._network.listeners.setdefault(self._address, self)
        if not self.is_serving():
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def close(self) -> None:
        if self.is_serving():
            del self._network.listeners[self._address]

    def accept(self, connection: Connection) -> VirtualTransport:
        transport = VirtualTransport(connection, SERVER, self._make_protocol())
        asyncio.get_running_loop().call_soon(transport.connect, context=self.life.context.copy())
        return transport


async def listen(
    network: VirtualNetwork, make_protocol: MakeProtocol, address: str, *, starts_serving: bool
) -> VirtualPort:
    """Take `address` for the process that asks."""
    life = OWNER.get()
    assert life is not None, "somebody listens"
    port = VirtualPort(network, life, address, make_protocol)
    if starts_serving:
        await port.start_serving()
    return port


async def connect(network: VirtualNetwork, address: str, protocol: asyncio.Protocol) -> None:
    """Connect `protocol`. Raises ConnectionError."""
    life = OWNER.get()
    assert life is not None, "somebody connects"
    opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_open(connection: Connection) -> VirtualTransport:
        transport = VirtualTransport(connection, CLIENT, protocol)
        transport.connect()
        if opened.done():
            asyncio.get_running_loop().call_soon(transport.close)
        else:
            opened.set_result(None)
        return transport

    def on_failed(reason: str) -> None:
        if not opened.done():
            opened.set_exception(ConnectionError(reason))

    network.connect(life.name, life, address, on_open, on_failed)
    await opened
