"""What a connection knows of one request, from its start until its answer has left."""

from __future__ import annotations

from collections.abc import Container

from barnabas.gateway.clients.later import Pieces
from barnabas.gateway.clients.turns import ALONE
from barnabas.gateway.request_times import RequestTimes

Frame = bytes


class Slot:
    """An answer's place in the order of the connection."""

    __slots__ = ("frame", "held_bytes", "is_done", "is_produce", "may_wait", "pieces", "times", "turn")

    def __init__(
        self, frame: Frame, received: float, waiting_keys: Container[bytes], *, is_produce: bool
    ) -> None:
        """`waiting_keys` are the API keys of requests that nobody waits for at a stop (`Handler.may_wait`)."""
        self.frame = frame
        self.held_bytes = len(frame)
        """Of the request until it is answered, and of an answer that has to wait for others."""
        self.times = RequestTimes(received, self.held_bytes)
        self.is_produce = is_produce
        self.may_wait = frame[:2] in waiting_keys
        self.turn = ALONE
        self.is_done = False
        self.pieces: Pieces = None

    def take_frame(self) -> Frame:
        """The request's frame, which is kept here no longer."""
        frame, self.frame = self.frame, b""
        return frame
