"""What fails again and again is told at once, then ever more rarely."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import OVER_SECONDS, PAUSE_SECONDS_MAX, SUBJECTS_MAX, RareLines


class Now:
    def __init__(self) -> None:
        self.seconds = 5.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def lines(now: Now) -> RareLines:
    return RareLines(get_logger("test"), now)


def fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record)["fields"] for record in caplog.records]


def test_the_pauses_grow_and_no_failure_is_left_uncounted(
    lines: RareLines, now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[float] = []
    for _ in range(7_200):
        lines.warning("no answer", reason="gone")
        if len(caplog.records) > len(told):
            told.append(now.seconds - 5)
        now.seconds += 0.5
    assert told[:4] == [0, 10, 30, 70]
    assert max(later - earlier for earlier, later in pairwise(told)) == PAUSE_SECONDS_MAX
    assert sum(each["times"] for each in fields(caplog)) == 2 * told[-1] + 1


def test_after_a_while_without_failures_the_next_is_told_at_once(
    lines: RareLines, now: Now, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        lines.error("cannot read")
        now.seconds += 1
    before = len(caplog.records)
    now.seconds += OVER_SECONDS
    lines.error("cannot read")
    assert len(caplog.records) == before + 1
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * (before + 1)
    now.seconds += 10
    lines.error("cannot read")
    assert len(caplog.records) == before + 2, "the pauses begin anew"


def test_each_subject_is_told(lines: RareLines, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        lines.warning("cannot read", "a", partition="t-0")
        lines.warning("cannot read", "b", partition="t-1")
        lines.warning("cannot write", "a", partition="t-0")
    assert [
        (record.message, each["partition"])
        for record, each in zip(caplog.records, fields(caplog), strict=True)
    ] == [
        ("cannot read", "t-0"),
        ("cannot read", "t-1"),
        ("cannot write", "t-0"),
    ]


def test_many_subjects_take_no_more_memory_than_is_said(lines: RareLines) -> None:
    for number in range(3 * SUBJECTS_MAX):
        lines.warning("no answer", str(number))
    assert len(lines._told) <= SUBJECTS_MAX
