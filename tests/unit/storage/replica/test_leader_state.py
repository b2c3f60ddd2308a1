"""LeaderState against a controller, followers and a network that do as they like: nothing committed is ever lost.

The model is one leader: followers' logs are prefixes of its own, so lengths stand for them. Messages wait in lists and
arrive in any order, or not for a long time; metadata arrive more than once, or not at all. A seed replays exactly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import pytest
from leader_states import EPOCHS, FOLLOWERS, LEADER, NODES, fetch, leading, record

from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.storage.replica.leader_state import UNKNOWN_OFFSET, LeaderState, Proposal

LAG_MS: Final = 10.0
STEPS: Final = 120

ItemT = TypeVar("ItemT")


class Cluster:
    """One leader, two followers and a controller."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.now_ms = 0.0
        self.epochs = dict(EPOCHS)
        self.alive = set(NODES)
        self.view = dict(EPOCHS)
        """The nodes as the leader knows them."""
        self.isr = {LEADER, *chance.sample(FOLLOWERS, chance.randint(0, 2))}
        self.partition_epoch = self.leader_epoch = 0
        length = chance.randint(0, 3)
        self.logs = {node: length if node in self.isr else 0 for node in NODES}
        self.records = [record(tuple(sorted(self.isr)))]
        self.proposals: list[Proposal] = []
        self.refusals: list[Proposal] = []
        self.fetches: list[tuple[int, int, int, int]] = []
        self.answers: list[tuple[int, int, int, int]] = []
        self.high_watermark = self.known_epoch = 0
        self.leader = LeaderState(
            LEADER,
            self.records[0],
            log_end_offset=length,
            min_insync_replicas=chance.randint(1, 3),
            now_ms=self.now_ms,
        )

    def step(self) -> None:
        """Something happens."""
        often: list[Callable[[], None]] = [
            self.append,
            self.send_fetch,
            self.take_fetch,
            self.take_answer,
            self.decide,
            self.hear_of_the_partition,
        ]
        seldom: list[Callable[[], None]] = [
            self.look_at_the_clock,
            self.take_refusal,
            self.fence,
            self.unfence,
            self.restart_without_its_disk,
            self.leave_and_come_again,
            self.hear_of_the_nodes,
        ]
        self.chance.choice(often if self.chance.random() < 0.85 else seldom)()
        self.check()

    def pick(self, waiting: list[ItemT]) -> ItemT:
        return waiting.pop(self.chance.randrange(len(waiting)))

    def append(self) -> None:
        self.logs[LEADER] += self.chance.randint(1, 3)

    def send_fetch(self, node: int = 0) -> None:
        node = node or self.chance.choice(FOLLOWERS)
        self.fetches.append((node, self.logs[node], self.epochs[node], self.leader_epoch))

    def take_fetch(self) -> None:
        if not self.fetches:
            return
        node, offset, epoch, leader_epoch = self.pick(self.fetches)
        end = self.logs[LEADER]
        if leader_epoch == self.known_epoch and self.leader.on_fetch(
            node,
            offset,
            log_start_offset=0,
            leader_start_offset=0,
            log_end_offset=end,
            broker_epoch=epoch,
            eligible=self.view,
            now_ms=self.now_ms,
        ):
            self.answers.append((node, epoch, offset, end))
            self.advance()
            self.send(self.leader.expand(node, high_watermark=self.high_watermark, eligible=self.view))

    def take_answer(self) -> None:
        if self.answers:
            node, epoch, offset, end = self.pick(self.answers)
            if epoch == self.epochs[node] and offset == self.logs[node]:
                self.logs[node] = end

    def look_at_the_clock(self) -> None:
        self.now_ms += self.chance.choice((1.0, LAG_MS, 2 * LAG_MS))
        if self.leader.note_caught_up(self.logs[LEADER], self.now_ms):
            return
        self.send(
            self.leader.shrink(
                log_end_offset=self.logs[LEADER], lag_ms_max=LAG_MS, eligible=self.view, now_ms=self.now_ms
            )
        )

    def send(self, proposal: Proposal | None) -> None:
        if proposal is not None:
            assert all(proposal.partition_epoch > each.partition_epoch for each in self.proposals)
            self.proposals.append(proposal)

    def decide(self) -> None:
        """The controller's part of AlterPartition."""
        if not self.proposals:
            return
        proposal = self.pick(self.proposals)
        if (proposal.leader_epoch, proposal.partition_epoch) != (self.leader_epoch, self.partition_epoch):
            return  # the leader learns from the metadata
        if all(node in self.alive and epoch == self.epochs[node] for node, epoch in proposal.isr):
            self.change({node for node, _ in proposal.isr})
        else:
            self.refusals.append(proposal)

    def take_refusal(self) -> None:
        if self.refusals:
            proposal = self.refusals.pop()
            if self.chance.random() < 0.3:
                self.proposals.append(proposal)  # the answer was lost: it is sent again
            else:
                self.leader.on_refused(proposal)

    def fence(self) -> None:
        node = self.chance.choice(FOLLOWERS)
        self.alive.discard(node)
        self.change(self.isr - {node})

    def unfence(self) -> None:
        self.alive.add(self.chance.choice(FOLLOWERS))

    def restart_without_its_disk(self) -> None:
        node = self.chance.choice(FOLLOWERS)
        self.logs[node] = 0
        self.epochs[node] += 1
        self.alive.add(node)
        self.change(self.isr - {node})

    def leave_and_come_again(self) -> None:
        """The leader hears of both at once."""
        node = self.chance.choice(FOLLOWERS)
        self.logs[node] = 0
        self.leader_epoch += 1
        self.change(self.isr - {node})

    def change(self, isr: set[int]) -> None:
        if isr != self.isr or self.leader_epoch != self.records[-1].leader_epoch:
            self.isr = isr
            self.partition_epoch += 1
            self.records.append(record(tuple(sorted(isr)), self.partition_epoch, self.leader_epoch))

    def hear_of_the_partition(self, among: int = 3) -> None:
        heard = self.chance.choice(self.records[-among:])
        if heard.leader_epoch > self.known_epoch:
            self.known_epoch = heard.leader_epoch
            self.leader.begin_epoch(heard, log_end_offset=self.logs[LEADER], now_ms=self.now_ms)
        else:
            self.leader.on_record(heard)
        self.send(self.leader.expand_by_any(self.high_watermark, self.view))

    def hear_of_the_nodes(self) -> None:
        self.view = {node: self.epochs[node] for node in self.alive}

    def advance(self) -> None:
        offset = self.leader.replicated(self.logs[LEADER])
        if self.leader.is_alone:
            assert offset == self.logs[LEADER]
        if self.leader.is_short:
            assert offset == UNKNOWN_OFFSET
        self.high_watermark = max(self.high_watermark, offset)

    def check(self) -> None:
        """Whoever may be elected has what is committed."""
        self.advance()
        assert self.high_watermark <= min(self.logs[node] for node in self.isr)

    def heal(self) -> None:
        """The faults stop."""
        self.alive = set(NODES)
        for _ in range(12):
            self.now_ms += 1
            self.hear_of_the_nodes()
            self.hear_of_the_partition(among=1)
            for node in FOLLOWERS:
                self.send_fetch(node)
            for waiting, work in (
                (self.fetches, self.take_fetch),
                (self.answers, self.take_answer),
                (self.proposals, self.decide),
                (self.refusals, self.take_refusal),
            ):
                some: list[Any] = waiting
                while some:
                    work()
            self.check()


