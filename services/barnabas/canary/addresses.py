"""From the names in `bootstrap.servers` to gateways: one for each address that a name leads to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable


async def resolve(servers: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """The gateways, host:port, in order. A name that leads to one address stays that name.

    A name that cannot be looked up stands for itself, so that a gateway that is away is missed; but where `known`
    has gateways and no name can be looked up, they stay: it is the look-up that failed.
    """
    found: dict[str, None] = {}
    is_known = False
    for server in servers:
        host, _, port = server.rpartition(":")
        addresses = await _look_up(host.strip("[]"))
        is_known = is_known or bool(addresses)
        if len(addresses) <= 1:
            found[server] = None
        else:
            found |= {f"[{each}]:{port}" if ":" in each else f"{each}:{port}": None for each in addresses}
    return list(found) if is_known or not known else list(known)


async def _look_up(host: str) -> list[str]:
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    addresses = {str(info[4][0]) for info in infos}
    # A name that has both kinds, such as localhost, is one host: one kind is enough.
    narrow = {each for each in addresses if ":" not in each}
    return sorted(narrow or addresses)
