"""Answers that need no task, and yet have to wait.

A long poll that finds nothing waits for most of a second. Thousands of them at a time wait without a task, a future or
a message each: what is waited for calls when it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.gateway.request_times import RequestTimes

Pieces = bytes | list[bytes | memoryview] | None
"""A whole answer; None where there is none."""


class Later(Protocol):
    """The wait for one answer, which comes by itself."""

    def start(self, times: RequestTimes, on_answer: Callable[[Pieces], None]) -> None:
        """Have `on_answer` called once, and not before this has returned: with the answer, or with None where the
        request has to take the general way. `times` are filled in.
        """

    def stop(self) -> None:
        """Nobody waits for it any more; `on_answer` is not called."""


class Forwarded(Protocol):
    """A request that was handed over to another service as it was read."""

    result: asyncio.Future[Any]

    def answer(self) -> bytes | None:
        """Its answer by the `result` that is there; None where it takes more to give one: then `finish` does."""
        ...

    async def finish(self) -> Pieces: ...
