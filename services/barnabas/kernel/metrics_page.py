"""The page of metrics in Prometheus' text format, made in pieces between which the event loop goes on.

A node with 10,000 partitions has 40,000 series. Made in one go, their page holds the event loop up for half a second of
processor time, which on a busy machine is long enough for the controller to take the node for silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from barnabas.kernel.clock import machine_seconds

PIECE_SECONDS: Final = 0.005
"""For so long the page is worked on before others get their turn."""

SAMPLES_AT_ONCE: Final = 200
"""Samples between two looks at the time."""

_TYPES: Final = frozenset({"counter", "gauge", "histogram", "summary"})


class _Pace:
    """Owner of when the present piece began."""

    def __init__(self) -> None:
        self._began = machine_seconds()

    async def keep(self) -> None:
        """Let others go on if the piece has lasted long enough."""
        if machine_seconds() - self._began >= PIECE_SECONDS:
            await asyncio.sleep(0)
            self._began = machine_seconds()


async def render(registries: Iterable[CollectorRegistry]) -> bytes:
    """The page of all metrics of the registries; one that several have appears once, with the samples of each.

    What two services count under one name and the same labels is the process' sum: a page may not say it twice. A
    collector is left between any two metrics that it gives, and what it looks at may have changed when it goes on; it
    may give a metric in parts.
    """
    pace = _Pace()
    pages: dict[str, tuple[str, dict[str, float]]] = {}
    for registry in registries:
        for metric in registry.collect():
            await pace.keep()
            page = pages.get(metric.name)
            if page is None:
                page = pages[metric.name] = _head(metric), {}
            samples, values = metric.samples, page[1]
            for start in range(0, len(samples), SAMPLES_AT_ONCE):
                _add(values, samples[start : start + SAMPLES_AT_ONCE])
                await pace.keep()
    text: list[str] = []
    for head, values in pages.values():
        text.append(head)
        series = list(values.items())
        for start in range(0, len(series), SAMPLES_AT_ONCE):
            piece = series[start : start + SAMPLES_AT_ONCE]
            text.append("".join([f"{name} {floatToGoString(value)}\n" for name, value in piece]))  # type: ignore[no-untyped-call]
            await pace.keep()
    return "".join(text).encode()


def _head(metric: Metric) -> str:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    text = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {metric.type if metric.type in _TYPES else 'untyped'}\n"


def _add(values: dict[str, float], samples: Iterable[Sample]) -> None:
    for sample in samples:
        labels = sample.labels
        series = sample.name
        if labels:
            pairs = [f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)]
            series = f"{series}{{{','.join(pairs)}}}"
        values[series] = values[series] + sample.value if series in values else sample.value


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value
