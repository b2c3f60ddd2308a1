"""A fault that a test injected: a handle to count its hits and to end it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Self

from barnabas.testing.failures import TimedOut

POLL_SECONDS: Final = 0.01


class Fault:
    """Owns one injected fault from the call of `Cluster.fault` to `remove` or the end of its `with` block."""

    def __init__(self, what: str, count_hits: Callable[[], int], remove: Callable[[], int]) -> None:
        """`remove` ends the fault and returns its hits."""
        self._what = what
        self._count_hits = count_hits
        self._remove = remove
        self._final_hits: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Fault {self._what}>"

    @property
    def hits(self) -> int:
        """To how many requests it happened, also after its end."""
        return self._count_hits() if self._final_hits is None else self._final_hits

    def remove(self) -> None:
        """End it: requests that it delays go on, connections that it holds are closed."""
        if self._final_hits is None:
            self._final_hits = self._remove()

    def wait_for_hits(self, count: int = 1, *, timeout: float = 10.0) -> None:
        """Wait until it has happened to `count` requests; raises TimedOut."""
        deadline = time.monotonic() + timeout
        while self.hits < count:
            if time.monotonic() > deadline:
                raise TimedOut(f"{self._what} happened {self.hits} times in {timeout:g} s, not {count}")
            time.sleep(POLL_SECONDS)
