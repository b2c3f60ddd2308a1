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
    for entry in os.environ.get(KEPT_SOCKETS, "").split():
        address, _, descriptor = entry.rpartition("=")
        if address == f"{host}|{port}":
            return socket.socket(fileno=os.dup(int(descriptor)))
    return None
