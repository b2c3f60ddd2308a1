"""A page of metrics, and docs/metrics.md, as tests ask them."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
WAIT_SECONDS: Final = 30.0

_ROW: Final = re.compile(r"^\| `(\w+)` \| (gauge|counter|histogram) \| ((?:`\w+` ?)*)\|", re.MULTILINE)


class Scrape:
    """One answer of a `/metrics`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def series(self, sample: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each sample of that name that has `labels`."""
        return [
            (found.labels, found.value)
            for family in self.families.values()
            for found in family.samples
            if found.name == sample and labels.items() <= found.labels.items()
        ]

    def value(self, sample: str, **labels: str) -> float:
        """The sum over all samples of that name that have `labels`; there is at least one."""
        found = self.series(sample, **labels)
        assert found, f"no {sample} with {labels}"
        return sum(value for _, value in found)


def scrape(http: str) -> Scrape:
    """The metrics that `http` (`http://host:port`) serves now."""
    with urllib.request.urlopen(f"{http}/metrics", timeout=10) as answer:
        return Scrape(answer.read().decode())


def scrape_until(http: str, holds: Callable[[Scrape], bool]) -> Scrape:
    """The first scrape for which `holds`."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = scrape(http)
        if holds(found):
            return found
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.1)


def documented() -> dict[str, tuple[str, set[str]]]:
    """(type, labels) of each metric in docs/metrics.md, by name."""
    rows: dict[str, tuple[str, set[str]]] = {}
    for name, kind, labels in _ROW.findall(PAGE.read_text()):
        known_kind, known_labels = rows.setdefault(name, (kind, set()))
        assert known_kind == kind, f"{name} is documented as {known_kind} and {kind}"
        known_labels.update(labels.replace("`", "").split())
    return rows
