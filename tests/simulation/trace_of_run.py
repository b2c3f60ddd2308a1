"""What happened in one run, line by line, and a number by which two runs are compared."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
from collections import deque
from typing import Final

LINES_KEPT: Final = 4000


class Trace(logging.Handler):
    """Owner of the lines. It is the services' log as well."""

    def __init__(self, *, keeps_all: bool = False) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=None if keeps_all else LINES_KEPT)
        self.count = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self.context = contextvars.copy_context()
        """In which nobody's callbacks run."""

    def say(self, who: str, what: str) -> None:
        line = f"{asyncio.get_running_loop().time():11.6f} {who:<12} {what}"
        self.lines.append(line)
        self.count += 1
        self._digest.update(line.encode())
        self._digest.update(b"\n")

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def emit(self, record: logging.LogRecord) -> None:
        from virtual_loop import OWNER

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # the run is over
        owner = OWNER.get()
        fields = "".join(f" {name}={value}" for name, value in getattr(record, "fields", {}).items())
        error = f" {record.exc_info[1]!r}" if record.exc_info else ""
        self.say(
            owner.name if owner else "-", f"{record.levelname.lower()}: {record.getMessage()}{fields}{error}"
        )
