"""The page of metrics: the format that Prometheus reads, made without holding anybody up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric, UnknownMetricFamily
from prometheus_client.registry import Collector

from barnabas.kernel import metrics_page
from barnabas.kernel.metrics import ProcessMetrics
from barnabas.kernel.metrics_page import SAMPLES_AT_ONCE, render


async def test_it_is_what_the_library_would_write() -> None:
    registry = CollectorRegistry()
    Counter("asked", "How often; a \\ and\na line", registry=registry).inc(3)
    times = Histogram("seconds", "How long", ["b", "a"], registry=registry, buckets=(0.1, 1))
    times.labels("x", "y").observe(0.5)
    times.labels('a "quote"', "a \\ and\na line").observe(5)
    Gauge("level", "How high", registry=registry).set(float("nan"))
    Gauge("deep", "How deep", registry=registry).set(float("-inf"))
    Gauge("large", "How large", registry=registry).set(12_345_678_901)
    Summary("sizes", "How much", registry=registry).observe(1.25)
    Gauge("nothing", "No series", ["label"], registry=registry)

    class Other(Collector):
        def collect(self) -> Iterator[Metric]:
            yield UnknownMetricFamily("odd", "Of no type", value=True)

    registry.register(Other())
    assert await render([registry]) == generate_latest(registry)
    process = ProcessMetrics().registry
    lines = (await render([process])).decode().splitlines()
    names = [line.partition(" ")[0] for line in lines]
    assert names == [line.partition(" ")[0] for line in generate_latest(process).decode().splitlines()]


class Parts(Collector):
    """One metric with many series, given in parts."""

    def __init__(self) -> None:
        self.given = 0

    def collect(self) -> Iterator[Metric]:
        for part in range(10):
            family = GaugeMetricFamily("size", "Bytes", labels=["log"])
            for number in range(SAMPLES_AT_ONCE):
                family.add_metric([f"{part}-{number}"], number)
            self.given += 1
            yield family


async def test_others_go_on_while_a_large_page_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_page, "PIECE_SECONDS", 0)
    registry, parts = CollectorRegistry(), Parts()
    registry.register(parts)
    parts.given = 0
    making, seen = asyncio.create_task(render([registry])), list[int]()
    while not making.done():
        seen.append(parts.given)
        await asyncio.sleep(0)
    assert set(seen) >= set(range(11)), "each part waits for its turn"
    assert len(seen) >= 30, "as does its text"
    lines = (await making).decode().splitlines()
    assert lines[:3] == ["# HELP size Bytes", "# TYPE size gauge", 'size{log="0-0"} 0.0']
    assert len(lines) == 2 + 10 * SAMPLES_AT_ONCE
