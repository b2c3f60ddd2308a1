"""What happened in one run, line by line, and a number by which two runs are compared."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import os
from collections import deque
from typing import Final

LINES_KEPT: Final = 4000

LOST_OFFSETS: Final = "offsets are lost"
"""How a node begins to say that the disk lacks the end of a segment, while it has the next one."""

COMPACTED: Final = "compacted a log"
"""What a node says when its cleaner is done with one."""

NOT_DELETED: Final = "cannot delete a partition"
"""What a node says whose full disk refuses even that."""


class Trace(logging.Handler):
    """Owner of the lines. It is the services' log as well."""

    def __init__(self, *, keeps_all: bool = False) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=None if keeps_all else LINES_KEPT)
        self.count = 0
        self.gaps: dict[str, set[int]] = {}
        """The offsets that nodes said are lost, by partition: they need not be there, unless they were promised."""
        self.undeleted: set[tuple[str, str]] = set()
        """(node, partition) of what a disk did not let go, as the node said: the next start removes it."""
        self.cleanings = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self.context = contextvars.copy_context()
        """In which nobody's callbacks run."""

    def say(self, who: str, what: str) -> None:
        line = f"{asyncio.get_running_loop().time():11.6f} {who:<12} {what}"
        self.lines.append(line)
        self.count += 1
        self._digest.update(line.encode())
        self._digest.update(b"\n")

    def is_gap(self, partition: str, offsets: range) -> bool:
        """Whether nodes said of all of them that they are lost."""
        return self.gaps.get(partition, set()).issuperset(offsets)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def emit(self, record: logging.LogRecord) -> None:
        from virtual_loop import OWNER

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # the run is over
        owner, told = OWNER.get(), getattr(record, "fields", {})
        if record.getMessage().startswith(LOST_OFFSETS):
            lost = range(told["first_offset"], told["last_offset"] + 1)
            self.gaps.setdefault(os.path.basename(told["log"]), set()).update(lost)
        self.cleanings += record.getMessage() == COMPACTED
        if owner and record.getMessage() == NOT_DELETED:
            self.undeleted.add((owner.name, told["partition"]))
        fields = "".join(f" {name}={value}" for name, value in told.items())
        error = f" {record.exc_info[1]!r}" if record.exc_info else ""
        self.say(
            owner.name if owner else "-", f"{record.levelname.lower()}: {record.getMessage()}{fields}{error}"
        )
