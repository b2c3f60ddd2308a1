"""Calls that are begun by whoever cannot wait as a task, where the service is in the same process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Begun(Protocol):
    """A call that the service has taken, and has answered or will answer."""

    @property
    def is_over(self) -> bool:
        """Whether `response` can be asked for."""
        ...

    def response(self) -> Any:
        """What the call's method would have returned. Raises LinkError."""
        ...

    def on_over(self, callback: Callable[[], None]) -> None:
        """`callback` is called once it is over, and not before this returns. To be said once, while it is not over, and
        before the event loop goes on.
        """
        ...

    def leave(self) -> None:
        """Nobody waits for it any more, and no callback is called: it ends as a call does that is cancelled."""
        ...
