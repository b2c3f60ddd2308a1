"""Which replicas partitions get or lose that are to have so many."""

from __future__ import annotations

from dataclasses import replace

from cluster_states import cluster, nodes, partition, states
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.balance.cluster_state import ClusterState, Directory
from barnabas.cli.balance.replication_factor import plan_replication_factor


@given(states(), st.integers(1, 5))
def test_every_partition_has_as_many_or_is_named(state: ClusterState, factor: int) -> None:
    plan = plan_replication_factor(state, {"t"}, factor)
    known, takers = state.by_place, {node.node_id for node in state.nodes if node.takes_replicas}
    alive = {node.node_id for node in state.nodes if node.is_alive}
    for reassignment in plan.reassignments:
        part = known[reassignment.place]
        assert reassignment.before == part.replicas
        assert len(set(reassignment.after)) == len(reassignment.after) == factor
        assert set(reassignment.added) <= takers
        assert not (reassignment.added and reassignment.removed), "no more is copied than has to be"
        kept = [replica for replica in part.replicas if replica in reassignment.after]
        assert list(reassignment.after[: len(kept)]) == kept, "who stays, stays in order"
        if alive.intersection(part.replicas, part.isr):
            assert alive.intersection(reassignment.after, part.isr), "somebody is left who has all of it"
    done = {reassignment.place for reassignment in plan.reassignments}
    under_way = {reassignment.place for reassignment in plan.under_way}
    for part in state.partitions:
        named = [*plan.too_few_nodes, *plan.no_room, *plan.leaderless].count(part.name)
        is_there = len(part.replicas) == factor and part.place not in under_way
        assert (part.place in done) + (part.place in under_way) + named + is_there == 1


@given(states(), st.integers(1, 5))
def test_done_once_nothing_is_left(state: ClusterState, factor: int) -> None:
    plan = plan_replication_factor(state, {"t"}, factor)
    after = {reassignment.place: reassignment.after for reassignment in plan.reassignments}
    parts = tuple(replace(part, replicas=after.get(part.place, part.replicas)) for part in state.partitions)
    assert not plan_replication_factor(replace(state, partitions=parts), {"t"}, factor).reassignments


def test_new_replicas_go_to_other_racks_first_and_to_the_emptiest_node() -> None:
    state = cluster(
        nodes("a", "a", "b", "b", "c"), partition("t", 0, 1, size=10), partition("other", 0, 3, size=500)
    )
    (reassignment,) = plan_replication_factor(state, {"t"}, 4).reassignments
    assert reassignment.after == (1, 4, 5, 2), "4 before 3, which has more"
    assert reassignment.bytes_moved == 30


def test_other_topics_are_left_alone() -> None:
    state = cluster(nodes("", ""), partition("t", 0, 1), partition("u", 0, 1))
    assert [each.topic for each in plan_replication_factor(state, {"u"}, 2).reassignments] == ["u"]


def test_who_is_away_goes_first_then_who_lags_then_who_shares_a_rack() -> None:
    first, second, third, fourth = nodes("a", "a", "b", "c")
    part = replace(partition("t", 0, 1, 2, 3, 4), isr=(1, 2, 4), leader=1)
    state = cluster((first, second, third, replace(fourth, is_fenced=True)), part)
    afters = [plan_replication_factor(state, {"t"}, factor).reassignments[0].after for factor in (3, 2, 1)]
    assert afters == [(1, 2, 3), (1, 2), (1,)]
    in_sync = cluster((first, second, third, fourth), replace(part, isr=(1, 2, 3, 4)))
    (reassignment,) = plan_replication_factor(in_sync, {"t"}, 3).reassignments
    assert reassignment.after == (1, 3, 4), "2 shares the rack of who is preferred to lead"


def test_the_preferred_leader_goes_where_it_is_the_one_that_is_away() -> None:
    first, second = nodes("", "")
    part = replace(partition("t", 0, 1, 2), isr=(2,), leader=2)
    (reassignment,) = plan_replication_factor(
        cluster((replace(first, is_fenced=True), second), part), {"t"}, 1
    ).reassignments
    assert reassignment.after == (2,)


def test_what_cannot_be_is_named() -> None:
    first, second = nodes("", "")
    full = replace(second, directories=(Directory("/d", None, 100, 5),))
    state = cluster((first, full), partition("t", 0, 1, size=10), partition("t", 1, 1, 2, size=10))
    plan = plan_replication_factor(state, {"t"}, 2)
    assert (plan.no_room, plan.reassignments) == (("t-0",), ())
    assert plan_replication_factor(state, {"t"}, 3).too_few_nodes == ("t-1",)
    alone = replace(partition("t", 0, 1), leader=-1)
    assert plan_replication_factor(cluster((first, second), alone), {"t"}, 2).leaderless == ("t-0",)
    adding = replace(partition("t", 0, 1, 2), adding=(2,))
    (waited_for,) = plan_replication_factor(cluster((first, second), adding), {"t"}, 2).under_way
    assert (waited_for.before, waited_for.after) == ((1,), (1, 2))
