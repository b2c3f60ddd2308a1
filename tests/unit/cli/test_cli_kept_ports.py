"""Ports that stay bound while the process behind them is started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from barnabas.cli.backoff import BackoffLimits
from barnabas.cli.child import ServiceSpec
from barnabas.cli.kept_ports import KeptPorts
from barnabas.cli.supervisor import SupervisedService, Supervisor, Surroundings
from barnabas.kernel.clock import SystemClock
from barnabas.testing.ports import free_ports

HOST = "127.0.0.1"

SAY_WHO = """
import os, socket
kept = socket.socket(fileno=int(os.environ["BARNABAS_KEPT_SOCKETS"].rpartition("=")[2]))
kept.listen()
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
while True:
    with kept.accept()[0] as client:
        client.sendall(str(os.getpid()).encode())
"""
"""Serves its port; whoever comes hears its process id."""


@pytest.fixture
def sockets() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="barnabas-", dir="/tmp") as path:
        yield Path(path)


@contextlib.asynccontextmanager
async def supervised(
    sockets: Path, port: int, *, first_pause: float = 0.01
) -> AsyncIterator[tuple[SupervisedService, Supervisor]]:
    """A service at `port`, ready, until it is stopped at the end."""
    kept = KeptPorts(HOST, [port])
    spec = ServiceSpec("a", "a", (sys.executable, "-S", "-c", SAY_WHO), ports=(port,), kept=kept)
    backoff = BackoffLimits(first=first_pause, longest=first_pause)
    supervisor = Supervisor([[spec]], Surroundings(sockets, SystemClock(), lambda _: None, backoff=backoff))
    ready = asyncio.Event()
    running = asyncio.create_task(supervisor.run(ready.set))
    await ready.wait()
    try:
        yield supervisor.services[0], supervisor
        supervisor.begin_stopping()
        assert await running == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port))
    finally:
        kept.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port))


async def who_serves(client: socket.socket) -> int:
    reader, writer = await asyncio.open_connection(sock=client)
    try:
        return int(await reader.read())
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_who_connects_while_there_is_no_process_is_served_by_the_next(
    sockets: Path, number: signal.Signals
) -> None:
    port = free_ports(1)
    async with supervised(sockets, port) as (service, _):
        first = service.pid
        assert first is not None
        assert await who_serves(connect(port)) == first
        os.kill(first, number)
        while service.pid == first:
            await asyncio.sleep(0)
        client = connect(port)
        served_by = await who_serves(client)
        await service.wait_ready()
        assert served_by == service.pid != first


async def test_a_service_that_is_held_down_refuses_until_it_is_released(sockets: Path) -> None:
    port = free_ports(1)
    async with supervised(sockets, port) as (service, _):
        await service.hold(signal.SIGKILL)
        with pytest.raises(ConnectionRefusedError):
            connect(port)
        service.release()
        await service.wait_ready()
        assert await who_serves(connect(port)) == service.pid


async def test_a_service_that_is_held_down_twice_serves_when_it_is_released(sockets: Path) -> None:
    """Its process may also end before it has listened: then, too, nobody listens at what is to refuse."""
    port = free_ports(1)
    async with supervised(sockets, port) as (service, _):
        await service.hold(signal.SIGKILL)
        await service.hold(signal.SIGKILL)
        service.release()
        await service.wait_ready()
        assert await who_serves(connect(port)) == service.pid


async def test_a_service_that_is_started_again_much_later_refuses_meanwhile(sockets: Path) -> None:
    port = free_ports(1)
    async with supervised(sockets, port, first_pause=1.5) as (service, _):
        assert service.pid is not None
        os.kill(service.pid, signal.SIGKILL)
        while service.restarts == 0:
            await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            connect(port)


def test_shared_ports_refuse_once_nobody_is_there_for_any_of_them() -> None:
    """The other process serves them meanwhile; a socket that is shut down would serve nobody."""
    port = free_ports(2)
    with (
        contextlib.closing(KeptPorts(HOST, [port])) as kept,
        contextlib.closing(KeptPorts(HOST, [port + 1])) as other,
    ):
        kept.share_with([other])
        other.share_with([kept])
        (described,) = kept.environment.values()
        assert {entry.partition("=")[0] for entry in described.split()} == {
            f"{HOST}|{port}",
            f"{HOST}|{port + 1}",
        }
        assert set(kept.descriptors) == set(other.descriptors)
        for descriptor in kept.descriptors:
            with socket.socket(fileno=os.dup(descriptor)) as sock:
                sock.listen()
        kept.refuse()
        connect(port).close()
        kept.on_process()
        other.refuse()
        connect(port + 1).close()
        kept.refuse()
        for number in (port, port + 1):
            with pytest.raises(ConnectionRefusedError):
                connect(number)


def test_a_port_that_is_taken_is_refused_and_the_others_are_let_go() -> None:
    first = free_ports(2)
    with socket.create_server((HOST, first + 1)), pytest.raises(OSError, match="in use"):
        KeptPorts(HOST, [first, first + 1])
    with socket.create_server((HOST, first)):
        pass


def test_nothing_is_kept_where_a_name_is_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092)),
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9092, 0, 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    kept = KeptPorts("localhost", [9092])
    assert (kept.descriptors, kept.environment) == ((), {})


def test_both_kinds_of_addresses_are_kept() -> None:
    port = free_ports(1)
    with (
        contextlib.closing(KeptPorts("0.0.0.0", [port])) as kept,
        contextlib.closing(KeptPorts("::", [port])) as of_the_other_kind,
    ):
        assert len(kept.descriptors) == len(of_the_other_kind.descriptors) == 1
