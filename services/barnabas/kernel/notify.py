"""Telling whoever started this process that it is ready, by systemd's sd_notify protocol.

The protocol is one datagram to the socket named in NOTIFY_SOCKET, so the same service works under
`barnabas up`, a systemd unit with `Type=notify`, and with nobody listening.
"""

from __future__ import annotations

import os
import socket


def notify_ready() -> None:
    """Send READY=1 if somebody asked for it; a listener that has gone is no reason to fail."""
    _notify(b"READY=1")


def notify_stopping() -> None:
    """Send STOPPING=1 if somebody asked for it."""
    _notify(b"STOPPING=1")


def _notify(state: bytes) -> None:
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    if path.startswith("@"):  # Linux's abstract namespace
        path = "\0" + path[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(state, path)
        except OSError:
            return
