"""What a tree of processes costs, read from /proc: processor seconds and memory."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SAMPLE_SECONDS: Final = 0.25
"""How often memory is looked at under load."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessTree:
    """A process, others that were started beside it, and all their descendants, which are looked up anew each time."""

    root: int
    beside: tuple[int, ...] = ()

    def pids(self) -> list[int]:
        """The root first. A process that ends meanwhile is left out."""
        found, level = [], [self.root, *self.beside]
        while level:
            found += level
            level = [child for pid in level for child in _children(pid)]
        return found

    def cpu_seconds(self) -> dict[str, float]:
        """User and system time so far, by the name of the service (or of the program)."""
        seconds: dict[str, float] = {}
        for pid in self.pids():
            fields = _read(pid, "stat").rpartition(")")[2].split()
            if fields:
                name = _name(pid)
                seconds[name] = seconds.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / _TICKS
        return seconds

    def resident_mb(self) -> float:
        """Sum of the resident sets, as `ps` shows them: a page that two processes share counts twice."""
        fields = (_read(pid, "statm").split() for pid in self.pids())
        return sum(int(words[1]) for words in fields if words) * _PAGE_BYTES / 2**20

    def proportional_mb(self) -> float:
        """Sum of the proportional sets: a page that two processes share counts half for each."""
        total_kb = 0
        for pid in self.pids():
            for line in _read(pid, "smaps_rollup").splitlines():
                if line.startswith("Pss:"):
                    total_kb += int(line.split()[1])
        return total_kb / 1024


class PeakMemory:
    """Samples a tree's resident set in a thread while the `with` block runs; `resident_mb` is the largest seen."""

    def __init__(self, tree: ProcessTree) -> None:
        self._tree = tree
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.resident_mb = 0.0

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.resident_mb = max(self.resident_mb, self._tree.resident_mb())

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.resident_mb = max(self.resident_mb, self._tree.resident_mb())


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        # A child belongs to the thread that started it.
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            children += map(int, listed.read_text().split())
    except OSError:
        return children
    return children


def _name(pid: int) -> str:
    words = _read(pid, "cmdline").split("\0")
    if "java" in words[0]:
        return "kafka"
    services = [word.removeprefix("barnabas.") for word in words if word.startswith("barnabas.")]
    # A service that was forked has its supervisor's command line and a name of its own, such as gateway-1.
    return services[0] if services else _read(pid, "comm").strip().partition("-")[0].replace("barnabas", "up")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (OSError, ProcessLookupError):
        return ""
