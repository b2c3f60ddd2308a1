"""How many bytes of requests the whole gateway holds: the backpressure that reaches every socket."""

from __future__ import annotations

from collections.abc import Callable


class ByteBudget:
    """Owns the count of bytes that came from clients and are not answered yet.

    Over `bytes_max` the connections stop reading; `on_room` is called when it falls below again. As in Kafka, 0 or
    less is no limit.
    """

    def __init__(self, bytes_max: int, on_room: Callable[[], None]) -> None:
        self.bytes_max = bytes_max
        self._on_room = on_room
        self.used_bytes = 0

    @property
    def is_exhausted(self) -> bool:
        return 0 < self.bytes_max < self.used_bytes

    def take(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        was_exhausted = self.is_exhausted
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more bytes given back than taken"
        if was_exhausted and not self.is_exhausted:
            self._on_room()
