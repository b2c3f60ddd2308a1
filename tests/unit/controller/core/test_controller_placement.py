"""Placement of replicas: even, distinct, and apart by rack."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.core.placement import place_replicas
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import NodeRecord


def nodes(*racks: str) -> list[NodeRecord]:
    return [NodeRecord(node_id=i, rack=rack) for i, rack in enumerate(racks)]


@given(
    st.lists(st.sampled_from(["", "r1", "r2", "r3"]), min_size=1, max_size=7),
    st.integers(1, 40),
    st.integers(1, 7),
    st.integers(0, 1000),
)
def test_placement(racks: list[str], partitions: int, factor: int, start: int) -> None:
    factor = min(factor, len(racks))
    placed = place_replicas(nodes(*racks), partitions, factor, start)
    assert len(placed) == partitions
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[i] for i in range(len(racks))) <= 1
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert len({racks[i] for i in replicas}) == min(factor, len(set(racks)))


def test_scenario_two_racks() -> None:
    placed = place_replicas(nodes("a", "a", "b", "b"), 5, 2, 0)
    assert placed == [[0, 2], [2, 1], [1, 3], [3, 0], [0, 3]]


@pytest.mark.parametrize(("count", "words"), [(0, "currently fenced"), (2, "only 2 broker")])
def test_too_few_nodes(count: int, words: str) -> None:
    with pytest.raises(KafkaError, match=words) as caught:
        place_replicas(nodes(*["r"] * count), 1, 3, 0)
    assert caught.value.code is ErrorCode.invalid_replication_factor


def named(**racks: str) -> list[NodeRecord]:
    """Nodes by name: `n0` is there, `F0` is fenced, `s0` is about to stop, `S0` has stopped."""
    return [
        NodeRecord(node_id=int(name[1:]), rack=rack, fenced=name[0] in "FS", stopping=name[0] in "sS")
        for name, rack in racks.items()
    ]


def test_a_fenced_node_gets_what_the_others_cannot_take_and_leads_nothing() -> None:
    nodes = named(n0="r", n1="r", F2="r")
    assert place_replicas(nodes, 2, 2, 0) == [[0, 1], [1, 0]]
    assert place_replicas(nodes, 3, 3, 0) == [[0, 1, 2], [1, 0, 2], [0, 1, 2]]


def test_a_node_that_has_stopped_is_like_any_that_is_fenced() -> None:
    assert place_replicas(named(n0="r", n1="r", S2="r"), 2, 3, 0) == [[0, 1, 2], [1, 0, 2]]


def test_a_fenced_node_stands_for_its_rack() -> None:
    nodes = named(n0="a", n1="a", F2="b", n3="c")
    assert {tuple(sorted(row)) for row in place_replicas(nodes, 6, 3, 0)} == {(0, 2, 3), (1, 2, 3)}
    assert {row[0] for row in place_replicas(nodes, 6, 3, 0)} == {0, 1, 3}


def test_a_node_that_is_about_to_stop_gets_nothing() -> None:
    assert place_replicas(named(n0="r", s1="r"), 3, 1, 0) == [[0], [0], [0]]
    with pytest.raises(KafkaError, match="only 1 broker"):
        place_replicas(named(n0="r", s1="r"), 1, 2, 0)
    with pytest.raises(KafkaError, match="currently fenced"):
        place_replicas(named(F0="r", s1="r"), 1, 1, 0)
