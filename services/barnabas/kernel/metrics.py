"""Metrics that every process has; `metrics_page` shows them together with those of its services."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import platform
import time
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from barnabas import __version__

_LAG_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series for the birth of each other one


class ProcessMetrics:
    """Owner of what a process has once, however many services are in it: what it is, how late its event loop runs,
    what the collector pauses, and what the operating system says of it.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self._loop_lag = Histogram(
            "barnabas_event_loop_lag_seconds",
            "How late a timer of the event loop fired",
            buckets=_LAG_BUCKETS,
            registry=registry,
        )
        self._gc_pause = Histogram(
            "barnabas_gc_pause_seconds",
            "How long the garbage collector stopped the process",
            buckets=_LAG_BUCKETS,
            registry=registry,
        )
        self._tasks = Gauge("barnabas_event_loop_tasks", "Tasks alive on the event loop", registry=registry)
        build_info = Gauge(
            "barnabas_build_info", "1; its labels say what runs", ["version", "python"], registry=registry
        )
        build_info.labels(__version__, platform.python_version()).set(1)

    async def watch_event_loop(self, stopping: asyncio.Event, interval_seconds: float) -> None:
        """Measure until `stopping` is set."""
        started = 0.0

        def on_collection(phase: str, _: dict[str, int]) -> None:
            nonlocal started
            if phase == "start":
                started = time.perf_counter()
            else:
                self._gc_pause.observe(time.perf_counter() - started)

        gc.callbacks.append(on_collection)
        try:
            while not stopping.is_set():
                due = time.perf_counter() + interval_seconds
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), interval_seconds)
                self._loop_lag.observe(max(0.0, time.perf_counter() - due))
                self._tasks.set(len(asyncio.all_tasks()))
        finally:
            gc.callbacks.remove(on_collection)
