"""The ports that a cluster needs: whether they are free, asked before anything starts, and the claim on them.

Gateways share their port (SO_REUSEPORT), and the kernel would let those of another cluster share it, too, if only that
looks while none of them listens. So `barnabas up` claims its ports for as long as it lives, by names in Linux's
abstract socket space: they need no file and end with the process. Elsewhere only the look remains.
"""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from barnabas.cli.options import UpOptions, UpRefused

ANSWER_SECONDS_MAX: Final = 1.0
"""How long one address may take to be connected to."""

SOCKETS_OF_ALL: Final = Path("/proc/net/unix")
"""All names of sockets, an "@" before those that are no files."""

ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})


def take_ports(options: UpOptions, claims: contextlib.ExitStack) -> None:
    """Claim all ports until `claims` are closed, and look whether they can be bound.

    Raises UpRefused for the first that is claimed by another `up` or cannot, with the flag that moves it.
    """
    for port in options.kafka_ports:
        _take(options.host, port, "--port", claims)
    _take(options.host, options.http_port, "--http-port", claims)


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


def _take(host: str, port: int, flag: str, claims: contextlib.ExitStack) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise UpRefused(f"--host {host} is no address of this machine ({error.strerror})") from error
    try:
        if sys.platform == "linux":
            # The gateways listen at each: `localhost` is an address of IPv6, too, on most machines.
            for claimed in sorted({str(address[0]) for *_, address in found}):
                _claim(claimed, port, claims)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as sock:
            # Connections of an earlier cluster that are still closing do not hold a port; a listener does, because
            # SO_REUSEPORT is not set here.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(1)
    except OSError as error:
        raise UpRefused(_advice(error, host, port, flag)) from error


class _Claimed(OSError):
    """Another `barnabas up` has the port, whether or not somebody listens there at the moment."""


def _claim(address: str, port: int, claims: contextlib.ExitStack) -> None:
    """Raises _Claimed, or another OSError; who claims a port of all addresses has it of each."""
    claim = claims.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    try:
        claim.bind(f"\0barnabas-up-{port}-{address}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _Claimed from error
        raise
    names = ""
    with contextlib.suppress(OSError):  # where it may not be read
        names = SOCKETS_OF_ALL.read_text(encoding="utf-8", errors="replace")
    others = set(re.findall(rf"@barnabas-up-{port}-(\S+)", names)) - {address}
    if others and not ANY_ADDRESS.isdisjoint(others | {address}):
        raise _Claimed


def _advice(error: OSError, host: str, port: int, flag: str) -> str:
    if isinstance(error, _Claimed):
        return f"port {port} on {host} is taken by another `barnabas up`: stop that, or choose another {flag}"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken: stop what listens there, or choose another {flag}"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} is not permitted: choose a {flag} of 1024 or above"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is no address of this machine: choose one that is, such as 127.0.0.1"
    return f"cannot listen on {host} port {port} ({error.strerror}): choose another --host or {flag}"
