"""Free ports that no other test cluster on this machine takes, however many start at the same moment."""

from __future__ import annotations

import atexit
import contextlib
import random
import socket
import sys
from collections import deque
from typing import Final

from barnabas.testing.failures import ClusterFailed

PORTS: Final = range(20_000, 30_000)
"""Below the ports that the system gives to outgoing connections, which could take one between check and use; and below
Kubernetes' node ports, for which nobody listens, and which on a node of it lead elsewhere all the same.
"""

ATTEMPTS_MAX: Final = 1_000


class ReservedPorts:
    """Owns `count` ports in a row until `close`: nobody listens there, and no other owner has one of them.

    The claim on a port is a name in Linux's abstract socket space: it needs no file and ends with the process. Where
    there is no such space, only the check that nobody listens remains.
    """

    def __init__(self, count: int) -> None:
        self._claims = contextlib.ExitStack()
        self.first = self._reserve(count)

    def close(self) -> None:
        self._claims.close()

    def _reserve(self, count: int) -> int:
        chance = random.SystemRandom()  # plugins seed the other one alike in each process
        for _ in range(ATTEMPTS_MAX):
            first = chance.randrange(PORTS.start, PORTS.stop - count)
            with contextlib.ExitStack() as claims, contextlib.suppress(OSError):
                for port in range(first, first + count):
                    if sys.platform == "linux":
                        claim = claims.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                        claim.bind(f"\0barnabas-port-{port}")
                    socket.create_server(("127.0.0.1", port)).close()
                self._claims = claims.pop_all()
                return first
        raise ClusterFailed(f"no {count} free ports in a row between {PORTS.start} and {PORTS.stop}")


KEPT_MAX: Final = 16
_kept: deque[ReservedPorts] = deque()
"""What `free_ports` gave last. Whoever asked may take a while until it listens, and stop and start again."""


def free_ports(count: int) -> int:
    """The first of `count` ports in a row on which nobody listens now.

    They are not given to anybody else while this process lives and has not asked KEPT_MAX times more.
    """
    _kept.append(ReservedPorts(count))
    if len(_kept) > KEPT_MAX:
        _kept.popleft().close()
    return _kept[-1].first


@atexit.register
def _give_back() -> None:
    for reserved in _kept:
        reserved.close()
