"""What is measured: each figure's unit, and which of two values is the better one."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Figure:
    """A named number. `is_compared` figures get a ratio; the others explain."""

    title: str
    unit: str
    higher_is_better: bool = False
    is_compared: bool = True
    digits: int = 1


FIGURES: Final = {
    "produce_mb_s": Figure("produce", "MB/s", higher_is_better=True, digits=0),
    "consume_mb_s": Figure("consume", "MB/s", higher_is_better=True, digits=0),
    "produce_cpu": Figure("server CPU, in", "s/GB", digits=2),
    "consume_cpu": Figure("server CPU, out", "s/GB", digits=2),
    "requests_s": Figure("produce requests", "1/s", higher_is_better=True, digits=0),
    "request_cpu": Figure("server CPU a request", "µs", digits=0),
    "p50_ms": Figure("p50", "ms", digits=2),
    "p99_ms": Figure("p99", "ms", digits=2),
    "p999_ms": Figure("p99.9", "ms", digits=2),
    "first_ack_s": Figure("start to first acknowledged record", "s", digits=2),
    "idle_rss_mb": Figure("resident, idle", "MB", digits=0),
    "idle_pss_mb": Figure("proportional, idle", "MB", digits=0),
    "idle_cpu": Figure("server CPU, idle", "% of a core", digits=1),
    "empty_cpu": Figure("server CPU, one partition", "% of a core", digits=2),
    "quiet_cpu": Figure("server CPU, partitions with nothing new", "% of a core", digits=2),
    "partitions_cpu": Figure("of it for the partitions", "% of a core", is_compared=False, digits=2),
    "load_rss_mb": Figure("resident under load, peak", "MB", digits=0),
    "load_pss_mb": Figure("proportional after load", "MB", digits=0),
    "server_cpu_percent": Figure("server CPU", "% of a core", is_compared=True, digits=0),
    "poll_cpu": Figure("server CPU a poll", "µs", digits=0),
    "poll_late_p50_ms": Figure("answer behind its time, p50", "ms", digits=2),
    "poll_late_p99_ms": Figure("answer behind its time, p99", "ms", digits=2),
    "connect_s": Figure("time to connect all", "s", is_compared=False, digits=2),
    "grown_pss_mb": Figure("memory for the connections", "MB", digits=0),
    "create_s": Figure("partitions made and led", "s", digits=2),
    "restart_s": Figure("kill -9 to every partition led", "s", digits=2),
    "pause_s": Figure("nothing acknowledged, median", "s", digits=2),
    "pause_worst_s": Figure("nothing acknowledged, worst", "s", digits=2),
    "failover_s": Figure("kill -9 of one broker to a record in every partition", "s", digits=2),
    "refilled_s": Figure("kill -9 of one broker to every replica in sync", "s", digits=2),
    "stopped_start_s": Figure("start after a stop to a record in every partition", "s", digits=2),
    "killed_start_s": Figure("start after kill -9 to a record in every partition", "s", digits=2),
    "formed_s": Figure("group formed", "s", digits=2),
    "joined_s": Figure("rebalanced because one joined", "s", digits=2),
    "forming_cpu_s": Figure("server CPU of forming", "s", digits=2),
    "joining_cpu_s": Figure("server CPU of rebalancing", "s", digits=2),
    "transactions_s": Figure("transactions", "1/s", higher_is_better=True, digits=0),
    "transaction_cpu": Figure("server CPU a transaction", "µs", digits=0),
    "copied_records": Figure("records a transaction", "1", is_compared=False, digits=1),
    "produce_client_cpu": Figure("client CPU, in", "s/GB", is_compared=False, digits=2),
    "consume_client_cpu": Figure("client CPU, out", "s/GB", is_compared=False, digits=2),
    "client_cpu_percent": Figure("client CPU", "% of a core", is_compared=False, digits=0),
    "producer_behind_s": Figure("producer behind its schedule at the end", "s", is_compared=False, digits=3),
}


@dataclass(frozen=True)
class Spread:
    """Median and range of what several runs gave."""

    median: float
    low: float
    high: float

    @property
    def relative(self) -> float:
        """The range as a share of the median: the noise."""
        return (self.high - self.low) / self.median if self.median else 0.0


def spread_of(values: Iterable[float]) -> Spread:
    """The spread of at least one value."""
    found = list(values)
    return Spread(statistics.median(found), min(found), max(found))


def paired_ratios(name: str, ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """One ratio a pair of neighbouring runs, above 1 where the first system is the better one.

    Pairs, because what disturbs a machine disturbs two runs that follow one another about alike.
    """
    higher = FIGURES[name].higher_is_better
    pairs = zip(ours, theirs, strict=True)
    return [(a / b if higher else b / a) for a, b in pairs if a > 0 and b > 0]
