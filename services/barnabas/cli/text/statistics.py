"""What a performance run measured, in the lines of Kafka's own tools and as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

MEBIBYTE: Final = 1024 * 1024
PERCENTILES: Final = ((50.0, "50th"), (95.0, "95th"), (99.0, "99th"), (99.9, "99.9th"))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The least value that `percent` of the rising values do not exceed; 0 without values."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass
class Window:
    """Records, bytes and latencies (ms) between two moments (s)."""

    started: float
    records: int = 0
    size: int = 0
    latencies: list[float] = field(default_factory=list)

    def add(self, size: int, latency: float) -> None:
        self.records += 1
        self.size += size
        self.latencies.append(latency)

    def summary(self, now: float) -> dict[str, Any]:
        """Rates per second, latencies in ms."""
        seconds = max(now - self.started, 1e-9)
        ordered = sorted(self.latencies)
        found: dict[str, Any] = {
            "records": self.records,
            "seconds": round(seconds, 3),
            "recordsPerSecond": round(self.records / seconds, 1),
            "megabytesPerSecond": round(self.size / MEBIBYTE / seconds, 2),
            "latencyAverage": round(sum(ordered) / len(ordered), 2) if ordered else 0.0,
            "latencyMax": round(ordered[-1], 2) if ordered else 0.0,
        }
        for percent, name in PERCENTILES:
            found[f"latency{name.removesuffix('th').replace('.', '_')}"] = round(
                percentile(ordered, percent), 2
            )
        return found


def progress_line(summary: dict[str, Any]) -> str:
    """What kafka-producer-perf-test prints every five seconds."""
    return (
        f"{summary['records']} records sent, {summary['recordsPerSecond']:.1f} records/sec "
        f"({summary['megabytesPerSecond']:.2f} MB/sec), {summary['latencyAverage']:.1f} ms avg latency, "
        f"{summary['latencyMax']:.1f} ms max latency"
    )


def final_line(summary: dict[str, Any]) -> str:
    """What kafka-producer-perf-test prints at the end."""
    tail = ", ".join(
        f"{summary['latency' + name.removesuffix('th').replace('.', '_')]:.1f} ms {name}"
        for _, name in PERCENTILES
    )
    return f"{progress_line(summary)}, {tail}."
