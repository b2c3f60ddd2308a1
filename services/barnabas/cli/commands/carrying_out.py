"""Reassignments carried out for somebody who watches: a progress bar on a terminal, else a line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

import typer

from barnabas.cli.balance.cluster_state import ClusterState, Reassignment
from barnabas.cli.refusal import Refused
from barnabas.cli.text.output import counted, say
from barnabas.cli.text.progress import Advance, progress_bar

if TYPE_CHECKING:
    from barnabas.cli.kafka.administration import Administration
    from barnabas.cli.kafka.reassigner import Outcome, Progress

LINE_SECONDS: Final = 10.0
"""Between two lines about the progress where there is no terminal."""

REORDERED_AT_ONCE: Final = 500
"""Partitions that change only the order of their replicas, or lose some: that is done at once."""

AtOnceFlag = Annotated[
    int,
    typer.Option(
        "--at-once", min=1, max=10_000, help="Partitions that are copied at the same time, at most."
    ),
]
GiveUpAfterFlag = Annotated[
    float,
    typer.Option(
        "--give-up-after", metavar="SECONDS", min=1, help="Stop waiting when nothing has moved for so long."
    ),
]
ThrottleFlag = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES", min=1, help="Bytes a second that each node may send and receive meanwhile."
    ),
]


@dataclass(frozen=True)
class Pace:
    """How fast it goes, and how long it is waited for."""

    at_once: AtOnceFlag = 20
    give_up_after: GiveUpAfterFlag = 120.0
    throttle: ThrottleFlag = None


class Planned(Protocol):
    """What is to be reassigned, and what is already being."""

    @property
    def reassignments(self) -> Sequence[Reassignment]: ...
    @property
    def under_way(self) -> Sequence[Reassignment]: ...


PlanT = TypeVar("PlanT", bound=Planned)


def reassignment_data(reassignment: Reassignment) -> dict[str, Any]:
    """One reassignment as plain data, under the names of Kafka's reassignment files."""
    return {
        "topic": reassignment.topic,
        "partition": reassignment.number,
        "replicas": list(reassignment.after),
        "replicasBefore": list(reassignment.before),
        "bytesMoved": reassignment.bytes_moved,
    }


def see_through(
    administration: Administration,
    state: ClusterState,
    plan: Callable[[ClusterState], PlanT],
    pace: Pace,
    *,
    unfinished: str,
) -> tuple[PlanT, list[Reassignment]]:
    """Plan and carry it out until nothing is left to be done: the last plan, and what was reassigned.

    Raises Refused with `unfinished` where a round gets nothing done.
    """
    from barnabas.cli.kafka.cluster_reading import read_state
    from barnabas.cli.kafka.reassigning import elect_preferred
    from barnabas.cli.kafka.temporary_throttles import TemporaryThrottles

    done: list[Reassignment] = []
    with TemporaryThrottles(administration) as throttles:
        while True:
            planned = plan(state)
            running = (*planned.reassignments, *planned.under_way)
            if not running:
                return planned, done
            if pace.throttle is not None:
                throttles.throttle_reassignments(state, running, pace.throttle)
            outcome = carry_out(administration, planned.reassignments, planned.under_way, pace)
            elect_preferred(administration, [reassignment.place for reassignment in outcome.done])
            done += outcome.done
            tell_outcome(outcome)
            if not outcome.is_complete and not outcome.done:
                raise Refused(unfinished)
            state = read_state(administration)


def carry_out(
    administration: Administration,
    reassignments: Sequence[Reassignment],
    under_way: Iterable[Reassignment],
    pace: Pace,
) -> Outcome:
    """Carry the reassignments out to their end. Raises Refused when they stand still."""
    from barnabas.cli.kafka.reassigner import Outcome, ReassignableCluster, Reassigner

    joined = list(under_way)
    copying = [reassignment for reassignment in reassignments if reassignment.added]
    reordered = [reassignment for reassignment in reassignments if not reassignment.added]
    everything = [*copying, *reordered, *joined]
    size_bytes = sum(each.bytes_moved for each in everything)
    with told("reassigning", len(everything), size_bytes, "partitions") as progress:
        outcome = Outcome()
        for some, others, most in ((copying, joined, pace.at_once), (reordered, [], REORDERED_AT_ONCE)):
            if not some and not others:
                continue
            reassigner = Reassigner(
                ReassignableCluster(administration),
                at_once=most,
                give_up_seconds=pace.give_up_after,
                report=progress.report,
                remark=say,
            )
            outcome = outcome.joined(reassigner.run(some, others))
            progress.settle()
    return outcome


def tell_outcome(outcome: Outcome) -> None:
    """Say what was not done, and why."""
    if outcome.gone:
        say(f"{counted(len(outcome.gone), 'partition')} passed over: their topics were deleted meanwhile")
    for what, why in (
        (outcome.passed_over, "passed over: somebody else reassigned them meanwhile"),
        (outcome.given_up, "not reassigned: somebody gave that up meanwhile"),
    ):
        if what:
            first = what[0]
            say(f"{counted(len(what), 'partition')} such as {first.topic}-{first.number} {why}")
    for (topic, number), problem in list(outcome.refused.items())[:1]:
        say(f"{counted(len(outcome.refused), 'partition')} refused, such as {topic}-{number}: {problem}")


class Teller:
    """Owns what was told last of how far it is."""

    def __init__(self, count_in_all: int, bytes_in_all: int, noun: str) -> None:
        self._bytes_in_all = bytes_in_all
        self._count_in_all = count_in_all
        self._noun = noun
        self._settled = (0, 0)
        self._last = (0, 0)
        self._shown = 0
        self._advance: Advance = _unseen
        self._said_at = time.monotonic()

    @property
    def total(self) -> int:
        return self._bytes_in_all or self._count_in_all

    @property
    def unit(self) -> str:
        return "bytes" if self._bytes_in_all else self._noun

    def show_with(self, advance: Advance) -> None:
        self._advance = advance

    def report(self, progress: Progress) -> None:
        done, bytes_done = self._settled[0] + progress.done, self._settled[1] + progress.bytes_done
        self._last = (done, bytes_done)
        shown = bytes_done if self._bytes_in_all else done
        if shown > self._shown:
            self._advance(shown - self._shown)
            self._shown = shown
        now = time.monotonic()
        if not sys.stderr.isatty() and now - self._said_at >= LINE_SECONDS:
            self._said_at = now
            say(
                f"{done:,} of {self._count_in_all:,} {self._noun}, {bytes_done:,} of {self._bytes_in_all:,} bytes; "
                f"{progress.running} under way, {progress.waiting} to come"
            )

    def settle(self) -> None:
        """What is reported next comes on top of what was reported so far."""
        self._settled = self._last


def _unseen(_: int) -> None:
    pass


@contextmanager
def told(doing: str, count: int, size_bytes: int, noun: str) -> Iterator[Teller]:
    """What tells somebody who watches how far it is: what is done with so many of what `noun` names."""
    teller = Teller(count, size_bytes, noun)
    try:
        with progress_bar(f"{doing} {noun}", teller.total, unit=teller.unit) as advance:
            teller.show_with(advance)
            yield teller
    except KeyboardInterrupt:
        say("stopped: what was begun goes on in the cluster; run the same command again to see it through")
        raise
