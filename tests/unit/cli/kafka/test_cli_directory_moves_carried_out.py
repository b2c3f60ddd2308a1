"""Moves between the directories of a node that does what it likes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from barnabas.cli.balance.cluster_state import Directory, Place
from barnabas.cli.balance.directory_moves import Held, Holding, Move
from barnabas.cli.kafka.directory_moves import MovesOutcome, carry_out
from barnabas.cli.kafka.reassigner import LOOK_SECONDS, STANDSTILL_SECONDS, Progress
from barnabas.cli.kafka.reassigning import Problem
from barnabas.cli.refusal import Refused
from barnabas.kernel.errors import ErrorCode

GIVE_UP_SECONDS = 60.0


@dataclass
class FakeNode:
    """A node whose moves end after so many looks, `now` in seconds."""

    replicas: dict[Place, Held]
    refused: Mapping[Place, Problem] = field(default_factory=dict)
    on_look: Callable[[int], None] = lambda look: None
    looks: int = 0
    is_silent: bool = False
    now: float = 0.0

    def holding(self, places: Collection[Place]) -> Holding | None:
        self.looks += 1
        self.on_look(self.looks)
        shown = tuple(each for each in self.replicas.values() if each.place in places)
        return None if self.is_silent else Holding((Directory("a"), Directory("b")), shown)

    def begin(self, moves: Sequence[Move]) -> Mapping[Place, Problem]:
        for move in moves:
            if move.place not in self.refused:
                self.replicas[move.place] = replace(self.replicas[move.place], moving_to=move.after)
        return self.refused

    def copy(self, place: Place, copied_bytes: int) -> None:
        self.replicas[place] = replace(self.replicas[place], copied_bytes=copied_bytes)

    def arrive(self, place: Place) -> None:
        held = self.replicas[place]
        self.replicas[place] = replace(held, path=held.moving_to, moving_to="")

    def pause(self, seconds: float) -> None:
        self.now += seconds


def node_with(*numbers: int) -> FakeNode:
    return FakeNode({("t", number): Held("t", number, "a", 10) for number in numbers})


def moves(*numbers: int) -> list[Move]:
    return [Move("t", number, "a", "b", 10) for number in numbers]


def run(
    node: FakeNode, begun: Sequence[Move], under_way: Sequence[Move] = (), told: list[str] | None = None
) -> tuple[MovesOutcome, list[Progress]]:
    seen: list[Progress] = []
    outcome = carry_out(
        *(node, begun, under_way),
        give_up_seconds=GIVE_UP_SECONDS,
        report=seen.append,
        remark=(told if told is not None else []).append,
        clock=lambda: node.now,
        pause=node.pause,
    )
    return outcome, seen


def test_moves_are_begun_and_watched_until_all_have_arrived() -> None:
    node = node_with(0, 1)

    def on_look(look: int) -> None:
        node.copy(("t", 1), 4)
        if look == 2:
            node.arrive(("t", 0))
        elif look == 3:
            node.arrive(("t", 1))

    node.on_look = on_look
    outcome, seen = run(node, moves(0, 1))
    assert [move.number for move in outcome.done] == [0, 1]
    assert [(each.done, each.bytes_done, each.running) for each in seen] == [
        (0, 4, 2),
        (1, 14, 1),
        (2, 20, 0),
    ]


def test_what_moves_already_is_not_begun_again() -> None:
    node = node_with(0)
    node.replicas["t", 0] = replace(node.replicas["t", 0], moving_to="b")
    node.on_look = lambda look: node.arrive(("t", 0)) if look == 2 else None
    outcome, _ = run(node, [], moves(0))
    assert [move.number for move in outcome.done] == [0]


def test_a_move_that_is_refused_is_not_waited_for() -> None:
    node = node_with(0)
    node.refused = {("t", 0): Problem(ErrorCode.kafka_storage_error, "")}
    outcome, _ = run(node, moves(0))
    assert (outcome.done, list(outcome.refused)) == ([], [("t", 0)])


@pytest.mark.parametrize("left", [Held("t", 0, "a", 10), Held("t", 0, "a", 10, "c"), None])
def test_a_move_that_ends_otherwise_is_told(left: Held | None) -> None:
    node = node_with(0)

    def on_look(look: int) -> None:
        if left is None:
            node.replicas.clear()
        else:
            node.replicas["t", 0] = left

    node.on_look = on_look
    outcome, _ = run(node, moves(0))
    assert ([move.number for move in outcome.ended], outcome.done) == ([0], [])


def test_a_node_that_restarts_is_waited_for() -> None:
    node = node_with(0)

    def on_look(look: int) -> None:
        node.is_silent = look < 5
        if look == 5:
            node.arrive(("t", 0))

    node.on_look = on_look
    outcome, _ = run(node, moves(0))
    assert [move.number for move in outcome.done] == [0]


def test_a_standstill_is_said_once_and_ends_it_later() -> None:
    node, told = node_with(0), list[str]()
    with pytest.raises(Refused, match="nothing has moved for 60 s, with 1 replica under way"):
        run(node, moves(0), told=told)
    assert len(told) == 1
    assert GIVE_UP_SECONDS <= node.now <= GIVE_UP_SECONDS + LOOK_SECONDS
    assert GIVE_UP_SECONDS > STANDSTILL_SECONDS
