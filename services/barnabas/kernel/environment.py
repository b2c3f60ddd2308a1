"""What one service asks of the world, in one object: nothing below makes a clock, a thread or a random number itself.

With the real one (`kernel.service` makes it) a service runs as a process; with a seeded one the same code runs in a
test or a simulation, and the same seed gives the same run.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

from barnabas.kernel.clock import Clock, ManualClock
from barnabas.kernel.files import Files, SystemFiles
from barnabas.kernel.threads import InlineThreads, Threads

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from barnabas.links.network import Network


@dataclass(frozen=True)
class Environment:
    """The surroundings of one service; two services in one process have one each, and so never share a count."""

    clock: Clock
    random: random.Random
    """For chance of any kind: jitter, session ids."""
    new_id: Callable[[], uuid.UUID]
    """An id that nobody else has."""
    threads: Threads
    network: Network
    """How other services are reached, and this one."""
    files: Files
    """What outlives the process."""

    @cached_property
    def registry(self) -> CollectorRegistry:
        """The service's metrics. Made when it is first asked for: importing Prometheus is a good part of a start."""
        from prometheus_client import CollectorRegistry

        return CollectorRegistry(auto_describe=True)


class _NoNetwork:
    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"no {name}: nothing here has to do with other services")


def no_network() -> Network:
    """For what neither asks another service for anything nor is asked."""
    return cast("Network", _NoNetwork())


def seeded_environment(
    seed: int = 0, clock: Clock | None = None, network: Network | None = None, files: Files | None = None
) -> Environment:
    """An environment in which everything follows from `seed`; if not given, `clock` is a ManualClock, and `files` are
    the machine's.
    """
    chance = random.Random(seed)
    return Environment(
        clock=clock or ManualClock(),
        random=chance,
        new_id=lambda: uuid.UUID(int=chance.getrandbits(128), version=4),
        threads=InlineThreads(),
        network=network or no_network(),
        files=files or SystemFiles(),
    )