@pytest.mark.parametrize("first_seed", range(0, 2_000, 500))
def test_whoever_may_be_elected_has_what_is_committed_whatever_happens(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 500):
        cluster = Cluster(seed)
        try:
            for _ in range(STEPS):
                cluster.step()
            cluster.heal()
            assert cluster.isr == set(NODES)
            assert cluster.high_watermark == cluster.logs[LEADER]
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def lagging(leader: LeaderState, *, end: int, now_ms: float = 2.0) -> Proposal | None:
    """Who lags, by nothing but what followers say of their disks."""
    return leader.shrink(log_end_offset=end, lag_ms_max=math.inf, eligible=EPOCHS, now_ms=now_ms)


def test_a_follower_whose_disk_refuses_is_taken_out_at_once_and_comes_back_with_all() -> None:
    leader = leading((1, 2, 3))
    for node in (2, 3):
        fetch(leader, node, 5, end=5)
    fetch(leader, 2, 9, end=9)
    fetch(leader, 3, 5, end=9, disk_refuses=True)
    proposal = lagging(leader, end=9)
    assert proposal is not None
    assert [node for node, _ in proposal.isr] == [1, 2]
    assert leader.replicated(9) == 5, "it counts until the controller has said so"
    leader.on_record(record((1, 2), partition_epoch=1))
    assert leader.replicated(9) == 9
    assert lagging(leader, end=9) is None
    fetch(leader, 3, 9, end=9)
    back = leader.expand(3, high_watermark=9, eligible=EPOCHS)
    assert back is not None
    assert [node for node, _ in back.isr] == [1, 2, 3]


