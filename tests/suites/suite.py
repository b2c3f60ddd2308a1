"""What a client's own suite of tests is to the runner."""

from __future__ import annotations

import abc
from pathlib import Path
from typing import ClassVar

from results import Reason, Result


class Suite(abc.ABC):
    """A client's package with tests in it that can be pointed at a broker."""

    name: ClassVar[str]
    version: ClassVar[str]
    registry: ClassVar[str]
    what: ClassVar[str]
    """Which of its tests are run, for the reader of the page."""
    seconds_max: ClassVar[float]
    """For all tests together, without fetching and compiling."""
    settings: ClassVar[tuple[str, ...]] = ()
    """Broker settings that its own broker is given too, NAME=VALUE."""
    host: ClassVar[str] = "127.0.0.1"
    """The name under which its tests expect a broker."""
    port: ClassVar[int | None] = None
    """The port that its tests insist on."""
    reasons: ClassVar[tuple[Reason, ...]] = ()

    @abc.abstractmethod
    def fetch(self, work: Path) -> Path:
        """Fetch and compile below `work`; returns the folder to run in. Raises RuntimeError."""

    @abc.abstractmethod
    def run(self, folder: Path, bootstrap: str) -> list[Result]:
        """Run all tests against the broker at `bootstrap`. Raises RuntimeError when nothing could be run."""
