"""Where the replicas of a node go that is drained."""

from __future__ import annotations

from dataclasses import replace

from cluster_states import cluster, nodes, partition, states
from hypothesis import assume, given
from hypothesis import strategies as st

from barnabas.cli.balance.cluster_state import ClusterState, Directory
from barnabas.cli.balance.draining import plan_drain


@given(states(), st.integers(1, 8), st.booleans())
def test_all_that_can_go_goes_and_nothing_else_changes(
    state: ClusterState, node_id: int, allow_fewer: bool
) -> None:
    assume(node_id in state.by_id)
    plan = plan_drain(state, node_id, allow_fewer=allow_fewer)
    known, takers = state.by_place, {node.node_id for node in state.nodes if node.takes_replicas}
    for reassignment in plan.reassignments:
        before = known[reassignment.place].replicas
        assert reassignment.before == before
        assert node_id in before
        assert set(reassignment.removed) == {node_id}
        assert set(reassignment.added) <= takers - {node_id}
        assert len(reassignment.after) in ((len(before), len(before) - 1) if allow_fewer else (len(before),))
        assert len(set(reassignment.after)) == len(reassignment.after) > 0
    held = {part.name for part in state.replicas_on(node_id)}
    moved = {f"{reassignment.topic}-{reassignment.number}" for reassignment in plan.reassignments}
    under_way = {f"{reassignment.topic}-{reassignment.number}" for reassignment in plan.under_way}
    stay = {*plan.too_many_replicas, *plan.no_room, *plan.leaderless}
    assert moved | under_way | stay == held
    assert len(moved) + len(under_way) + len(stay) == len(held)


def test_a_replica_goes_to_a_rack_that_has_none() -> None:
    state = cluster(nodes("a", "b", "b", "a"), partition("t", 0, 1, 2))
    (reassignment,) = plan_drain(state, 1).reassignments
    assert reassignment.after == (4, 2)


def test_a_node_without_a_rack_stands_apart_from_those_with_one() -> None:
    state = cluster(nodes("a", "b", "b", ""), partition("t", 0, 1, 2))
    (reassignment,) = plan_drain(state, 1).reassignments
    assert reassignment.after == (4, 2)


def test_replicas_are_spread_over_the_others() -> None:
    state = cluster(nodes("", "", ""), *(partition("t", at, 1, size=100) for at in range(6)))
    assert sorted(reassignment.after[0] for reassignment in plan_drain(state, 1).reassignments) == [
        2,
        2,
        2,
        3,
        3,
        3,
    ]


def test_as_many_replicas_as_nodes_cannot_be_kept() -> None:
    state = cluster(nodes("", "", ""), partition("t", 0, 1, 2, 3), partition("t", 1, 2))
    assert plan_drain(state, 1).too_many_replicas == ("t-0",)
    fewer = plan_drain(state, 1, allow_fewer=True)
    assert [reassignment.after for reassignment in fewer.reassignments] == [(2, 3)]
    assert fewer.too_many_replicas == ()


def test_the_only_replica_never_goes_without_another() -> None:
    state = cluster(nodes(""), partition("t", 0, 1))
    assert plan_drain(state, 1, allow_fewer=True).too_many_replicas == ("t-0",)


def test_what_fits_nowhere_is_named() -> None:
    first, second = nodes("", "")
    second = replace(second, directories=(Directory("/d", None, 100, 150),))
    state = cluster((first, second), partition("t", 0, 1, size=100), partition("t", 1, 1, size=100))
    plan = plan_drain(state, 1)
    assert [reassignment.place for reassignment in plan.reassignments] == [("t", 0)]
    assert plan.no_room == ("t-1",)


def test_what_is_being_reassigned_is_waited_for() -> None:
    leaving = replace(partition("t", 0, 2, 1), adding=(2,), removing=(1,))
    plan = plan_drain(cluster(nodes("", ""), leaving), 1)
    assert plan.reassignments == ()
    (reassignment,) = plan.under_way
    assert (reassignment.before, reassignment.after) == ((1,), (2,))


def test_a_dead_node_is_drained_but_for_what_it_alone_had() -> None:
    first, *others = nodes("", "", "")
    alone = replace(partition("t", 0, 1), leader=-1, isr=())
    shared = replace(partition("t", 1, 1, 2), leader=2, isr=(2,))
    plan = plan_drain(cluster((replace(first, is_fenced=True), *others), alone, shared), 1)
    assert [reassignment.after for reassignment in plan.reassignments] == [(3, 2)]
    assert plan.leaderless == ("t-0",)
