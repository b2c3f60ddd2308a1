"""Whether the ports that a cluster needs are free, asked before anything starts."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import Final

from barnabas.cli.options import UpOptions, UpRefused

ANSWER_SECONDS_MAX: Final = 1.0
"""How long one address may take to be connected to."""


def check_ports(options: UpOptions) -> None:
    """Raise UpRefused for the first port that cannot be bound, with the flag that moves it."""
    for port in options.kafka_ports:
        _check(options.host, port, "--port")
    _check(options.host, options.http_port, "--http-port")


def any_answers(endpoints: Iterable[str]) -> bool:
    """Whether somebody listens at one of the `host:port`s, asked once; what is not written like that counts."""
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        if "/" in host:
            return True  # the controller says what is wrong with it
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS_MAX):
                return True
        except ValueError:
            return True
        except OSError:
            continue
    return False


def _check(host: str, port: int, flag: str) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise UpRefused(f"--host {host} is no address of this machine ({error.strerror})") from error
    with socket.socket(family, kind, protocol) as sock:
        # Connections of an earlier cluster that are still closing do not hold a port; a listener does, because
        # SO_REUSEPORT is not set here.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(address)
            sock.listen(1)
        except OSError as error:
            raise UpRefused(_advice(error, host, port, flag)) from error


def _advice(error: OSError, host: str, port: int, flag: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken: stop what listens there, or choose another {flag}"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} is not permitted: choose a {flag} of 1024 or above"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is no address of this machine: choose one that is, such as 127.0.0.1"
    return f"cannot listen on {host} port {port} ({error.strerror}): choose another --host or {flag}"
