"""Ratios, their spread and the page that they are written into."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark's modules, which are scripts of a folder and no package."""
    monkeypatch.syspath_prepend(str(BENCH))


RESULT: dict[str, Any] = {
    "began": "2026-01-02T03:04:05+00:00",
    "minutes": 1.0,
    "load_before": 0.1,
    "runs": 2,
    "seconds": 4.0,
    "against": "Kafka 4.3.1",
    "machine": {
        "cores": "2",
        "processor": "some",
        "memory": "8 GB",
        "kernel": "6",
        "python": "3.11",
        "librdkafka": "2",
        "java": "17",
    },
    "entries": [
        {"workload": "w", "system": system, "run": run, "figures": {"produce_mb_s": speed, "p99_ms": delay}}
        for run, pair in enumerate((((200.0, 5.0), (100.0, 1.0)), ((300.0, 4.0), (100.0, 2.0))))
        for system, (speed, delay) in zip(("barnabas", "kafka"), pair, strict=True)
    ],
}


@pytest.mark.usefixtures("bench")
def test_ratios_are_of_pairs_and_above_one_where_barnabas_is_better() -> None:
    from report import rows_of

    speed, delay = rows_of(RESULT)
    assert speed.ratio is not None
    assert delay.ratio is not None
    assert (speed.ours.median, speed.ratio.low, speed.ratio.high) == (250.0, 2.0, 3.0)
    assert (delay.ratio.low, delay.ratio.high) == (0.2, 0.5)


@pytest.mark.usefixtures("bench")
def test_the_page_keeps_what_is_around_its_figures() -> None:
    from report import BEGIN, END, fill_in

    page = fill_in(f"before\n{BEGIN}\nold\n{END}\nafter\n", RESULT)
    assert page.startswith("before\n")
    assert page.endswith(f"{END}\nafter\n")
    assert "old" not in page
    assert "| produce, MB/s | 250 (200-300) | 100 | 2.50 (2.00-3.00) |" in page
    assert fill_in(page, RESULT) == page
    with pytest.raises(ValueError, match="lacks the marks"):
        fill_in("nothing", RESULT)


def with_separate(result: dict[str, Any]) -> dict[str, Any]:
    """The same with a third system, half as quick as Barnabas and twice as late."""
    others = [
        {
            **entry,
            "system": "separate",
            "figures": {
                "produce_mb_s": entry["figures"]["produce_mb_s"] / 2,
                "p99_ms": entry["figures"]["p99_ms"] * 2,
            },
        }
        for entry in result["entries"]
        if entry["system"] == "barnabas"
    ]
    return {**result, "entries": [*others, *result["entries"]]}


@pytest.mark.usefixtures("bench")
def test_processes_apart_are_a_column_of_their_own() -> None:
    from report import markdown, rows_of

    result = with_separate(RESULT)
    speed, delay = rows_of(result)
    assert speed.separate is not None
    assert speed.separate_ratio is not None
    assert delay.separate_ratio is not None
    assert (speed.ours.median, speed.separate.median) == (250.0, 125.0)
    assert (speed.separate_ratio.low, speed.separate_ratio.high) == (1.0, 1.5)
    assert (delay.separate_ratio.low, delay.separate_ratio.high) == (0.1, 0.25)
    page = markdown(result)
    assert "| figure | Barnabas | separate | Kafka 4.3.1 | ratio | ratio of separate |" in page
    assert (
        "| produce, MB/s | 250 (200-300) | 125 (100-150) | 100 | 2.50 (2.00-3.00) | 1.25 (1.00-1.50) |"
        in page
    )
    alone = {**result, "against": None, "entries": [e for e in result["entries"] if e["system"] != "kafka"]}
    assert "| figure | Barnabas | separate |\n" in markdown(alone)
    assert "| produce, MB/s | 250 (200-300) | 125 (100-150) |\n" in markdown(alone)


@pytest.mark.usefixtures("bench")
def test_the_plot_is_drawn_with_and_without_them(tmp_path: Path) -> None:
    from report import draw

    for name, result in (("two", RESULT), ("three", with_separate(RESULT))):
        draw(result, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.usefixtures("bench")
def test_a_result_without_a_second_system_has_no_ratios() -> None:
    from report import markdown, rows_of

    alone = {
        **RESULT,
        "against": None,
        "entries": [entry for entry in RESULT["entries"] if entry["system"] == "barnabas"],
    }
    assert all(row.ratio is None and row.theirs is None for row in rows_of(alone))
    assert "| produce, MB/s | 250 (200-300) |" in markdown(alone)


@pytest.mark.usefixtures("bench")
def test_the_cost_of_this_process_is_read() -> None:
    from processes import ProcessTree

    tree = ProcessTree(os.getpid())
    assert os.getpid() in tree.pids()
    assert tree.resident_mb() > 10
    assert tree.resident_mb() >= tree.proportional_mb() > 5
    assert sum(tree.cpu_seconds().values()) > 0


@pytest.mark.usefixtures("bench")
def test_workloads_have_names_of_their_own() -> None:
    from workloads import WORKLOADS

    assert len({workload.name for workload in WORKLOADS}) == len(WORKLOADS)
    assert "workloads" in sys.modules


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize("kind", ["of three", "of quiet"])
def test_figures_of_three_brokers_have_places_of_their_own(kind: str) -> None:
    from report import BEGIN, END, PLACES, fill_in

    place = {"of three": 0, "of quiet": 1}[kind]
    name, begin, end = PLACES[place]
    _, other_begin, other_end = PLACES[1 - place]
    entries = [{**entry, "workload": f"{name}w"} for entry in RESULT["entries"]]
    others = f"{BEGIN}\nold\n{END}\nbetween\n{other_begin}\nold, too\n{other_end}\n"
    page = fill_in(f"{others}{begin}\noutdated\n{end}\n", {**RESULT, "entries": entries})
    assert page.startswith(others)
    assert "outdated" not in page
    assert f"**{name}w**" in page
    with pytest.raises(ValueError, match=f"figures {kind}"):
        fill_in(others, {**RESULT, "entries": entries})
