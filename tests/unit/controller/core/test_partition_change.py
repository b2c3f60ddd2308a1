"""Every row of Kafka's rules for ISR, eligible leader replicas, the last known leader and elections (KIP-966)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from barnabas.controller.core.elections import (
    Restart,
    after_hand_over,
    after_node_came,
    after_node_left,
    after_node_restarted,
)
from barnabas.controller.core.partition_change import ElectionTerms, PartitionChange
from barnabas.messages.metadata_pb2 import PartitionRecord

NOBODY = -1

State = tuple[int, list[int], list[int], list[int]]
"""(leader, in-sync replicas, eligible ones, last known)"""


def partition(
    leader: int,
    isr: Sequence[int],
    eligible: Sequence[int] = (),
    last_known: Sequence[int] = (),
    replicas: Sequence[int] = (1, 2, 3),
) -> PartitionRecord:
    return PartitionRecord(
        leader=leader,
        leader_epoch=5,
        partition_epoch=7,
        replicas=replicas,
        isr=isr,
        eligible_leader_replicas=eligible,
        last_known_eligible_leader_replicas=last_known,
    )


def terms(*eligible: int, needed: int = 2, unclean: bool = False) -> ElectionTerms:
    return ElectionTerms(eligible, lambda: needed, lambda: unclean)


def state(record: PartitionRecord | None) -> State:
    assert record is not None
    last_known = record.last_known_eligible_leader_replicas
    return record.leader, record.isr[:], record.eligible_leader_replicas[:], last_known[:]


def crashed(node_id: int) -> Restart:
    return Restart(node_id, is_clean=False, has_lost_a_directory=False)


def restarted(node_id: int) -> Restart:
    return Restart(node_id, is_clean=True, has_lost_a_directory=False)


def without_its_disk(node_id: int) -> Restart:
    return Restart(node_id, is_clean=False, has_lost_a_directory=True)


def test_while_enough_are_in_sync_nobody_else_is_eligible() -> None:
    assert state(after_node_left(partition(1, [1, 2, 3]), 3, terms(1, 2))) == (1, [1, 2], [], [])


def test_who_leaves_when_too_few_remain_is_eligible() -> None:
    assert state(after_node_left(partition(1, [1, 2]), 2, terms(1))) == (1, [1], [2], [])


def moving(
    leader: int, isr: Sequence[int], *, adding: Sequence[int], removing: Sequence[int]
) -> PartitionRecord:
    record = partition(leader, isr, replicas=(1, 2, 3))
    record.adding_replicas[:], record.removing_replicas[:] = adding, removing
    return record


def test_replicas_that_are_being_added_need_not_be_in_sync() -> None:
    # The leader committed alone before the reassignment and goes on so: who leaves may lack what follows.
    growing = moving(1, [1, 2], adding=[2, 3], removing=[])
    assert state(after_node_left(growing, 2, terms(1, 3))) == (1, [1], [], [])
    one_more = moving(1, [1, 2], adding=[3], removing=[])
    assert state(after_node_left(one_more, 2, terms(1, 3))) == (1, [1], [2], [])


@pytest.mark.parametrize(
    ("adding", "removing", "replicas", "isr"),
    [([2, 3], [], [1, 2, 3], [1, 2, 3]), ([3], [1, 2], [3], [3]), ([2, 3], [1], [2, 3], [2, 3])],
)
def test_once_a_reassignment_ends_all_its_replicas_count_and_enough_are_in_sync(
    adding: list[int], removing: list[int], replicas: list[int], isr: list[int]
) -> None:
    change = PartitionChange(moving(1, [1], adding=adding, removing=removing), terms(1, 2, 3))
    change.isr = [1, 2, 3]
    after = change.build()
    assert after is not None
    assert (after.replicas[:], after.adding_replicas[:], after.isr[:]) == (replicas, [], isr)
    assert not after.eligible_leader_replicas
    assert len(isr) >= min(2, len(replicas))


def test_the_eligible_are_forgotten_once_enough_are_in_sync_again() -> None:
    change = PartitionChange(partition(1, [1], [2, 3]), terms(1, 2, 3))
    change.isr = [1, 2]
    assert state(change.build()) == (1, [1, 2], [], [])


def test_the_last_in_sync_replica_is_succeeded_by_an_eligible_one() -> None:
    after = after_node_left(partition(1, [1], [2]), 1, terms(2, 3))
    assert state(after) == (2, [2], [1], [])
    assert after is not None
    assert (after.leader_epoch, after.partition_epoch) == (6, 8)


def test_where_one_is_enough_to_commit_nobody_stays_eligible_beside_it() -> None:
    assert state(after_node_came(partition(NOBODY, [], [1, 2], [1]), terms(2, needed=1))) == (2, [2], [], [])


def test_the_leader_that_was_lost_is_known_and_who_is_lost_after_it_is_not() -> None:
    lost = after_node_left(partition(1, [1], replicas=(1, 2)), 1, terms(2))
    assert state(lost) == (NOBODY, [], [1], [1])
    assert lost is not None
    again = after_node_restarted(lost, crashed(2), terms(2))
    assert again is None, "it has nothing to say"


@pytest.mark.parametrize(("restart", "eligible"), [(restarted(2), [2]), (crashed(2), [])])
def test_an_eligible_replica_that_crashed_is_none_any_more(restart: Restart, eligible: list[int]) -> None:
    before = partition(1, [1], [2])
    after = after_node_restarted(before, restart, terms(1, 2)) or before
    assert state(after) == (1, [1], eligible, [])


def test_a_member_that_restarted_is_eligible_only_if_it_was_stopped_properly() -> None:
    before = partition(1, [1, 2])
    assert state(after_node_restarted(before, restarted(2), terms(1, 2))) == (1, [1], [2], [])
    assert state(after_node_restarted(before, crashed(2), terms(1, 2))) == (1, [1], [], [])


def test_the_only_leader_leads_on_after_a_crash_as_the_last_known_one() -> None:
    after = after_node_restarted(partition(1, [1], replicas=(1, 2)), crashed(1), terms(1, 2))
    assert state(after) == (1, [1], [], [])
    assert after is not None
    assert (after.leader_epoch, after.partition_epoch) == (6, 8), "another process leads, in one change"


def test_the_last_known_leader_comes_back_to_a_partition_that_nobody_leads() -> None:
    before = partition(NOBODY, [], [1], [1])
    assert state(after_node_restarted(before, crashed(1), terms(1, 2))) == (1, [1], [], [])


def test_an_eligible_replica_goes_before_a_leader_that_crashed() -> None:
    assert state(after_node_restarted(partition(1, [1], [3]), crashed(1), terms(1, 2, 3))) == (3, [3], [], [])


def test_who_lost_a_directory_is_elected_only_when_asked_for() -> None:
    after = after_node_restarted(partition(1, [1]), without_its_disk(1), terms(1, 2))
    assert state(after) == (NOBODY, [], [], [])
    assert after is not None
    assert after_node_came(after, terms(1, 2)) is None
    assert state(after_node_came(after, terms(1, 2, unclean=True))) == (1, [1], [], [])
    known = partition(NOBODY, [], [1], [1])
    assert state(after_node_restarted(known, without_its_disk(1), terms(1, 2))) == (NOBODY, [], [], [])


@pytest.mark.parametrize("restart", [restarted(1), crashed(1), without_its_disk(1)])
def test_an_only_replica_goes_on_whatever_happened_to_it(restart: Restart) -> None:
    for before in (
        partition(1, [1], replicas=[1]),
        partition(NOBODY, [], [1], [1], replicas=[1]),
        partition(NOBODY, [1], replicas=[1]),
    ):
        after = after_node_restarted(before, restart, terms(1))
        assert state(after) == (1, [1], [], [])
        assert after is not None
        assert after.leader_epoch == 6


def test_what_an_earlier_release_left_in_the_isr_is_the_last_known_leader() -> None:
    before = partition(NOBODY, [2])
    assert state(after_node_came(before, terms(1, 3))) == (NOBODY, [2], [], [2])
    assert state(after_node_restarted(before, crashed(2), terms(1, 2, 3))) == (2, [2], [], [])


def test_an_unclean_election_forgets_who_was_eligible() -> None:
    assert state(after_node_left(partition(1, [1], [2]), 1, terms(3, unclean=True))) == (3, [3], [], [])


@pytest.mark.parametrize(("prefers", "leader"), [(False, 2), (True, 1)])
def test_the_preferred_leader_goes_first_where_it_is_preferred(prefers: bool, leader: int) -> None:
    change = PartitionChange(partition(2, [1, 2]), terms(1, 2))
    change.prefers_first = prefers
    after = change.build()
    assert (2 if after is None else after.leader) == leader


def test_a_preferred_leader_may_be_an_eligible_one_only_where_nobody_is_in_sync() -> None:
    change = PartitionChange(partition(2, [2], [1]), terms(1, 2))
    change.prefers_first = True
    assert change.build() is None


@pytest.mark.parametrize(
    ("isr", "present", "expected"),
    [
        ([1, 2], (2, 3), (2, [2], [1], [])),
        ([1], (2,), None),
        ([2, 1], (3,), None),
        ([1, 2, 3], (3,), (3, [2, 3], [], [])),
    ],
)
def test_who_hands_over_leads_on_where_nobody_else_can(
    isr: list[int], present: Collection[int], expected: State | None
) -> None:
    after = after_hand_over(partition(1, isr), 1, terms(*present))
    assert (None if after is None else state(after)) == expected


def test_a_silent_leader_stays_when_a_follower_hands_over() -> None:
    assert state(after_hand_over(partition(1, [1, 2, 3]), 2, terms(3))) == (1, [1, 3], [], [])


def test_who_is_taken_away_by_a_reassignment_is_not_eligible() -> None:
    change = PartitionChange(partition(1, [1, 2, 3]), terms(1, 2, 3, needed=3))
    change.replicas, change.removing = [2, 3, 1], [1]
    after = change.build()
    assert state(after) == (2, [2, 3], [], [])
    assert after is not None
    assert after.replicas[:] == [2, 3]
