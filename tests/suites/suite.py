"""What a client's own suite of tests is to the runner."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from results import Reason, Result


@dataclass(frozen=True)
class SuiteCluster:
    """The cluster that a suite runs against; brokers are called by their ids, from 1 on."""

    bootstrap: str
    """The address of the first broker."""
    ports: tuple[int, ...]
    """Where the brokers listen, by their ids."""
    stop: Callable[[int], None]
    """End a broker in order; the others go on."""
    start: Callable[[int], None]
    """Start one that was stopped; returns when clients are told of it again."""
    log: Callable[[], str]
    """The end of what the brokers said."""


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
    first_port: ClassVar[int | None] = None
    """The port where its tests insist on the first broker; the others' follow it."""
    nodes: ClassVar[int] = 3
    """How many brokers its tests want."""
    first_advertised_port: ClassVar[int | None] = None
    """What clients are told in place of the first broker's port, where proxies stand before the brokers; the others'
    follow it."""
    racks: ClassVar[tuple[str, ...]] = ()
    """Where the brokers stand, in the order of their ids."""
    stops_brokers: ClassVar[bool] = False
    """Whether its tests end brokers, any of them."""
    remark: ClassVar[str] = ""
    """What else is particular about its run, in a sentence; the page has it behind the settings."""
    reasons: ClassVar[tuple[Reason, ...]] = ()

    @abc.abstractmethod
    def fetch(self, work: Path) -> Path:
        """Fetch and compile below `work`; returns the folder to run in. Raises RuntimeError."""

    @abc.abstractmethod
    def run(self, folder: Path, cluster: SuiteCluster) -> list[Result]:
        """Run all tests against the brokers. Raises RuntimeError when nothing could be run."""
