"""Handing something to a service that runs, over its HTTP endpoints: what tests change about a cluster."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from barnabas.cli import unix_http
from barnabas.cli.supervisor import SupervisedService

TELL_SECONDS_MAX: Final = 10.0
"""How long a service may take to hear of a change; one that starts needs about half a second."""

TELL_AGAIN_SECONDS: Final = 0.02


class NotTold(Exception):
    """The service refuses, or does not answer; the message is one line."""


async def tell(service: SupervisedService, target: str, document: bytes) -> None:
    """PUT `document` to `target`, again until the service answers; one that is not running will read it from a file.

    Raises NotTold.
    """
    deadline = time.monotonic() + TELL_SECONDS_MAX
    while service.pid is not None and time.monotonic() < deadline:
        try:
            left = max(deadline - time.monotonic(), TELL_AGAIN_SECONDS)
            status, answer = await unix_http.ask(
                service.spec.http_socket, "PUT", target, document, seconds_max=left
            )
        except OSError:
            await asyncio.sleep(TELL_AGAIN_SECONDS)
            continue
        if status != 200:
            raise NotTold(answer.decode(errors="replace").strip())
        return
    if service.pid is not None:
        raise NotTold(f"{service.spec.name} does not answer: is it paused?")