def test_below_min_isr_who_is_at_the_high_watermark_comes_in_and_leaves_again() -> None:
    """KAFKA-19996, which is open: it lacks only what came since. Nothing is committed without it."""
    leader, high_watermark, end = leading((1,), end=5, needed=2), 5, 9
    for epoch in (1, 3, 5):
        fetch(leader, 2, 5, end=end, now_ms=1_000.0 * epoch)
        wider = leader.expand(2, high_watermark=high_watermark, eligible=EPOCHS)
        assert wider is not None
        assert [node for node, _ in wider.isr] == [1, 2]
        leader.on_record(record((1, 2), partition_epoch=epoch))
        assert not leader.is_short
        assert leader.replicated(end) == high_watermark
        narrower = leader.shrink(
            log_end_offset=end, lag_ms_max=500.0, eligible=EPOCHS, now_ms=1_000.0 * epoch + 900.0
        )
        assert narrower is not None
        assert [node for node, _ in narrower.isr] == [1]
        leader.on_record(record((1,), partition_epoch=epoch + 1))
        assert leader.is_short
        assert leader.replicated(end) == UNKNOWN_OFFSET
    fetch(leader, 2, 9, end=end, now_ms=9_000.0)
    leader.on_record(record((1, 2), partition_epoch=7))
    assert leader.replicated(end) == 9, "it has caught up"


def test_nobody_waits_for_a_refusing_disk_that_was_about_to_come_in() -> None:
    leader = leading((1, 2))
    fetch(leader, 2, 5, end=5)
    fetch(leader, 3, 5, end=5)
    assert leader.waits_for(3)
    fetch(leader, 3, 5, end=9, disk_refuses=True)
    assert not leader.waits_for(3)
    assert leader.expand(3, high_watermark=5, eligible=EPOCHS) is None


def test_what_a_disk_refused_under_another_leader_epoch_says_nothing() -> None:
    leader = leading((1, 2))
    fetch(leader, 2, 5, end=9, disk_refuses=True)
    leader.begin_epoch(record((1, 2), leader_epoch=1, partition_epoch=1), log_end_offset=9, now_ms=2.0)
    assert lagging(leader, end=9) is None


def test_a_leader_alone_in_the_isr_has_what_it_wrote_committed() -> None:
    leader = leading((LEADER,))
    assert (leader.is_alone, leader.is_short, leader.replicated(9)) == (True, False, 9)
    leader.set_min_insync_replicas(2)
    assert (leader.is_alone, leader.is_short, leader.in_sync, leader.needed) == (False, True, 1, 2)
    leader.set_min_insync_replicas(7)
    assert leader.needed == 3  # never more than there are replicas


def test_nothing_is_committed_while_the_record_names_eligible_replicas() -> None:
    # The controller went by min.insync.replicas=2; this node does not know of that yet.
    leader = leading((1,), needed=1)
    shrunk = record((1,), partition_epoch=1)
    shrunk.eligible_leader_replicas.append(2)
    leader.on_record(shrunk)
    assert (leader.is_alone, leader.is_short, leader.replicated(9)) == (False, True, UNKNOWN_OFFSET)
    leader.on_record(record((1,), partition_epoch=2))
    assert (leader.is_alone, leader.is_short, leader.replicated(9)) == (True, False, 9)


def test_a_follower_that_said_nothing_yet_holds_the_high_watermark() -> None:
    leader = leading((1, 2))
    assert leader.replicated(5) == UNKNOWN_OFFSET
    fetch(leader, 2, 3, end=5)
    assert leader.replicated(5) == 3


def test_who_caught_up_is_waited_for_until_it_lags_or_is_fenced() -> None:
    for now_ms, eligible in ((20.0, EPOCHS), (2.0, {LEADER: 10})):
        leader = leading((LEADER,))
        fetch(leader, 2, 5, end=5)
        assert (leader.is_alone, leader.replicated(8)) == (False, 5)
        assert leader.shrink(log_end_offset=8, lag_ms_max=LAG_MS, eligible=eligible, now_ms=now_ms) is None
        assert (leader.is_alone, leader.replicated(8)) == (True, 8)


