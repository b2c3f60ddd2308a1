"""The plan of `barnabas rebalance`: what it promises whatever the cluster is like, and what it does with some."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from cluster_states import MEGABYTE, cluster, nodes, partition, states
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.balance.cluster_state import ClusterState, Node, Partition
from barnabas.cli.balance.evenness import after, shares, sharing_a_rack
from barnabas.cli.balance.layout import Layout
from barnabas.cli.balance.planner import TOLERANCE, even_load, load_excess, plan_rebalance, spread_over_racks

LARGE_PARTITIONS = 10_000
LARGE_CPU_SECONDS_MAX = 5.0


def racks_of(state: ClusterState, replicas: tuple[int, ...]) -> int:
    return len({state.by_id[replica].rack for replica in replicas})


@given(states(), st.booleans())
def test_no_partition_is_worse_off(state: ClusterState, leaders_only: bool) -> None:
    takers = {node.node_id for node in state.nodes if node.takes_replicas}
    known = state.by_place
    for reassignment in plan_rebalance(state, leaders_only=leaders_only).reassignments:
        before = known[reassignment.place]
        assert reassignment.before == before.replicas != reassignment.after
        assert len(reassignment.after) == len(reassignment.before)
        assert len(set(reassignment.after)) == len(reassignment.after), "a node has it twice"
        assert racks_of(state, reassignment.after) >= racks_of(state, reassignment.before)
        assert set(reassignment.added) <= takers
        assert set(reassignment.removed) <= takers, "what is away or being drained is not touched"
        assert not before.is_being_reassigned
        assert before.leader != -1
        if leaders_only:
            assert set(reassignment.after) == set(reassignment.before)


@given(states())
def test_the_same_state_has_the_same_plan_in_whatever_order_it_is_told(state: ClusterState) -> None:
    turned = ClusterState(state.nodes[::-1], state.partitions[::-1])
    assert plan_rebalance(state) == plan_rebalance(turned)


@given(states(), st.booleans())
def test_evening_out_moves_at_most_twice_what_is_too_much(state: ClusterState, is_one_rack: bool) -> None:
    layout = Layout(state)
    nodes_ = [node for node in layout.takers if not is_one_rack or layout.racks[node] == "a"]
    if not nodes_:
        return
    spread_over_racks(layout)
    before = {(placed.topic, placed.number): tuple(placed.replicas) for placed in layout.partitions}
    excess, distance = load_excess(layout, nodes_), _distance(layout, nodes_)
    even_load(layout, nodes_, TOLERANCE)
    moved = sum(
        placed.weight * len(set(placed.replicas) - set(before[placed.topic, placed.number]))
        for placed in layout.partitions
    )
    assert moved <= 2 * excess + 1
    assert _distance(layout, nodes_) <= distance - moved + 1


def _distance(layout: Layout, nodes_: list[int]) -> float:
    return sum(abs(layout.loads[node] - layout.mean_load(nodes_)) for node in nodes_)


@given(states())
def test_leaders_are_as_even_as_their_replicas_let_them(state: ClusterState) -> None:
    """No single change of who is preferred would even out the leaders any more."""
    layout = Layout(after(state, plan_rebalance(state, leaders_only=True).reassignments))
    for placed in layout.partitions:
        leader, others = placed.replicas[0], placed.replicas[1:]
        if leader in layout.leaders:
            assert all(
                layout.leaders[leader] - layout.leaders[other] <= 1
                for other in others
                if other in layout.loads
            )


def test_a_node_that_has_joined_gets_its_share() -> None:
    old = [partition("t", at, *(1 + (at + step) % 3 for step in range(3)), size=MEGABYTE) for at in range(12)]
    state = cluster(nodes("", "", "", ""), *old)
    then = shares(after(state, plan_rebalance(state).reassignments))
    assert [share.preferred_leaders for share in then] == [3, 3, 3, 3]
    assert [share.replicas for share in then] == [9, 9, 9, 9]


def test_empty_partitions_are_spread_as_well() -> None:
    state = cluster(nodes("", ""), *(partition("t", at, 1) for at in range(10)))
    then = shares(after(state, plan_rebalance(state).reassignments))
    assert [(share.replicas, share.preferred_leaders) for share in then] == [(5, 5), (5, 5)]


def test_replicas_in_one_rack_are_moved_apart() -> None:
    state = cluster(nodes("a", "a", "b"), partition("t", 0, 1, 2, size=5))
    (reassignment,) = plan_rebalance(state).reassignments
    assert set(reassignment.added) == {3}
    assert sharing_a_rack(state) == 1
    assert sharing_a_rack(after(state, [reassignment])) == 0


def test_an_even_cluster_is_left_alone() -> None:
    parts = [partition("t", at, 1 + at % 3, 1 + (at + 1) % 3, size=MEGABYTE) for at in range(9)]
    assert plan_rebalance(cluster(nodes("a", "b", "c"), *parts)).reassignments == ()


def test_leaders_alone_move_no_byte() -> None:
    parts = [partition("t", at, 1, 2, 3, size=MEGABYTE) for at in range(9)]
    state = cluster(nodes("", "", ""), *parts)
    plan = plan_rebalance(state, leaders_only=True)
    assert plan.bytes_moved == plan.replicas_moved == 0
    assert [share.preferred_leaders for share in shares(after(state, plan.reassignments))] == [3, 3, 3]


def test_a_full_node_gets_nothing() -> None:
    from barnabas.cli.balance.cluster_state import Directory

    first, second = nodes("", "")
    full = replace(second, directories=(Directory("/d", None, 100, 10),))
    state = cluster((first, full), *(partition("t", at, 1, size=MEGABYTE) for at in range(4)))
    assert plan_rebalance(state).reassignments == ()


def test_nobody_can_take_anything() -> None:
    (only,) = nodes("")
    assert plan_rebalance(cluster((replace(only, is_fenced=True),), partition("t", 0, 1))).reassignments == ()
    assert plan_rebalance(ClusterState((), ())).reassignments == ()


def test_nodes_of_a_rack_are_even_where_racks_cannot_be() -> None:
    """Each partition has a replica in each rack, so the only nodes of their racks have one of everything."""
    parts = [partition("t", at, 1, 2, size=10 * MEGABYTE) for at in range(10)]
    state = cluster(nodes("a", "b", "b"), *parts)
    then = shares(after(state, plan_rebalance(state).reassignments))
    assert [share.replicas for share in then] == [10, 5, 5]


@pytest.mark.parametrize("members", [4, 50])
@pytest.mark.parametrize("largest", [1, 100])
def test_ten_thousand_partitions_are_planned_in_seconds(members: int, largest: int) -> None:
    draw = random.Random(members)
    old = range(max(3, members * 4 // 5))
    parts = []
    for number in range(LARGE_PARTITIONS):
        replicas = tuple(draw.sample(old, 3))
        size = int(min(draw.paretovariate(1), largest) * MEGABYTE)
        parts.append(Partition("t", number, replicas, replicas, replicas[0], size_bytes=size))
    state = ClusterState(tuple(Node(at, f"rack-{at % 3}") for at in range(members)), tuple(parts))
    begun = time.process_time()
    plan = plan_rebalance(state)
    assert time.process_time() - begun < LARGE_CPU_SECONDS_MAX
    leaders = [share.preferred_leaders for share in shares(after(state, plan.reassignments))]
    assert max(leaders) - min(leaders) <= 2
    assert plan_rebalance(after(state, plan.reassignments)).reassignments == (), "what was evened out is even"
