"""For how long a leader counts on what a follower said: for one leader epoch, and not for what it takes back itself."""

from __future__ import annotations

from leader_states import EPOCHS, fetch, leading, record

from barnabas.storage.replica.leader_state import UNKNOWN_OFFSET, Proposal


def test_what_a_follower_had_under_another_leader_epoch_is_not_counted() -> None:
    """Metadata come without what was in between: another one may have led, and had it take back what it had."""
    leader = leading((1, 2, 3), end=5)
    fetch(leader, 2, 9, end=9)
    fetch(leader, 3, 5, end=9)
    leader.begin_epoch(record((1, 2, 3), 2, 2), log_end_offset=9, now_ms=2.0)
    fetch(leader, 3, 9, end=9)
    assert leader.replicated(9) == UNKNOWN_OFFSET


def test_of_what_the_leader_takes_back_nobody_has_anything_and_all_that_is_before_it() -> None:
    leader = leading((1, 2, 3), end=9)
    fetch(leader, 2, 9, end=9)
    fetch(leader, 3, 5, end=9)
    leader.on_taken_back(5)
    assert leader.replicated(5) == 5, "who has all before it says nothing anew"
    fetch(leader, 3, 8, end=8)
    assert leader.replicated(8) == 5, "the other one had something else there"


def test_nor_does_it_come_to_be_in_sync_by_that() -> None:
    """It may have left meanwhile, with its log, and come again."""
    leader = leading((1, 2), end=5)
    fetch(leader, 3, 5, end=5)
    leader.begin_epoch(record((1, 2), 2, 1), log_end_offset=5, now_ms=2.0)
    assert not leader.waits_for(3)
    assert leader.expand_by_any(5, EPOCHS) is None
    fetch(leader, 3, 5, end=5, now_ms=3.0)
    assert leader.expand_by_any(5, EPOCHS) == Proposal(1, 2, ((1, 10), (2, -1), (3, 30)))
