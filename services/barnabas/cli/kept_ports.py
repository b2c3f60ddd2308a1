"""The clients' ports of one service, kept bound while its process is started again (`kernel/kept_sockets.py`).

Only ports that one process alone serves: where several do, the others take who comes meanwhile. So do brokers that have
a port each: a process inherits those of the others too, and serves them while their own is away. Where nobody does, the
ports refuse while the service is down for longer, as ports do behind which there is nobody.
"""

from __future__ import annotations

import socket
import sys
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence

from barnabas.kernel.kept_sockets import KEPT_SOCKETS, describe_kept, refuse_until_listened


class KeptPorts:
    """Owns the bound sockets of one service, from before its first process to after its last."""

    def __init__(self, host: str, ports: Iterable[int]) -> None:
        """Raises OSError for a port that is taken. Nothing is kept where `host` is several addresses, or elsewhere than
        on Linux, where a socket that is shut down can listen again.
        """
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._others: Sequence[KeptPorts] = ()
        self._is_left = False
        """Whether no process of this service is there, or comes in a moment."""
        if sys.platform != "linux":
            return
        try:
            for port in ports:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
                if len(found) == 1:
                    self._sockets[host, port] = _bound(found[0][0], found[0][4])
        except OSError:
            self.close()
            raise

    def share_with(self, others: Sequence[KeptPorts]) -> None:
        """The processes of `others` serve these ports while ours is away, and ours theirs."""
        self._others = others

    @property
    def environment(self) -> Mapping[str, str]:
        """The variable that tells the service's process of them, and of those that it shares."""
        sockets = ChainMap(self._sockets, *(other._sockets for other in self._others))
        descriptors = {address: sock.fileno() for address, sock in sockets.items()}
        return {KEPT_SOCKETS: describe_kept(descriptors)} if descriptors else {}

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the process has to inherit."""
        group = (self, *self._others)
        return tuple(sock.fileno() for ports in group for sock in ports._sockets.values())

    def on_process(self) -> None:
        """A process of this service starts."""
        self._is_left = False

    def refuse(self) -> None:
        """No process of this service comes in a moment. Have the ports refuse, also who came since there was one, until
        the next one listens; those that are shared once nobody is there for any of them.
        """
        self._is_left = True
        group = (self, *self._others)
        if not all(ports._is_left for ports in group):
            return
        for sock in (sock for ports in group for sock in ports._sockets.values()):
            refuse_until_listened(sock)

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()


def _bound(family: int, address: object) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)  # type: ignore[arg-type]
    except OSError:
        sock.close()
        raise
    return sock