def test_of_who_is_followed_by_all_nothing_more_is_asked() -> None:
    leader = leading((1, 2))
    for node in (2, 3):
        fetch(leader, node, 5, end=5, start=0 if node == 2 else -1)
    assert leader.note_caught_up(5, now_ms=5_000.0)
    fetch(leader, 3, 5, end=5, now_ms=5_000.0)
    assert not leader.note_caught_up(5, now_ms=5_000.0), "it is waited for, out of sync"
    leader.on_record(record((1, 2, 3), partition_epoch=1))
    assert leader.note_caught_up(5, now_ms=6_000.0)
    assert not leader.note_caught_up(6, now_ms=6_500.0)
    fetch(leader, 2, 6, end=6, now_ms=6_500.0)
    assert not leader.note_caught_up(6, now_ms=6_500.0)
    shrink = partial(leader.shrink, log_end_offset=6, lag_ms_max=1_000.0, eligible=EPOCHS)
    assert shrink(now_ms=7_000.0) is None, "it had everything a second ago, though it fetched long before"
    assert shrink(now_ms=7_001.0) == Proposal(0, 1, ((1, 10), (2, 20)))


def test_who_lacks_what_former_leaders_may_have_committed_does_not_join() -> None:
    leader = leading((LEADER,), end=5)
    fetch(leader, 2, 4, end=5)
    assert leader.expand(2, high_watermark=2, eligible=EPOCHS) is None
    fetch(leader, 2, 5, end=7)
    assert leader.expand(2, high_watermark=7, eligible=EPOCHS) is None
    proposal = leader.expand(2, high_watermark=5, eligible=EPOCHS)
    assert proposal == Proposal(0, 0, ((1, 10), (2, 20)))
    assert leader.replicated(7) == 5  # the controller may have accepted it
    assert leader.expand(3, high_watermark=0, eligible=EPOCHS) is None
    leader.on_refused(proposal)
    assert leader.replicated(7) == 7


def test_one_that_cannot_use_its_log_is_not_waited_for_nor_proposed() -> None:
    leader = leading((LEADER,))
    fetch(leader, 2, 5, end=5)
    assert leader.replicated(8) == 5, "it caught up, and may join"
    leader.on_record(record((LEADER,), partition_epoch=1, offline=(2,)))
    assert leader.replicated(8) == 8
    fetch(leader, 2, 8, end=8)
    assert leader.expand(2, high_watermark=5, eligible=EPOCHS) is None
    assert (leader.is_alone, leader.replicated(9)) == (True, 9)
    leader.on_record(record((LEADER,), partition_epoch=2))
    assert leader.expand(2, high_watermark=8, eligible=EPOCHS) == Proposal(0, 2, ((1, 10), (2, 20)))


def test_one_that_could_not_use_its_log_is_proposed_by_what_it_had_as_soon_as_it_can() -> None:
    """It may have everything, and nothing to fetch: below min.insync.replicas nobody writes before it is in."""
    leader = leading((LEADER, 2))
    fetch(leader, 2, 5, end=5)
    leader.on_record(record((LEADER,), partition_epoch=1, offline=(2,)))
    leader.on_record(record((LEADER,), partition_epoch=2))
    assert leader.expand(2, high_watermark=5, eligible=EPOCHS) == Proposal(0, 2, ((1, 10), (2, 20)))


def test_replicas_that_are_being_added_need_not_be_in_sync() -> None:
    alone = PartitionRecord(leader=LEADER, replicas=[LEADER], isr=[LEADER])
    leader = LeaderState(LEADER, alone, log_end_offset=5, min_insync_replicas=2, now_ms=0.0)
    assert (leader.is_short, leader.needed) == (False, 1)
    growing = record((LEADER,), partition_epoch=1)
    growing.adding_replicas[:] = FOLLOWERS
    leader.on_record(growing)
    assert (leader.is_short, leader.needed, leader.replicated(8)) == (False, 1, 8)
    leader.on_record(record(NODES, partition_epoch=2))
    assert (leader.is_short, leader.needed) == (False, 2)
    leader.on_record(record((LEADER,), partition_epoch=3))
    assert leader.is_short


def test_the_low_watermark_waits_for_all_that_may_come_to_lead() -> None:
    leader = leading((1, 2))
    assert leader.low_watermark(4, EPOCHS) == UNKNOWN_OFFSET
    fetch(leader, 2, 5, end=5, start=2)
    fetch(leader, 3, 5, end=5, start=6)
    assert leader.low_watermark(4, EPOCHS) == 2
    assert leader.low_watermark(4, {1: 10, 3: 30}) == 4
    assert leader.low_watermark(4, {}) == 4
    leader.on_record(record((1,), partition_epoch=1, offline=(2,)))
    assert leader.low_watermark(4, EPOCHS) == 4


