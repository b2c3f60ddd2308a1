"""Reassignments carried out on a cluster that does what it likes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from barnabas.cli.balance.cluster_state import Place, Reassignment
from barnabas.cli.kafka.reassigner import LOOK_SECONDS, STANDSTILL_SECONDS, Outcome, Progress, Reassigner
from barnabas.cli.kafka.reassigning import Problem, Reassigning
from barnabas.cli.refusal import Refused
from barnabas.kernel.errors import ErrorCode

GIVE_UP_SECONDS = 60.0


def reassignment(
    number: int, before: tuple[int, ...] = (1,), after: tuple[int, ...] = (2,), size: int = 10
) -> Reassignment:
    return Reassignment("t", number, before, after, size)


@dataclass
class FakeCluster:
    """Owns replicas, what moves, and the time; each look ends as many moves as `speed` says."""

    now: dict[Place, tuple[int, ...]]
    speed: int = 1
    under_way: dict[Place, Reassigning] = field(default_factory=dict)
    most_at_once: int = 0
    problems: dict[Place, list[Problem]] = field(default_factory=dict)
    silent: list[int] = field(default_factory=list)
    seconds: float = 0.0
    at: dict[float, Callable[[], None]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    reported: list[Progress] = field(default_factory=list)

    def reassigning(self) -> Mapping[Place, Reassigning]:
        return dict(self.under_way)

    def replicas(self, places: Collection[Place]) -> Mapping[Place, tuple[int, ...]]:
        return {place: self.now[place] for place in places if place in self.now}

    def begin(self, reassignments: Sequence[Reassignment]) -> Mapping[Place, Problem]:
        refused = {}
        for each in reassignments:
            if self.problems.get(each.place):
                refused[each.place] = self.problems[each.place].pop(0)
            else:
                self.under_way[each.place] = Reassigning(each.before + each.added, each.added, each.removed)
                self.under_way[each.place] = Reassigning(
                    (*each.after, *each.removed), each.added, each.removed
                )
        self.most_at_once = max(self.most_at_once, len(self.under_way))
        return refused

    def copied(self, reassignments: Collection[Reassignment]) -> int | None:
        return None

    def away(self) -> Collection[int]:
        return self.silent

    def pause(self, seconds: float) -> None:
        self.seconds += seconds
        for due in [due for due in self.at if due <= self.seconds]:
            self.at.pop(due)()
        for place in sorted(self.under_way)[: self.speed]:
            self.now[place] = self.under_way.pop(place).target

    def run(
        self, reassignments: Sequence[Reassignment], under_way: Sequence[Reassignment] = (), at_once: int = 5
    ) -> Outcome:
        reassigner = Reassigner(
            self,
            at_once=at_once,
            give_up_seconds=GIVE_UP_SECONDS,
            report=self.reported.append,
            remark=self.said.append,
            clock=lambda: self.seconds,
            pause=self.pause,
        )
        return reassigner.run(reassignments, under_way)


def cluster_of(reassignments: Sequence[Reassignment], **more: object) -> FakeCluster:
    return FakeCluster({each.place: each.before for each in reassignments}, **more)  # type: ignore[arg-type]


def test_no_more_than_a_portion_at_a_time() -> None:
    reassignments = [reassignment(at) for at in range(23)]
    cluster = cluster_of(reassignments, speed=2)
    outcome = cluster.run(reassignments)
    assert sorted(each.number for each in outcome.done) == list(range(23))
    assert cluster.most_at_once == 5
    assert set(cluster.now.values()) == {(2,)}
    assert cluster.reported[-1].bytes_done == 230
    assert cluster.said == []


def test_what_an_earlier_run_began_is_waited_for() -> None:
    reassignments = [reassignment(0), reassignment(1)]
    cluster = cluster_of(reassignments)
    cluster.begin(reassignments[:1])
    outcome = cluster.run(reassignments[1:], reassignments[:1])
    assert {each.number for each in outcome.done} == {0, 1}


def test_the_same_reassignment_begun_twice_is_one() -> None:
    """The answer to the first request was lost with its connection."""
    reassignments = [reassignment(0)]
    cluster = cluster_of(reassignments)
    cluster.begin(reassignments)
    assert cluster.run(reassignments).done == reassignments


def test_topics_are_deleted_before_and_in_the_middle() -> None:
    reassignments = [reassignment(at) for at in range(3)]
    cluster = cluster_of(reassignments, speed=0)
    del cluster.now["t", 0]

    def delete() -> None:
        for place in (("t", 1), ("t", 2)):
            cluster.now.pop(place)
            cluster.under_way.pop(place)

    cluster.at[2 * LOOK_SECONDS] = delete
    outcome = cluster.run(reassignments)
    assert {each.number for each in outcome.gone} == {0, 1, 2}
    assert outcome.done == []


def test_a_topic_is_deleted_between_look_and_request() -> None:
    problems = {("t", 0): [Problem(ErrorCode.unknown_topic_or_partition, "")]}
    reassignments = [reassignment(0)]
    assert cluster_of(reassignments, problems=problems).run(reassignments).gone == reassignments


def test_what_somebody_else_reassigns_is_let_be() -> None:
    reassignments = [reassignment(0), reassignment(1), reassignment(2)]
    cluster = cluster_of(reassignments)
    cluster.begin([reassignment(0, after=(3,))])
    cluster.now["t", 1] = (4,)
    outcome = cluster.run(reassignments)
    assert {each.number for each in outcome.passed_over} == {0, 1}
    assert [each.number for each in outcome.done] == [2]
    assert cluster.now["t", 1] == (4,)


def test_somebody_gives_it_up() -> None:
    reassignments = [reassignment(0)]
    cluster = cluster_of(reassignments, speed=0)
    cluster.at[LOOK_SECONDS] = cluster.under_way.clear
    outcome = cluster.run(reassignments)
    assert (outcome.given_up, outcome.passed_over) == (reassignments, [])
    assert not outcome.is_complete
    assert not Outcome().joined(outcome).is_complete


def test_somebody_else_reassigns_it_while_it_is_under_way() -> None:
    reassignments = [reassignment(0)]
    cluster = cluster_of(reassignments, speed=0)

    def reassign() -> None:
        cluster.under_way.clear()
        cluster.now["t", 0] = (4, 2)

    cluster.at[LOOK_SECONDS] = reassign
    outcome = cluster.run(reassignments)
    assert (outcome.given_up, outcome.passed_over) == ([], reassignments)


def test_a_busy_controller_is_asked_again_and_a_refusal_is_told() -> None:
    later = Problem(ErrorCode.request_timed_out, "busy")
    never = Problem(ErrorCode.invalid_replica_assignment, "broker 2, but no such broker is registered")
    reassignments = [reassignment(0), reassignment(1)]
    outcome = cluster_of(reassignments, problems={("t", 0): [later, later], ("t", 1): [never]}).run(
        reassignments
    )
    assert [each.number for each in outcome.done] == [0]
    assert outcome.refused == {("t", 1): never}


def test_a_node_that_dies_is_named_and_not_waited_for_without_end() -> None:
    reassignments = [reassignment(at) for at in range(8)]
    cluster = cluster_of(reassignments, speed=0)
    cluster.silent = [2]
    with pytest.raises(Refused, match=r"node 2 is away, and 5 of 5 .* run it again"):
        cluster.run(reassignments)
    assert GIVE_UP_SECONDS <= cluster.seconds < GIVE_UP_SECONDS + 5
    (said,) = cluster.said
    assert said.startswith(f"nothing has moved for {STANDSTILL_SECONDS:.0f} s: node 2 is away")


def test_a_node_that_comes_back_in_time_is_waited_for() -> None:
    reassignments = [reassignment(at) for at in range(8)]
    cluster = cluster_of(reassignments, speed=0)
    cluster.at[GIVE_UP_SECONDS / 2] = lambda: setattr(cluster, "speed", 1)
    assert len(cluster.run(reassignments).done) == 8
    assert len(cluster.said) == 1


def test_a_controller_that_begins_nothing_is_not_asked_without_end() -> None:
    later = Problem(ErrorCode.request_timed_out, "busy")
    reassignments = [reassignment(0)]
    cluster = cluster_of(reassignments, problems={("t", 0): [later] * 1000})
    with pytest.raises(Refused, match="the controller does not begin"):
        cluster.run(reassignments)
