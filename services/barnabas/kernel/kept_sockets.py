"""Sockets that whoever started this process keeps bound for it, and for the process that comes after it.

A port whose socket is closed refuses: clients that try it while its service is started again wait before they try once
more, for ten seconds at worst. What is kept takes their connections meanwhile, and the next process finds them. The
socket is inherited; the variable BARNABAS_KEPT_SOCKETS says which descriptor has which address.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

KEPT_SOCKETS: Final = "BARNABAS_KEPT_SOCKETS"


def describe_kept(descriptors: Mapping[tuple[str, int], int]) -> str:
    """The text of the variable for these descriptors by (host, port)."""
    return " ".join(f"{host}|{port}={descriptor}" for (host, port), descriptor in descriptors.items())


def kept_socket(host: str, port: int) -> socket.socket | None:
    """A socket of our own for what is kept bound to this address, as the settings write it; None where nothing is."""
    descriptor = _descriptor(host, port)
    return None if descriptor is None else socket.socket(fileno=os.dup(descriptor))


def is_kept(host: str, port: int) -> bool:
    """Whether something is kept bound to this address."""
    return _descriptor(host, port) is not None


def _descriptor(host: str, port: int) -> int | None:
    for entry in os.environ.get(KEPT_SOCKETS, "").split():
        address, _, descriptor = entry.rpartition("=")
        if address == f"{host}|{port}":
            return int(descriptor)
    return None
