"""What a request says of itself while it only waits for other services: it holds less then, and might be hurried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


class Wait:
    """Of a request that nobody counts, which are nearly all: nobody hears what it says."""

    __slots__ = ()

    def __enter__(self) -> None:
        """All was sent on: from now on it waits. Parts of a request may wait side by side."""

    def __exit__(self, *_: object) -> None:
        """There is an answer to work on, or none will come."""

    def on_hurry(self, hurry: Callable[[], None] | None) -> None:
        """`hurry` is to be called where others wait for this one; None once there is nothing to hurry."""


NOBODY_COUNTS: Final = Wait()
