"""A pause of reading: how long it was for its connection, and what is counted of it."""

from __future__ import annotations

from barnabas.gateway.clients.held import Reason
from barnabas.gateway.clients.reading_pause import ReadingPause
from barnabas.kernel.pauses import PauseTimes


def counted(pauses: dict[Reason, PauseTimes]) -> dict[Reason, tuple[int, int]]:
    """(pauses, of them running) by reason, of those that had any."""
    return {reason: (each.pauses, each.running) for reason, each in pauses.items() if each.pauses}


def test_a_pause_lasts_as_long_as_the_event_loop_says_and_is_counted_under_its_reason() -> None:
    pauses = {reason: PauseTimes() for reason in Reason}
    pause = ReadingPause(pauses)
    assert pause.change(Reason.MUTED, 100.0) == 0.0
    assert (pause.reason, counted(pauses)) == (Reason.MUTED, {Reason.MUTED: (1, 1)})
    assert pause.change(Reason.NODE_FULL, 1_000.0) == 900.0
    assert counted(pauses) == {Reason.MUTED: (1, 0), Reason.NODE_FULL: (1, 1)}
    assert pause.change(None, 1_005.0) == 5.0
    assert (pause.reason, counted(pauses)) == (None, {Reason.MUTED: (1, 0), Reason.NODE_FULL: (1, 0)})
    assert pause.change(Reason.MUTED, 2_000.0) == 0.0, "it was read in between"
    assert all(each.seconds(0.0) < 60 for each in pauses.values()), "the metrics have a clock of their own"


def test_an_end_while_it_is_read_counts_nothing() -> None:
    pauses = {reason: PauseTimes() for reason in Reason}
    assert ReadingPause(pauses).change(None, 7.0) == 0.0
    assert counted(pauses) == {}
