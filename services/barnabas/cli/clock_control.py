"""The time of a cluster under test: moved forward over HTTP, for all services together.

RUN/clock.json     how far it is ahead, from which a service that starts reads it; the next start of the cluster too
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path

from barnabas.cli.supervisor import SupervisedService
from barnabas.cli.telling import NotTold, tell
from barnabas.kernel.movable_clock import (
    ADVANCED_MS_MAX,
    ClockRefused,
    advanced_document,
    read_advanced_ms,
)


class ClockControl:
    """Owns how far the cluster's clock is ahead of the machine's."""

    def __init__(self, path: Path, services: Sequence[SupervisedService]) -> None:
        """Raises ClockRefused for a file at `path` that is not ours."""
        self._path = path
        self._services = services
        self._changing = asyncio.Lock()
        self.advanced_ms = read_advanced_ms(path.read_bytes()) if path.exists() else 0

    async def advance(self, body: bytes) -> int:
        """Move the clock of every service by the `seconds` in the JSON `body`; returns how far it is ahead, in ms.

        Complete when each service that runs has done what became due by it. One that did not answer is told with the
        next call; 0 seconds are enough. Raises ClockRefused.
        """
        advanced_ms = _milliseconds(body)
        async with self._changing:
            if self.advanced_ms + advanced_ms > ADVANCED_MS_MAX:
                raise ClockRefused("the clock would be more than a hundred years ahead")
            self.advanced_ms += advanced_ms
            document = advanced_document(self.advanced_ms)
            draft = self._path.with_suffix(".new")
            draft.write_bytes(document)
            os.replace(draft, self._path)
            outcomes = await asyncio.gather(
                *(tell(service, "/clock", document) for service in self._services), return_exceptions=True
            )
        for outcome in outcomes:
            if isinstance(outcome, NotTold):
                raise ClockRefused(str(outcome))
            if isinstance(outcome, BaseException):
                raise outcome
        return self.advanced_ms

    async def forget(self) -> None:
        """Services that start from now on have the machine's time; the others keep theirs, for no clock goes back."""
        async with self._changing:
            self._path.unlink(missing_ok=True)
            self.advanced_ms = 0


def _milliseconds(body: bytes) -> int:
    try:
        seconds: float = json.loads(body)["seconds"]
        if not 0 <= seconds <= ADVANCED_MS_MAX / 1000:
            raise ValueError
        return round(seconds * 1000)
    except (ValueError, KeyError, TypeError):
        raise ClockRefused('expected {"seconds": a number from 0 up}: time goes forward only') from None
