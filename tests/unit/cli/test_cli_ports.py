"""Ports that a cluster takes: they are free, and nobody else's while it lives."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from barnabas.cli.options import UpOptions, UpRefused
from barnabas.cli.ports import take_ports
from barnabas.kernel.service import EXIT_USER_ERROR
from barnabas.testing.ports import free_ports


def take(*, host: str = "127.0.0.1", port: int = 9092, **changes: int) -> contextlib.ExitStack:
    """The claims on the ports of a cluster with these flags."""
    with contextlib.ExitStack() as claims:
        take_ports(UpOptions(host=host, port=port, data_dir=Path("data"), **changes), claims)  # type: ignore[arg-type]
        return claims.pop_all()


def reserved(port: int = 0) -> socket.socket:
    """A socket that keeps `port` (0: any) for this test: bound but not listening, so that it still counts as free.

    Both it and the check set SO_REUSEADDR, which lets two sockets share a port while neither of them listens; the
    kernel gives such a port to no other process that asks for any. Raises OSError when the port is in use.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


def free_port_before_a_taken_one() -> tuple[socket.socket, socket.socket]:
    """Two sockets at successive ports, the first reserved, the second listening.

    The port before one that the kernel chose may be another process's: such a pair is given back and another taken.
    """
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            return reserved(taken.getsockname()[1] - 1), taken
        except OSError:
            taken.close()


@pytest.mark.parametrize("offset", [0, 1])
def test_a_taken_port_is_named_with_its_flag(offset: int) -> None:
    free, taken = free_port_before_a_taken_one()
    with free, taken:
        port = taken.getsockname()[1]
        with pytest.raises(UpRefused, match=f"port {port} on 127.0.0.1 is taken.*--port"):
            take(port=port - offset, nodes=2)


def test_a_taken_http_port_is_named_with_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, reserved() as free:
        port = taken.getsockname()[1]
        with pytest.raises(UpRefused, match=f"port {port} .*--http-port"):
            take(port=free.getsockname()[1], http_port=port)


def test_a_refusal_has_the_status_of_a_service_that_refuses() -> None:
    assert UpRefused("no").status == EXIT_USER_ERROR


def test_a_listener_that_shares_its_port_still_holds_it() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken,
        pytest.raises(UpRefused, match="is taken"),
    ):
        take(port=taken.getsockname()[1])


def test_a_host_that_is_not_this_machine_is_refused() -> None:
    with pytest.raises(UpRefused, match=r"--host 203.0.113.7 is no address of this machine"):
        take(host="203.0.113.7")


def test_what_another_cluster_has_is_taken_also_while_none_of_its_services_listens() -> None:
    """Each of them may share its port with whoever comes later."""
    port = free_ports(4)
    with take(port=port, nodes=2, http_port=port + 2):
        for taken in (port, port + 1):
            with pytest.raises(
                UpRefused, match=f"port {taken} on 127.0.0.1 is taken by another `barnabas up`: .*--port"
            ):
                take(port=taken, http_port=port + 3)
        with pytest.raises(
            UpRefused, match=f"port {port + 2} on 127.0.0.1 is taken by another `barnabas up`: .*--http-port"
        ):
            take(port=port + 3, http_port=port + 2)
    take(port=port, nodes=2, http_port=port + 2).close()


def test_a_start_that_is_refused_claims_nothing() -> None:
    port = free_ports(3)
    with take(port=port + 1, http_port=port + 2), pytest.raises(UpRefused, match=f"port {port + 1} "):
        take(port=port, nodes=2)
    take(port=port, nodes=2, http_port=port + 2).close()


@pytest.mark.parametrize(("first", "second"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0")])
def test_who_has_a_port_of_all_addresses_has_it_of_each(first: str, second: str) -> None:
    port = free_ports(2)
    with (
        take(host=first, port=port, http_port=port + 1),
        pytest.raises(UpRefused, match=f"port {port} on {second} is taken"),
    ):
        take(host=second, port=port, http_port=port + 1)


def test_a_port_of_another_address_is_another_port() -> None:
    port = free_ports(2)
    with (
        take(host="127.0.0.1", port=port, http_port=port + 1),
        take(host="127.0.0.2", port=port, http_port=port + 1),
    ):
        pass


def test_names_that_cannot_be_read_are_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("barnabas.cli.ports.SOCKETS_OF_ALL", tmp_path / "none")
    port = free_ports(2)
    with take(port=port, http_port=port + 1):
        pass


def test_a_name_of_several_addresses_is_claimed_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateways listen at all of them, as they do for `localhost` on most machines."""
    find, port = socket.getaddrinfo, free_ports(2)

    def several(host: str, port: int, **hints: int) -> list[object]:
        hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.2") if host == "several.test" else (host,)
        return [each for name in hosts for each in find(name, port, **hints)]

    monkeypatch.setattr(socket, "getaddrinfo", several)
    with take(host="several.test", port=port, http_port=port + 1):
        for host in ("127.0.0.1", "127.0.0.2"):
            with pytest.raises(UpRefused, match=f"port {port} on {host} is taken"):
                take(host=host, port=port, http_port=port + 1)
    take(host="127.0.0.2", port=port, http_port=port + 1).close()
