"""What the assignors promise: every partition has one member, sizes are even, what need not move stays, and in time."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.groups.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    GroupSpecification,
    MemberSpecification,
)

TOPICS = [bytes([number]) * 16 for number in range(1, 7)]
SECONDS_MAX = 1.0
"""Of processor time, for the largest groups below; they need less than a tenth of it."""


def group(
    members: dict[str, tuple[set[bytes], Assignment]],
    counts: dict[bytes, int],
    instances: dict[str, str] | None = None,
) -> GroupSpecification:
    instances = instances or {}
    return GroupSpecification(
        {
            member_id: MemberSpecification(frozenset(topics), had, instances.get(member_id))
            for member_id, (topics, had) in members.items()
        },
        counts,
    )


def alike(
    size: int, counts: dict[bytes, int], had: dict[str, Assignment] | None = None
) -> GroupSpecification:
    had = had or {}
    ids = [f"m{index:04}" for index in range(size)]
    return group({member_id: (set(counts), had.get(member_id, {})) for member_id in ids}, counts)


def sizes(assigned: dict[str, Assignment]) -> dict[str, int]:
    return {member_id: sum(map(len, some.values())) for member_id, some in assigned.items()}


def pairs(assigned: dict[str, Assignment]) -> dict[tuple[bytes, int], str]:
    found: dict[tuple[bytes, int], str] = {}
    for member_id, topics in assigned.items():
        for topic_id, partitions in topics.items():
            assert partitions, "no topic is there without a partition"
            for partition in partitions:
                assert (topic_id, partition) not in found, "nobody has what another has"
                found[topic_id, partition] = member_id
    return found


def check_complete(specification: GroupSpecification, assigned: dict[str, Assignment]) -> None:
    """Each partition that somebody subscribes to has exactly one member, who subscribes to it."""
    assert assigned.keys() == specification.members.keys()
    subscribed = set().union(*(member.topics for member in specification.members.values()))
    wanted = {
        (topic_id, index)
        for topic_id in subscribed
        for index in range(specification.partition_counts[topic_id])
    }
    owners = pairs(assigned)
    assert owners.keys() == wanted
    assert all(topic_id in specification.members[owner].topics for (topic_id, _), owner in owners.items())


@st.composite
def groups(draw: st.DrawFn) -> GroupSpecification:
    counts = {topic_id: draw(st.integers(0, 9)) for topic_id in TOPICS}
    ids = [f"m{index}" for index in range(draw(st.integers(1, 8)))]
    same = draw(st.booleans())
    subscriptions = st.sets(st.sampled_from(TOPICS))
    everybody = draw(subscriptions)
    owners = st.sampled_from([*ids, ""])
    had: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in ids}
    for topic_id, count in counts.items():
        for index in range(count):
            owner = draw(owners)
            if owner:
                had[owner].setdefault(topic_id, set()).add(index)
    frozen = {
        member_id: {topic_id: frozenset(some) for topic_id, some in topics.items()}
        for member_id, topics in had.items()
    }
    members = {
        member_id: (everybody if same else draw(subscriptions), frozen[member_id]) for member_id in ids
    }
    return group(members, counts, {ids[0]: "static"} if draw(st.booleans()) else None)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(specification=groups())
def test_every_partition_has_one_member_who_subscribes(name: str, specification: GroupSpecification) -> None:
    assigned = ASSIGNORS[name](specification)
    check_complete(specification, assigned)
    assert ASSIGNORS[name](specification) == assigned


@given(groups())
def test_uniform_is_even_and_moves_nothing_without_need(specification: GroupSpecification) -> None:
    assigned = ASSIGNORS["uniform"](specification)
    if not specification.is_homogeneous:
        return
    counts = sizes(assigned)
    assert max(counts.values()) - min(counts.values()) <= 1
    quota, left_over = divmod(sum(counts.values()), len(counts))
    had = sorted(
        (
            sum(len(some) for topic_id, some in member.assignment.items() if topic_id in member.topics)
            for member in specification.members.values()
        ),
        reverse=True,
    )
    could_stay = sum(min(size, quota + (place < left_over)) for place, size in enumerate(had))
    before = pairs(
        {member_id: dict(member.assignment) for member_id, member in specification.members.items()}
    )
    stayed = sum(before.get(key) == owner for key, owner in pairs(assigned).items())
    assert stayed == could_stay


@given(groups())
def test_uniform_leaves_no_topic_with_subscribers_two_apart(specification: GroupSpecification) -> None:
    assigned = ASSIGNORS["uniform"](specification)
    counts = sizes(assigned)
    for (topic_id, _), owner in pairs(assigned).items():
        others = [
            counts[member_id]
            for member_id, member in specification.members.items()
            if topic_id in member.topics
        ]
        assert counts[owner] - min(others) <= 1


@given(groups())
def test_what_is_even_stays_as_it_is(specification: GroupSpecification) -> None:
    first = ASSIGNORS["uniform"](specification)
    again = group(
        {
            member_id: (set(member.topics), first[member_id])
            for member_id, member in specification.members.items()
        },
        dict(specification.partition_counts),
    )
    assert ASSIGNORS["uniform"](again) == first


@given(groups())
def test_ranges_are_stretches_of_even_length(specification: GroupSpecification) -> None:
    assigned = ASSIGNORS["range"](specification)
    for topic_id in TOPICS:
        lengths = []
        for member_id, member in specification.members.items():
            some = assigned[member_id].get(topic_id, frozenset())
            assert not some or some == frozenset(range(min(some), max(some) + 1))
            if topic_id in member.topics:
                lengths.append(len(some))
        assert not lengths or max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("others", [{TOPICS[0]}, {TOPICS[0], TOPICS[1]}])
def test_what_a_topic_does_not_have_is_nobodys(name: str, others: set[bytes]) -> None:
    """An assignor of classic members may have said anything."""
    first = TOPICS[0]
    members: dict[str, tuple[set[bytes], Assignment]] = {
        "a": ({first}, {first: frozenset((7,))}),
        "b": ({first}, {first: frozenset((-1, 0, 1, 2))}),
        "c": (others, {}),
    }
    specification = group(members, {first: 3, TOPICS[1]: 1})
    check_complete(specification, ASSIGNORS[name](specification))


def test_ranges_of_equal_topics_are_the_same() -> None:
    one, two = TOPICS[:2]
    assigned = ASSIGNORS["range"](alike(3, {one: 7, two: 7}))
    assert [sorted(some[one]) for some in assigned.values()] == [[0, 1, 2], [3, 4], [5, 6]]
    assert all(some[one] == some[two] for some in assigned.values())


def test_static_members_come_first_by_their_instances() -> None:
    topic_id = TOPICS[0]
    members: dict[str, tuple[set[bytes], Assignment]] = {name: ({topic_id}, {}) for name in "abc"}
    specification = group(members, {topic_id: 4}, {"b": "2", "c": "1"})
    assigned = ASSIGNORS["range"](specification)
    assert [sorted(assigned[name][topic_id]) for name in "cba"] == [[0, 1], [2], [3]]


def test_a_range_can_be_empty() -> None:
    assigned = ASSIGNORS["range"](alike(3, {TOPICS[0]: 2}))
    assert [dict(some) for some in assigned.values()] == [
        {TOPICS[0]: frozenset({0})},
        {TOPICS[0]: frozenset({1})},
        {},
    ]


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize(("members", "partitions"), [(1000, 1000), (100, 10_000)])
def test_large_groups_do_not_take_long(name: str, members: int, partitions: int) -> None:
    counts = dict.fromkeys(TOPICS[:5], partitions // 5)
    assign = ASSIGNORS[name]
    started = process_time()
    first = assign(alike(members, counts))
    joined = assign(alike(members + 1, counts, first))
    assert process_time() - started < SECONDS_MAX
    check_complete(alike(members + 1, counts), joined)
    if name == "uniform":
        before = pairs(first)
        moved = sum(before[key] != owner for key, owner in pairs(joined).items())
        assert moved <= partitions // members


def test_a_large_group_of_different_subscriptions_does_not_take_long() -> None:
    counts = dict.fromkeys(TOPICS[:4], 250)
    members: dict[str, tuple[set[bytes], Assignment]] = {
        f"m{index:04}": ({TOPICS[index % 4], TOPICS[(index + 1) % 4]}, {}) for index in range(1000)
    }
    specification = group(members, counts)
    started = process_time()
    assigned = ASSIGNORS["uniform"](specification)
    assert process_time() - started < SECONDS_MAX
    check_complete(specification, assigned)
    assert max(sizes(assigned).values()) <= 2


@settings(max_examples=20)
@given(st.integers(1, 30), st.integers(1, 60))
def test_a_member_that_leaves_moves_only_what_it_had(members: int, partitions: int) -> None:
    first = ASSIGNORS["uniform"](alike(members + 1, {TOPICS[0]: partitions}))
    gone = max(first)
    rest = {member_id: some for member_id, some in first.items() if member_id != gone}
    after = ASSIGNORS["uniform"](alike(members, {TOPICS[0]: partitions}, rest))
    before = pairs(rest)
    assert all(pairs(after)[key] == owner for key, owner in before.items())
