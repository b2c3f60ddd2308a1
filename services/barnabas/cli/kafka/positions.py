"""Where reading starts and stops: what the flags say, and what that means for one partition."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.cli.kafka.times import parse_time
from barnabas.cli.refusal import usage

BEGINNING, END, STORED, OFFSET, TAIL, TIME = "beginning", "end", "stored", "offset", "tail", "time"


@dataclass(frozen=True)
class Span:
    """From where to where; `start` is one of the kinds above, `number` its offset, count or time in ms.

    `until_ms` is a time in ms before which records count, or None to go on.
    """

    start: str
    number: int = 0
    until_ms: int | None = None
    is_explicit: bool = True


def parse_span(
    offsets: Iterable[str], from_: str, until: str, *, is_from_beginning: bool, is_ending: bool
) -> Span:
    """The span of --offset, --from, --until and --from-beginning. Raises Refused when they contradict each other.

    Without a start, reading begins at the end, or at the beginning where it is to end by itself: what is there now
    would otherwise be skipped, and there would be nothing to end with.
    """
    now = round(time.time() * 1000)
    starts: list[tuple[str, int]] = []
    ends: list[int] = []
    for text in offsets:
        if text.startswith("e@"):
            ends.append(parse_time(text[2:], now) if not text[2:].isdigit() else int(text[2:]))
        else:
            starts.append(parse_start(text, now))
    if is_from_beginning:
        starts.append((BEGINNING, 0))
    if from_:
        starts.append((TIME, parse_time(from_, now)))
    if until:
        ends.append(parse_time(until, now))
    if len(set(starts)) > 1 or len(set(ends)) > 1:
        raise usage(
            "more than one start, or more than one end: give one of --offset, --from and --from-beginning"
        )
    until_ms = ends[0] if ends else None
    if starts:
        return Span(*starts[0], until_ms)
    return Span(BEGINNING if is_ending or ends else END, 0, until_ms, is_explicit=False)


def parse_start(text: str, now: int) -> tuple[str, int]:
    """beginning, earliest, end, latest, stored, N, -N or s@MS."""
    named = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END, "stored": STORED}
    if text in named:
        return named[text], 0
    if text.startswith("s@"):
        return TIME, int(text[2:]) if text[2:].isdigit() else parse_time(text[2:], now)
    if text.isdigit():
        return OFFSET, int(text)
    if text.startswith("-") and text[1:].isdigit():
        return TAIL, int(text[1:])
    raise usage(f"--offset {text}: beginning, end, stored, N, -N, s@MS or e@MS")


def start_offset(span: Span, first: int, last: int, at_time: int) -> int:
    """The offset at which to start in a partition that has the offsets from `first` up to, not with, `last`.

    `at_time` is the first offset at or after the span's time, negative when there is none.
    """
    if span.start == BEGINNING:
        return first
    if span.start == END:
        return last
    if span.start == TAIL:
        return max(first, last - span.number)
    if span.start == TIME:
        return last if at_time < 0 else at_time
    assert span.start == OFFSET, f"{span.start} is no offset of a log"
    if not first <= span.number <= last:
        raise usage(f"offset {span.number} is out of range: the log has {first} to {last}")
    return span.number
