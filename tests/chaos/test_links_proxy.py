"""The proxy between services: it shows that a process is gone, breaks connections, and is silent while told to be."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_processes import Links, wait_for

from barnabas.testing.ports import free_ports

WAIT_SECONDS = 20.0


class Echo(threading.Thread):
    """A service that says what it is told."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.loop = asyncio.new_event_loop()
        self._port = port
        self._served = threading.Event()
        self._stopping = asyncio.Event()

    def run(self) -> None:
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self) -> None:
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            with contextlib.suppress(OSError):
                while data := await reader.read(1000):
                    writer.write(data)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", self._port)
        self._served.set()
        await self._stopping.wait()
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    def __enter__(self) -> Echo:
        self.start()
        assert self._served.wait(WAIT_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._stopping.set)
        self.join(WAIT_SECONDS)


@pytest.fixture
def ports() -> tuple[int, int]:
    first = free_ports(2)
    return first, first + 1


@pytest.fixture
def links(tmp_path: Path, ports: tuple[int, int]) -> Iterator[Links]:
    links = Links(tmp_path / "log")
    assert links.add("here>there", *ports) == f"127.0.0.1:{ports[0]}"
    assert links.matching([">there"]) == ["here>there"]
    assert links.matching(["there>"]) == []
    links.start()
    try:
        yield links
    finally:
        links.close()


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), WAIT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False


def connect(port: int) -> socket.socket:
    wait_for(lambda: not is_refused(port), "the door is open", WAIT_SECONDS)
    return socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)


def test_where_nobody_listens_behind_it_connections_are_refused(links: Links, ports: tuple[int, int]) -> None:
    assert is_refused(ports[0])
    with Echo(ports[1]), connect(ports[0]) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
    # Who hears that its connection broke finds the door shut.
    with contextlib.suppress(ConnectionResetError):
        assert client.fileno() == -1 or client.recv(1) == b""
    wait_for(lambda: is_refused(ports[0]), "the door is shut", WAIT_SECONDS)
    with Echo(ports[1]), connect(ports[0]) as client:
        client.sendall(b"again")
        assert client.recv(100) == b"again"


def test_a_broken_link_resets_connections_and_takes_new_ones(links: Links, ports: tuple[int, int]) -> None:
    with Echo(ports[1]), connect(ports[0]) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        links.break_all("here>there")
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
        with connect(ports[0]) as another:
            another.sendall(b"b")
            assert another.recv(1) == b"b"


def test_a_silent_link_passes_nothing_and_loses_nothing(links: Links, ports: tuple[int, int]) -> None:
    with Echo(ports[1]), connect(ports[0]) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        links.silence("here>there")
        client.sendall(b"b")
        with socket.create_connection(("127.0.0.1", ports[0]), WAIT_SECONDS) as newcomer:
            newcomer.sendall(b"c")
            client.settimeout(0.3)
            newcomer.settimeout(0.1)
            for each in (client, newcomer):
                with pytest.raises(TimeoutError):
                    each.recv(1)
            links.heal("here>there")
            healed = time.monotonic()
            client.settimeout(WAIT_SECONDS)
            newcomer.settimeout(WAIT_SECONDS)
            assert client.recv(1) == b"b"
            assert newcomer.recv(1) == b"c"
            assert time.monotonic() - healed < WAIT_SECONDS
