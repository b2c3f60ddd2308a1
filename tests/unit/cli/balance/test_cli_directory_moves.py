"""Which replicas of a node go to which of its log directories."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.balance.cluster_state import Directory
from barnabas.cli.balance.directory_moves import Held, Holding, MovePlan, plan_even, plan_moves
from barnabas.cli.balance.planner import TOLERANCE

MEGABYTE = 1024 * 1024


def directory(path: str, usable_bytes: int | None = 10**15, *, is_cordoned: bool = False) -> Directory:
    return Directory(path, None, 10**16, usable_bytes, is_cordoned)


def held(number: int, path: str, size_bytes: int = 0, moving_to: str = "") -> Held:
    return Held("t", number, path, size_bytes, moving_to)


def holding(*replicas: Held, paths: str = "abc", cordoned: str = "") -> Holding:
    return Holding(tuple(directory(path, is_cordoned=path in cordoned) for path in paths), replicas)


def going(plan: MovePlan) -> dict[int, str]:
    return {move.number: move.after for move in plan.moves}


@st.composite
def holdings(draw: st.DrawFn) -> Holding:
    paths = "abcd"[: draw(st.integers(1, 4))]
    directories = tuple(
        replace(
            directory(path, draw(st.sampled_from([None, 0, 60 * MEGABYTE, 10**15]))),
            is_cordoned=draw(st.booleans()),
            error=draw(st.sampled_from([None, None, None, "KAFKA_STORAGE_ERROR"])),
        )
        for path in paths
    )
    replicas = [
        held(
            number,
            draw(st.sampled_from(paths)),
            draw(st.sampled_from([0, 100, MEGABYTE, 50 * MEGABYTE, 4_000 * MEGABYTE])),
            draw(st.sampled_from(["", "", *paths])),
        )
        for number in range(draw(st.integers(0, 12)))
    ]
    return Holding(
        directories,
        tuple(replace(each, moving_to="") if each.moving_to == each.path else each for each in replicas),
    )


@given(holdings())
def test_evened_out_as_far_as_it_goes_and_cordoned_ones_are_emptied(shown: Holding) -> None:
    plan = plan_even(shown)
    takers = {each.path: each for each in shown.directories if each.error is None and not each.is_cordoned}
    to_empty = {each.path for each in shown.directories if each.is_cordoned and each.error is None}
    after = going(plan)
    assert set(after.values()) <= set(takers)
    for path in to_empty:
        left = [each for each in shown.replicas if after.get(each.number, each.path_to_be) == path]
        assert sorted(f"t-{each.number}" for each in left) == sorted(
            name for name in plan.no_room if name in {f"t-{each.number}" for each in left}
        )
    for path, taker in takers.items():
        come = [each for each in shown.replicas if after.get(each.number) == path]
        assert taker.usable_bytes is None or sum(each.size_bytes for each in come) <= taker.usable_bytes
    again = Holding(
        shown.directories,
        tuple(
            replace(each, path=after.get(each.number, each.path), moving_to="")
            if each.number in after
            else each
            for each in shown.replicas
        ),
    )
    if all(each.usable_bytes == 10**15 for each in takers.values()):
        assert plan_even(again).moves == (), "what is even stays as it is"


def test_the_largest_that_fits_goes_to_the_emptiest() -> None:
    shown = holding(held(0, "a", 60 * MEGABYTE), held(1, "a", 50 * MEGABYTE), held(2, "b", 55 * MEGABYTE))
    assert going(plan_even(shown)) == {0: "c"}


def test_what_is_about_even_is_left_alone() -> None:
    shown = holding(*(held(number, path, 100 * MEGABYTE) for number, path in enumerate("aabbcc")))
    assert plan_even(shown) == MovePlan(())
    nearly = holding(held(0, "a", 100 * MEGABYTE), held(1, "b", 98 * MEGABYTE), paths="ab")
    assert TOLERANCE > 2 / 99
    assert plan_even(nearly).moves == ()


def test_a_cordoned_directory_is_emptied() -> None:
    shown = holding(held(0, "a"), held(1, "a"), held(2, "b"), cordoned="a")
    assert going(plan_even(shown)) == {0: "c", 1: "b"}
    alone = holding(held(0, "a"), paths="a", cordoned="a")
    assert plan_even(alone).no_room == ("t-0",)


def test_one_directory_has_nobody_to_share_with() -> None:
    assert plan_even(holding(held(0, "a", MEGABYTE), paths="a")) == MovePlan(())


def test_all_of_a_directory_or_of_a_topic_goes_where_it_is_asked_for() -> None:
    other = replace(held(9, "a"), topic="u")
    shown = holding(held(0, "a"), held(1, "b"), other, cordoned="c")
    assert going(plan_moves(shown, source="a", target="c")) == {0: "c", 9: "c"}, (
        "by hand also what is cordoned"
    )
    assert going(plan_moves(shown, target="b", topics={"t"})) == {0: "b"}
    assert going(plan_moves(shown, source="a")) == {0: "b", 9: "b"}, "else the emptiest that is open"


def test_what_moves_already_is_waited_for_and_may_be_sent_elsewhere() -> None:
    shown = holding(held(0, "a", 7, "b"), held(1, "a", 5))
    plan = plan_moves(shown, source="a", target="b")
    assert going(plan) == {1: "b"}
    assert [(move.number, move.before, move.after) for move in plan.under_way] == [(0, "a", "b")]
    assert going(plan_moves(shown, source="b", target="c")) == {0: "c"}
    assert plan_moves(shown, source="b", target="c").under_way == ()


def test_what_fits_nowhere_is_named() -> None:
    shown = Holding((directory("a"), directory("b", 10)), (held(0, "a", 6), held(1, "a", 6)))
    plan = plan_moves(shown, target="b")
    assert (going(plan), plan.no_room) == ({0: "b"}, ("t-1",))
    assert plan.bytes_moved == 6
