"""Running clients beside a system: how long they took, and what it cost the server and the clients."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from processes import PeakMemory
from systems import JARS, System

CLIENT: Final = Path(__file__).with_name("client.py")
CLIENT_SECONDS_MAX: Final = 300.0

JAVA_TOOL: Final = ("java", "-Xmx512M", "-cp", f"{JARS}/*")
"""kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh run with this heap."""


@dataclass
class Cost:
    """What a stretch of work cost. `by_service` are the server's processor seconds, process by process."""

    by_service: dict[str, float] = field(default_factory=dict)
    client_seconds: float = 0.0
    resident_peak_mb: float = 0.0
    wall_seconds: float = 0.0

    @property
    def server_seconds(self) -> float:
        return sum(self.by_service.values())


@contextlib.contextmanager
def measured(system: System) -> Iterator[Cost]:
    """Counts what the block costs; the block adds its clients' seconds itself (see `finish`)."""
    cost = Cost()
    before, started = system.tree.cpu_seconds(), time.perf_counter()
    with PeakMemory(system.tree) as memory:
        yield cost
    cost.wall_seconds = time.perf_counter() - started
    after = system.tree.cpu_seconds()
    cost.by_service = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    cost.resident_peak_mb = memory.resident_mb


def start_client(what: str, **arguments: Any) -> subprocess.Popen[str]:
    """Start `client.py`; hand the process to `finish`."""
    return _start([sys.executable, str(CLIENT), what, json.dumps(arguments)])


def start_java(tool: str, *arguments: str) -> subprocess.Popen[str]:
    """Start one of Kafka's performance tools, `ProducerPerformance` or `ConsumerPerformance`."""
    return _start([*JAVA_TOOL, f"org.apache.kafka.tools.{tool}", *arguments])


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str], cost: Cost) -> str:
    """What the client printed, once it has ended well; its processor seconds are added to `cost`."""
    before = os.times()
    try:
        output, errors = process.communicate(timeout=CLIENT_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    after = os.times()
    if process.returncode != 0:
        raise SystemExit(f"a client failed: {' '.join(process.args)}\n{output[-1000:]}{errors[-3000:]}")  # type: ignore[arg-type]
    # The processes that ended in between are this one alone: others are waited for one by one as well.
    cost.client_seconds += (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    return output


def finish_json(process: subprocess.Popen[str], cost: Cost) -> dict[str, float]:
    """The line of JSON that `client.py` printed."""
    answer: dict[str, float] = json.loads(finish(process, cost).splitlines()[-1])
    return answer
