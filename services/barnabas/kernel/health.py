"""What a service says of itself: alive while the event loop answers, ready while every condition holds."""

from __future__ import annotations

from collections.abc import Callable


class Health:
    """Owns the named conditions under which this process is ready to serve.

    A part adds a condition before the service starts serving; `/readyz` and the readiness notification evaluate
    them all.
    """

    def __init__(self) -> None:
        self._conditions: dict[str, Callable[[], bool]] = {}
        self._stopping = False

    def add_condition(self, name: str, holds: Callable[[], bool]) -> None:
        """Make readiness depend on `holds()`, which must not block."""
        assert name not in self._conditions, f"condition {name} is already there"
        self._conditions[name] = holds

    def begin_stopping(self) -> None:
        """From now on the service is not ready, so that load balancers look elsewhere."""
        self._stopping = True

    def unmet(self) -> list[str]:
        """The conditions that do not hold; empty when the service is ready."""
        if not self._conditions:  # no part has said yet what readiness means
            return ["starting"]
        unmet = [name for name, holds in self._conditions.items() if not holds()]
        if self._stopping:
            unmet.append("stopping")
        return unmet

    def is_ready(self) -> bool:
        return not self.unmet()
