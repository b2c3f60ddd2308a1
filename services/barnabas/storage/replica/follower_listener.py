"""Whom a replica that leads tells what changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.storage.replica.replica import Replica


class FollowerListener(Protocol):
    """A follower's stream, to the replica that leads it."""

    @property
    def node_id(self) -> int: ...
    def on_growth(self, replica: Replica) -> None:
        """Something was appended."""

    def on_news(self, replica: Replica) -> None:
        """The high watermark moved, or the start of the log."""

    def on_change(self, replica: Replica) -> None:
        """It does not lead any more as it did."""
