"""Sockets that whoever started this process keeps bound for it, and for the process that comes after it.

A port whose socket is closed refuses: clients that try it while its service is started again wait before they try once
more, for ten seconds at worst. What is kept takes their connections meanwhile, and the next process finds them. The
socket is inherited; the variable BARNABAS_KEPT_SOCKETS says which descriptor has which address.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

KEPT_SOCKETS: Final = "BARNABAS_KEPT_SOCKETS"


def describe_kept(descriptors: Mapping[tuple[str, int], int]) -> str:
    """The text of the variable for these descriptors by (host, port)."""
    return " ".join(f"{host}|{port}={descriptor}" for (host, port), descriptor in descriptors.items())


def kept_socket(host: str, port: int) -> socket.socket | None:
    """A socket of our own for what is kept bound to this address, as the settings write it; None where nothing is.

    Raises OSError: the process has no descriptor for it.
    """
    descriptor = _kept().get((host, port))
    return None if descriptor is None else socket.socket(fileno=os.dup(descriptor))


def kept_addresses() -> AbstractSet[tuple[str, int]]:
    """To what something is kept bound, for this process or for others."""
    return _kept().keys()


def refuse_until_listened(sock: socket.socket) -> None:
    """Have the port refuse, also who waits there already, until somebody listens at it again.

    What nobody listens at refuses by itself and is left alone: Linux would remember that it was shut down, and each
    connection that it took ever after would be at its end from the start. Nobody else may do this to it meanwhile.
    """
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.shutdown(socket.SHUT_RDWR)


def _kept() -> Mapping[tuple[str, int], int]:
    """The descriptors by (host, port)."""
    descriptors = {}
    for entry in os.environ.get(KEPT_SOCKETS, "").split():
        address, _, descriptor = entry.rpartition("=")
        host, _, port = address.rpartition("|")
        descriptors[host, int(port)] = int(descriptor)
    return descriptors
