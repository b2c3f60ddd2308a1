"""The metrics of many processes on one page, in Prometheus' text format.

Each family appears once, as the format asks, with the samples of every service that has it; `service` and
`instance` say whose a sample is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry


class Page(NamedTuple):
    """What one process answered at `/metrics`."""

    service: str
    instance: str
    text: str


class _Families(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def merge_metrics(pages: Iterable[Page]) -> bytes:
    """One page with the samples of all `pages`; raises ValueError for a page that is not in the text format."""
    families: dict[str, Metric] = {}
    for page in pages:
        labels = {"service": page.service, "instance": page.instance}
        for family in text_string_to_metric_families(page.text):
            merged = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type, family.unit)
            )
            merged.samples.extend(
                sample._replace(labels={**sample.labels, **labels}) for sample in family.samples
            )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(list(families.values())))
    return generate_latest(registry)
