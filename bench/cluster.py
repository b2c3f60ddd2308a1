"""A cluster for a benchmark: one `barnabas up` on free ports, its memory and its start time."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class BenchCluster:
    """A running cluster."""

    port: int
    process: subprocess.Popen[str]
    start_seconds: float

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def pids(self) -> list[int]:
        """The supervisor and its services."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    def resident_mb(self) -> float:
        """Sum of the resident sets, as `ps` would show them: pages shared between processes count for each."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def proportional_mb(self) -> float:
        """Sum of the proportional set sizes: pages shared between processes count once."""
        total = 0
        for pid in self.pids():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        return total / 1024

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time so far, by service."""
        tick = os.sysconf("SC_CLK_TCK")
        seconds: dict[str, float] = {}
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            name = next(
                (word.removeprefix("barnabas.") for word in words if word.startswith("barnabas.")), "up"
            )
            seconds[name] = seconds.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / tick
        return seconds


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def running_cluster(*arguments: str) -> Iterator[BenchCluster]:
    """Start a cluster with fresh data, and remove it at the end."""
    data = tempfile.mkdtemp(prefix="barnabas-bench-")
    port, http_port = free_port(), free_port()
    command = [sys.executable, "-m", "barnabas", "up", "--port", str(port), "--http-port", str(http_port)]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--data-dir", data, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready" in line:
                break
        yield BenchCluster(port, process, time.perf_counter() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        shutil.rmtree(data, ignore_errors=True)