def test_the_low_watermark_waits_for_who_is_eligible_even_while_it_is_away() -> None:
    leader = leading((1, 2), needed=2)
    fetch(leader, 2, 5, end=5, start=2)
    fetch(leader, 3, 5, end=5, start=6)
    away = record((1,), partition_epoch=1)
    away.eligible_leader_replicas.append(2)
    leader.on_record(away)
    assert leader.low_watermark(4, {1: 10, 3: 30}) == 2
    broken = record((1,), partition_epoch=2, offline=(2,))
    broken.eligible_leader_replicas.append(2)
    leader.on_record(broken)  # its next process may find its disk mended
    assert leader.low_watermark(4, {1: 10, 3: 30}) == 2
    leader.on_record(record((1, 3), partition_epoch=3))
    assert leader.low_watermark(4, {1: 10, 3: 30}) == 4


def test_who_has_records_that_are_deleted_does_not_join_before_it_has_heard_of_it() -> None:
    """Elected in the next moment it would show them again, though their deletion was acknowledged."""
    leader = leading((LEADER,))
    assert fetch(leader, 2, 5, end=5, start=0, leader_start=3)
    assert leader.expand(2, high_watermark=5, eligible=EPOCHS) is None
    assert leader.replicated(5) == 5, "nobody waits for it"
    assert fetch(leader, 2, 5, end=5, start=3, leader_start=3)
    assert leader.expand(2, high_watermark=5, eligible=EPOCHS) is not None


def test_one_that_was_replaced_is_refused_and_not_proposed() -> None:
    leader = leading((LEADER,))
    assert fetch(leader, 2, 5, end=5)
    restarted = {**EPOCHS, 2: 21}
    assert not leader.on_fetch(
        2,
        5,
        log_start_offset=0,
        leader_start_offset=0,
        log_end_offset=5,
        broker_epoch=20,
        eligible=restarted,
        now_ms=2.0,
    )
    assert leader.expand(2, high_watermark=0, eligible=restarted) is None
    assert not leader.on_fetch(
        9,
        5,
        log_start_offset=0,
        leader_start_offset=0,
        log_end_offset=5,
        broker_epoch=1,
        eligible={9: 1},
        now_ms=2.0,
    )


def test_who_lags_is_proposed_to_leave_and_counts_until_the_controller_agrees() -> None:
    leader = leading((1, 2, 3))
    fetch(leader, 2, 5, end=5, now_ms=1.0)
    fetch(leader, 3, 5, end=5, now_ms=1.0)
    fetch(leader, 2, 5, end=8, now_ms=9.0)  # has all that there was when it fetched before
    proposal = leader.shrink(log_end_offset=8, lag_ms_max=LAG_MS, eligible=EPOCHS, now_ms=10.9)
    assert proposal is None
    fetch(leader, 2, 8, end=8, now_ms=10.9)
    proposal = leader.shrink(log_end_offset=8, lag_ms_max=LAG_MS, eligible=EPOCHS, now_ms=12.0)
    assert proposal == Proposal(0, 0, ((1, 10), (2, 20)))
    assert leader.replicated(8) == 5
    leader.on_record(record((1, 2), partition_epoch=1))
    assert leader.replicated(8) == 8
    leader.on_record(record((1, 2, 3), partition_epoch=0))  # old news
    assert leader.in_sync == 2


def test_a_new_leader_epoch_gives_followers_their_time_again_and_forgets_what_was_proposed() -> None:
    leader = leading((1, 2))
    fetch(leader, 2, 5, end=5, now_ms=1.0)
    leader.begin_epoch(record((1, 2), 1, 1), log_end_offset=6, now_ms=50.0)
    assert leader.shrink(log_end_offset=6, lag_ms_max=LAG_MS, eligible=EPOCHS, now_ms=55.0) is None
    fetch(leader, 2, 5, end=6, now_ms=55.0)
    assert leader.replicated(6) == 5
    assert leader.shrink(log_end_offset=6, lag_ms_max=LAG_MS, eligible=EPOCHS, now_ms=61.0) == Proposal(
        1, 1, ((1, 10),)
    )
    leader.begin_epoch(record((1, 2), 2, 2), log_end_offset=6, now_ms=70.0)
    fetch(leader, 2, 6, end=6, now_ms=71.0)
    assert leader.replicated(6) == 6
