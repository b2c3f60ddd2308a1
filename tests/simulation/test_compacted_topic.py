"""What is held against replicas that have compacted a log, each as far as it knew to be committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest
from compacted_topic import PLACE, compared, last_of_each_key
from log_checks import Log, check_agreement

END: Final = 6
"""The lowest high watermark."""

WHOLE: Final = ["e", "a", "b", "c", "a", "b", "d", "a"]
"""The keys of a log, from offset 0 on."""


class Told:
    """A judge."""

    def __init__(self) -> None:
        self.violations: list[str] = []

    def violate(self, what: str) -> None:
        self.violations.append(what)


def log_of(without: tuple[int, ...] = (), sender: str = "x") -> Log:
    return {
        offset: (f"{key}/{sender}:{offset}".encode(), 0)
        for offset, key in enumerate(WHOLE)
        if offset not in without
    }


def disagree(logs: Mapping[str, Log], cleaned: int) -> bool:
    """Whether they do, where "1" has cleaned up to `cleaned` and the others not at all."""
    told = Told()
    latest = last_of_each_key(logs, END, {name: cleaned if name == "1" else END for name in logs})
    check_agreement(told, PLACE, latest, compared(latest, END))
    return bool(told.violations)


def test_what_was_taken_for_a_record_that_others_do_not_know_to_be_committed_is_not_missing() -> None:
    logs = {"1": log_of((1, 2, 4)), "2": log_of(), "3": log_of((1,))}
    assert not disagree(logs, 8)


@pytest.mark.parametrize("cleaned", [END, 7])
def test_what_was_taken_for_a_record_that_is_not_cleaned_is_missing(cleaned: int) -> None:
    """It is not committed, or in the active segment."""
    assert disagree({"1": log_of((1, 4)), "2": log_of(), "3": log_of()}, cleaned)


@pytest.mark.parametrize(
    "logs",
    [
        {"1": log_of((4,)), "2": log_of(), "3": log_of()},  # an older one stays
        {"1": log_of((1, 4)), "2": log_of((7,)), "3": log_of()},  # another one would be left without either
        {"1": log_of((1, 4)), "2": log_of(), "3": log_of((1, 4))},  # the third has cleaned nothing
        {"1": log_of((2, 5)), "2": log_of(), "3": log_of()},  # of that key there is no later one
        {"1": log_of((1, 4)), "2": log_of(), "3": log_of(sender="y")},  # the others differ
    ],
)
def test_nothing_else_is_excused(logs: Mapping[str, Log]) -> None:
    assert disagree(logs, 8)
