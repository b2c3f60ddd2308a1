"""The page: from the runs of two small suites; and that the committed one is such a page, written by nobody's hand."""

from __future__ import annotations

import re
import runpy
import sys
from datetime import date
from pathlib import Path
from typing import Final

import pytest
from page import AT_KAFKA, HEAD, NOT_SEEN, WITHOUT_TESTS, page
from results import Outcome, Result, Run, read_run, write_run
from suite import Suite, SuiteCluster

ROOT: Final = Path(__file__).resolve().parents[2]
COMMITTED: Final = (ROOT / "docs" / "client-suites.md").read_text()
KAFKA: Final = "Apache Kafka 4.3.1"


class Small(Suite):
    name, version, registry, what, seconds_max = "small", "1.0", "a registry", "package a", 1.0

    def fetch(self, work: Path) -> Path:
        return work

    def run(self, folder: Path, cluster: SuiteCluster) -> list[Result]:
        return []


class Wide(Small):
    name, what, nodes = "wide", "all", 5
    settings = ("a.b=1", "c.d=2")
    remark = "It is wide."


OURS: Final = Run(
    date(2026, 11, 30),
    [
        Result("TestOne", Outcome.PASSED),
        Result("TestTwo", Outcome.FAILED, "wants a | b"),
        Result("TestThree", Outcome.FAILED, "wants a | b"),
        Result("TestFour", Outcome.PASSED),
        Result("TestFive", Outcome.NOT_APPLICABLE, "not served yet"),
    ],
)
THEIRS: Final = Run(
    date(2026, 11, 29),
    [
        Result("TestOne", Outcome.PASSED),
        Result("TestTwo", Outcome.PASSED),
        Result("TestThree", Outcome.PASSED),
        Result("TestFour", Outcome.FAILED, "theirs"),
    ],
)
FINE: Final = Run(date(2026, 12, 1), [Result("TestOne", Outcome.PASSED)])

WRITTEN: Final = """\
Passed / failed / not applicable, or skipped, each at its last run:

| client | version | from | tests | nodes | Barnabas | run on | Apache Kafka 4.3.1 | run on |
|---|---|---|---|---:|---:|---|---:|---|
| small | 1.0 | a registry | package a | 3 | 2 / 2 / 1 | 2026-11-30 | 3 / 1 / 0 | 2026-11-29 |
| wide | 1.0 | a registry | all | 5 | 1 / 0 / 0 | 2026-12-01 | 1 / 0 / 0 | 2026-12-01 |

## small

| outcome | tests | why | Apache Kafka 4.3.1 |
|---|---|---|---|
| failed | `TestThree`, `TestTwo` | wants a \\| b | passes |
| not applicable | `TestFive` | not served yet | not run |
| passed | `TestFour` |  | fails |

## wide

Its brokers are given `a.b=1`, `c.d=2`. It is wide.

All pass.

"""


def test_the_page_has_each_suite_with_its_days_its_settings_and_what_did_not_pass() -> None:
    small, wide = Small(), Wide()
    written = page({small: OURS, wide: FINE}, {small: THEIRS, wide: FINE}, KAFKA)
    assert written == HEAD.format(kafka=KAFKA) + WRITTEN + WITHOUT_TESTS


def test_a_run_is_kept_with_its_day(tmp_path: Path) -> None:
    write_run(tmp_path / "kept.json", OURS)
    assert read_run(tmp_path / "kept.json") == OURS


def test_the_committed_page_is_as_it_would_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    suites = runpy.run_path(str(Path(__file__).with_name("run.py")))["SUITES"]
    runs = {suite: runs_of(suite.name) for suite in suites}
    ours = {suite: run for suite, (run, _) in runs.items()}
    theirs = {suite: run for suite, (_, run) in runs.items()}
    kafka = re.findall(r"Apache Kafka \d+\.\d+\.\d+", COMMITTED)[0]
    assert page(ours, theirs, kafka) == COMMITTED


def runs_of(name: str) -> tuple[Run, Run]:
    """The runs (ours, Kafka's) of which the committed page tells; tests that it does not name are made up."""
    (row,) = re.findall(rf"^\| {name} \| .*", COMMITTED, re.MULTILINE)
    our_score, our_day, their_score, their_day = row.strip("| ").split(" | ")[-4:]
    section = COMMITTED.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    ours: list[Result] = []
    theirs: list[Result] = []
    for line in re.findall(r"^\| (?!outcome ).* \|$", section, re.MULTILINE):
        outcome, tests, why, there = line.removeprefix("| ").removesuffix(" |").split(" | ")
        for test in re.findall(r"`([^`]+)`", tests):
            ours.append(Result(test, Outcome(outcome), why.replace("\\|", "|")))
            theirs += [Result(test, at_kafka) for at_kafka, word in AT_KAFKA.items() if word == there]
            assert there in {NOT_SEEN, *AT_KAFKA.values()}
    return filled(ours, our_score, our_day), filled(theirs, their_score, their_day)


def filled(named: list[Result], score: str, day: str) -> Run:
    """As many results as the score has."""
    results = list(named)
    for outcome, number in zip(Outcome, score.split(" / "), strict=True):
        missing = int(number) - sum(result.outcome is outcome for result in named)
        assert missing >= 0, f"more are named than {number} that {outcome}"
        results += [Result(f"{outcome} {position}", outcome) for position in range(missing)]
    return Run(date.fromisoformat(day), results)
