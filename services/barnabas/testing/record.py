"""A record as a test sees it."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Record:
    """One record of a topic. `key` and `value` are bytes, or None for null."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1
    """Milliseconds since the Unix epoch; -1 where the record has no timestamp."""

    @property
    def text(self) -> str:
        """The value as UTF-8 text; empty for null."""
        return (self.value or b"").decode()

    @property
    def timestamp(self) -> datetime.datetime:
        """The timestamp in UTC."""
        return datetime.datetime.fromtimestamp(self.timestamp_ms / 1000, datetime.UTC)

    def json(self) -> Any:
        """The value as JSON; raises ValueError where it is not."""
        return json.loads(self.value or b"")
