"""Whether a connection's socket is read; if it is not, why and since when."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from time import perf_counter
from typing import Final

from barnabas.gateway.clients.held import Reason
from barnabas.kernel.pauses import PauseTimes

_TCP_INFO: Final[int | None] = getattr(socket, "TCP_INFO", None)
"""Linux's; elsewhere nobody knows of a peer's end before everything was read."""
_TCP_CLOSE, _TCP_CLOSE_WAIT = 7, 8


def peer_has_ended(transport: asyncio.Transport) -> bool:
    """Whether the peer sends nothing more, though what it has sent may still lie in the socket."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is None or _TCP_INFO is None:
        return False
    (state,) = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)
    return state in (_TCP_CLOSE, _TCP_CLOSE_WAIT)


class ReadingPause:
    """Owner of that, for one connection. What follows from it goes by the event loop's time; the metrics count it by
    `perf_counter`, as they do everything.
    """

    __slots__ = ("_counted_since", "_pauses", "_since", "reason")

    def __init__(self, pauses: Mapping[Reason, PauseTimes]) -> None:
        self.reason: Reason | None = None
        """Why the socket is not read; None while it is."""
        self._pauses = pauses
        self._since = self._counted_since = 0.0

    def change(self, reason: Reason | None, now: float) -> float:
        """From `now` on, by the event loop's time, it is not read for `reason`, or read again.

        Returns for how many seconds it was not read for the reason before.
        """
        seconds, counted = 0.0, perf_counter()
        if self.reason is not None:
            self._pauses[self.reason].end(self._counted_since, counted)
            seconds = now - self._since
        self.reason = reason
        if reason is not None:
            self._counted_since = self._pauses[reason].start(counted)
            self._since = now
        return seconds
