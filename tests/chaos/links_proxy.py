"""A program between services: every connection goes through it, so that a link can be broken, or be silent for a while.

    python links_proxy.py    stdin: a line of JSON, [[name, port, port behind it], ...]; then lines as `silence NAME`,
                             `heal NAME`, `break NAME`; each is answered with a line once it is done

Where nobody listens behind a link, nobody does before it: whoever asks hears that the process is gone, as without a
proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Final

HOST: Final = "127.0.0.1"
LOOK_SECONDS: Final = 0.02
"""How often is looked whether somebody listens again behind a link."""


class End(asyncio.Protocol):
    """One side of a connection."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.transport: asyncio.Transport | None = None
        self.other: End | None = None
        self.is_held = False
        """Whether the other side takes nothing at the moment."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.link.ends.append(self)
        # Not now: Python 3.11.2 begins to read after this, paused or not. Nothing is read before it comes to that.
        asyncio.get_running_loop().call_soon(self.read_or_not)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        assert self.other.transport is not None
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.hold(is_held=True)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.hold(is_held=False)

    def hold(self, *, is_held: bool) -> None:
        self.is_held = is_held
        self.read_or_not()

    def read_or_not(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self.is_held or self.link.is_silent or self.other is None:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def eof_received(self) -> bool:
        if self.other is not None and self.other.transport is not None:
            with contextlib.suppress(OSError):
                self.other.transport.write_eof()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        del error
        if self in self.link.ends:
            self.link.ends.remove(self)
        if self.other is not None and self.other.transport is not None:
            # What came before it is told first.
            self.other.transport.close()


class Front(End):
    """The side of who connected."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.task = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        assert self.transport is not None
        await self.link.until_heard()
        try:
            _, behind = await asyncio.get_running_loop().create_connection(
                lambda: Back(self.link), HOST, self.link.target
            )
        except OSError:
            await self.link.close_door()
            self.transport.abort()
            return
        if self.transport.is_closing():
            assert behind.transport is not None
            behind.transport.close()
            return
        self.other, behind.other = behind, self
        self.read_or_not()
        behind.read_or_not()


class Back(End):
    """The side of the service."""

    def connection_lost(self, error: Exception | None) -> None:
        self.task = asyncio.ensure_future(self._lost(error))

    async def _lost(self, error: Exception | None) -> None:
        # Who hears that the connection broke looks at once whether the process is there.
        if not await self.link.somebody_listens():
            await self.link.close_door()
        await self.link.until_heard()
        super().connection_lost(error)


class Link:
    """Owns one listening port and the connections that came in at it."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.target = target
        self.ends: list[End] = []
        self.is_silent = False
        self._heard = asyncio.Event()
        self._heard.set()
        self._server: asyncio.Server | None = None
        self._door: asyncio.Task[None] | None = None

    async def until_heard(self) -> None:
        await self._heard.wait()

    async def somebody_listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(HOST, self.target)
        except OSError:
            return False
        writer.close()
        return True

    async def close_door(self) -> None:
        """Listen no more, until somebody listens behind it."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._door is None or self._door.done():
            self._door = asyncio.ensure_future(self.open_door())

    async def open_door(self) -> None:
        while not await self.somebody_listens():
            await asyncio.sleep(LOOK_SECONDS)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Front(self), HOST, self.port, backlog=1024
        )

    def silence(self) -> None:
        """Nothing passes from now on; nothing is lost either."""
        self.is_silent = True
        self._heard.clear()
        for end in list(self.ends):
            end.read_or_not()

    def heal(self) -> None:
        self.is_silent = False
        self._heard.set()
        for end in list(self.ends):
            end.read_or_not()

    def break_all(self) -> None:
        """All connections end with a reset; new ones are taken."""
        for end in list(self.ends):
            if end.transport is not None:
                end.transport.abort()


async def serve(lines: asyncio.StreamReader) -> None:
    links: dict[str, Link] = {}
    for name, port, target in json.loads(await lines.readline()):
        links[name] = Link(port, target)
        await links[name].close_door()
    print("ready", flush=True)
    while line := (await lines.readline()).decode().split():
        word, name = line
        getattr(links[name], {"break": "break_all"}.get(word, word))()
        print("done", flush=True)


async def main() -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await serve(lines)


if __name__ == "__main__":
    asyncio.run(main())
