"""FollowerState: answers one by one, and histories of leaders in which logs part and come together again."""

from __future__ import annotations

import bisect
import random
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.storage_pb2 import EpochEndOffset, ReplicaRecords
from barnabas.records.record import encode_batch
from barnabas.storage.replica.follower_state import (
    Append,
    Fail,
    FollowerState,
    Learn,
    Retry,
    StartAt,
    Step,
    TruncateTo,
    truncation_offset,
)


class ModelLog:
    """A log that holds of each record only the leader epoch that wrote it."""

    def __init__(self, records: Sequence[int] = (), start: int = 0) -> None:
        self.records = list(records)
        """From the log's first offset on."""
        self.log_start_offset = start
        self.epochs: list[tuple[int, int]] = []
        """(epoch, first offset), also of an epoch that has written nothing yet."""
        for offset, epoch in enumerate(self.records, start):
            self.assign(epoch, offset)

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    @property
    def last_epoch(self) -> int:
        return self.records[-1] if self.records else -1

    def assign(self, epoch: int, offset: int) -> None:
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs = [each for each in self.epochs if each[1] < offset]
            self.epochs.append((epoch, offset))

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        if leader_epoch == -1 or not self.epochs or leader_epoch > self.epochs[-1][0]:
            return -1, -1
        if leader_epoch == self.epochs[-1][0]:
            return leader_epoch, self.log_end_offset
        after = bisect.bisect_right(self.epochs, leader_epoch, key=lambda each: each[0])
        return (self.epochs[after - 1][0] if after else leader_epoch), self.epochs[after][1]

    def truncate_to(self, offset: int) -> None:
        if offset < self.log_start_offset:
            self.start_at(offset)
        else:
            del self.records[offset - self.log_start_offset :]
            self.epochs = [each for each in self.epochs if each[1] < offset]

    def start_at(self, offset: int) -> None:
        self.records, self.epochs, self.log_start_offset = [], [], offset

    def append(self, epoch: int, count: int = 1) -> None:
        self.assign(epoch, self.log_end_offset)
        self.records += [epoch] * count

    def drop_unwritten_epochs(self) -> None:
        self.epochs = [each for each in self.epochs if each[1] < self.log_end_offset]

    def trim(self, offset: int) -> None:
        """Records before `offset` are gone."""
        del self.records[: offset - self.log_start_offset]
        self.log_start_offset = offset
        holding = [each for each in self.epochs if each[1] <= offset]
        if holding:
            self.epochs = [(holding[-1][0], offset), *(each for each in self.epochs if each[1] > offset)]

    def at(self, offset: int) -> int | None:
        """The epoch that wrote what stands there."""
        held = self.log_start_offset <= offset < self.log_end_offset
        return self.records[offset - self.log_start_offset] if held else None


def answer(epoch: int, offset: int, **fields: Any) -> ReplicaRecords:
    told = {"high_watermark": 0, "log_start_offset": 0, "log_end_offset": 0} | fields
    return ReplicaRecords(leader_epoch=epoch, fetch_offset=offset, **told)


def following(log: ModelLog, leader_epoch: int = 5) -> FollowerState:
    """A state whose position is in force."""
    state = FollowerState(2, leader_epoch)
    assert state.take_position(log) is not None
    return state


# -- one answer -------------------------------------------------------------------------------------------------


def test_a_position_says_where_the_log_ends() -> None:
    log = ModelLog([1, 1, 3], start=7)
    log.assign(4, 10)  # an epoch that it led itself and wrote nothing in
    assert FollowerState(2, 5).take_position(log) == (5, 10, 3, 7)
    assert FollowerState(2, 5).take_position(ModelLog(start=7)) == (5, 7, -1, 7)


@pytest.mark.parametrize(("epoch", "offset"), [(4, 3), (6, 3), (5, 2), (5, 4)])
def test_an_answer_to_another_position_is_none(epoch: int, offset: int) -> None:
    log = ModelLog([1, 1, 1])
    state = following(log)
    assert state.on_answer(answer(epoch, offset, high_watermark=3), b"", log) is None
    assert (
        state.on_answer(answer(epoch, offset, error_code=int(ErrorCode.fenced_leader_epoch)), b"", log)
        is None
    )
    assert state.in_force is not None
    assert state.high_watermark == -1


def test_news_leave_the_position_in_force() -> None:
    log = ModelLog([1, 1, 1])
    state = following(log)
    for high_watermark in (1, 2):
        step = state.on_answer(answer(5, 3, high_watermark=high_watermark, log_start_offset=1), b"", log)
        assert step == Learn()
        assert (state.high_watermark, state.log_start_offset) == (high_watermark, 1)
    state.forget_position()
    assert state.on_answer(answer(5, 3, high_watermark=3), b"", log) is None


def test_records_are_an_answer_once() -> None:
    log = ModelLog([1, 1, 1])
    state = following(log)
    records = encode_batch([(1, None, b"v", ())], base_offset=3)
    assert state.on_answer(answer(5, 3, high_watermark=2), records, log) == Append()
    assert state.high_watermark == 2
    assert state.on_answer(answer(5, 3, high_watermark=3), records, log) is None


def test_a_log_that_is_empty_takes_the_batch_in_whose_midst_the_leaders_begins() -> None:
    batch = encode_batch([(1, None, b"v", ())] * 10, base_offset=100)
    log = ModelLog(start=105)
    assert following(log).on_answer(answer(5, 105), batch, log) == Append(restart_at=100)
    held = ModelLog([1], start=104)
    assert isinstance(following(held).on_answer(answer(5, 105), batch, held), Fail)
    later = ModelLog(start=110)
    assert isinstance(following(later).on_answer(answer(5, 110), batch, later), Fail)


@pytest.mark.parametrize(("leader_start", "is_deleted"), [(105, True), (106, True), (104, False)])
def test_a_log_all_of_which_the_leader_has_deleted_begins_where_that_one_does(
    leader_start: int, is_deleted: bool
) -> None:
    """The leader's first batch begins before that. Epochs told the two apart from its start on only."""
    batch = encode_batch([(1, None, b"v", ())] * 10, base_offset=100)
    log = ModelLog([1, 1], start=103)
    step = following(log).on_answer(answer(5, 105, log_start_offset=leader_start), batch, log)
    assert step == StartAt(leader_start) if is_deleted else isinstance(step, Fail)


def test_of_a_diverging_answer_nothing_else_counts() -> None:
    """KAFKA-14704: its high watermark may be above what both have."""
    log = ModelLog([1, 1, 3, 3])
    state = following(log)
    parting = EpochEndOffset(leader_epoch=1, end_offset=9)
    records = encode_batch([(1, None, b"v", ())], base_offset=4)
    step = state.on_answer(answer(5, 4, high_watermark=4, diverging=parting), records, log)
    assert step == TruncateTo(2)
    assert state.high_watermark == -1
    assert state.in_force is None


def out_of_range(offset: int, start: int, end: int) -> ReplicaRecords:
    code = int(ErrorCode.offset_out_of_range)
    return answer(5, offset, error_code=code, high_watermark=-1, log_start_offset=start, log_end_offset=end)


def test_out_of_range() -> None:
    log = ModelLog([1, 1, 1], start=10)

    def step(start: int, end: int) -> Step | None:
        return following(log).on_answer(out_of_range(13, start, end), b"", log)

    assert step(0, 11) == TruncateTo(11)  # KAFKA-7414
    assert step(0, 5) == TruncateTo(5)
    assert step(20, 30) == StartAt(20)  # KAFKA-9491
    assert isinstance(step(13, 30), Retry)
    assert isinstance(step(0, 13), Retry)
    assert isinstance(step(-1, -1), Retry)


@pytest.mark.parametrize(
    "code",
    ["unknown_leader_epoch", "not_leader_or_follower", "kafka_storage_error", "unknown_topic_id"],
)
def test_an_error_is_waited_out(code: str) -> None:
    log = ModelLog([1])
    state = following(log)
    step = state.on_answer(answer(5, 1, error_code=int(ErrorCode[code]), high_watermark=-1), b"", log)
    assert isinstance(step, Retry)
    assert code in step.reason
    assert (state.in_force, state.high_watermark) == (None, -1)


def test_a_code_that_nobody_knows_is_waited_out() -> None:
    log = ModelLog([1])
    assert isinstance(following(log).on_answer(answer(5, 1, error_code=31_000), b"", log), Retry)


def test_a_fenced_epoch_is_the_end_until_there_is_another() -> None:
    log = ModelLog([1])
    state = following(log)
    code = int(ErrorCode.fenced_leader_epoch)
    assert isinstance(state.on_answer(answer(5, 1, error_code=code), b"", log), Fail)


def test_a_log_without_epochs_follows_nobody() -> None:
    log = ModelLog([1, 1])
    log.records = [-1, -1]
    state = FollowerState(2, 5)
    assert state.take_position(log) is None
    assert state.failure


# -- the table (KIP-279) ----------------------------------------------------------------------------------------

OWN = ModelLog([2, 2, 4, 4, 6, 6], start=10)


@pytest.mark.parametrize(
    ("epoch", "end", "expected"),
    [
        (4, -1, 16),  # the leader does not say where: what was asked for
        (-1, 12, 12),  # it does not say which
        (-1, 90, 16),
        (6, 90, 16),  # both have it: where the first of them ends
        (6, 15, 15),
        (4, 13, 13),
        (4, 90, 14),
        (1, 5, 5),  # this log has only newer ones
        (1, 90, 10),
        (3, 90, 12),  # this log lacks it: where the newest before it ends
        (5, 12, 14),
        (9, 15, 15),  # this log has only older ones
        (9, 90, 16),
    ],
)
def test_where_logs_part(epoch: int, end: int, expected: int) -> None:
    assert truncation_offset(epoch, end, 16, OWN) == expected


def test_an_answer_that_takes_nothing_back_is_not_followed_at_once() -> None:
    """A leader that said it for ever would be asked for ever."""
    state = following(OWN)
    parting = EpochEndOffset(leader_epoch=6, end_offset=90)
    assert isinstance(state.on_answer(answer(5, 16, diverging=parting), b"", OWN), Retry)


# -- histories --------------------------------------------------------------------------------------------------


def leaders_answer(
    leader: ModelLog, epoch: int, position: tuple[int, int, int, int]
) -> ReplicaRecords | None:
    """As a leader answers (spec: last fetched epoch first, then the range); None when the log goes on from there."""
    _, offset, last_epoch, _ = position
    start, end = leader.log_start_offset, leader.log_end_offset
    if last_epoch != -1:
        found, found_end = leader.end_offset_for_epoch(last_epoch)
        if found == -1:
            return out_of_range_of(epoch, offset, start, end)
        if found < last_epoch or found_end < offset:
            return answer(epoch, offset, diverging=EpochEndOffset(leader_epoch=found, end_offset=found_end))
    if not start <= offset <= end:
        return out_of_range_of(epoch, offset, start, end)
    return None


def out_of_range_of(epoch: int, offset: int, start: int, end: int) -> ReplicaRecords:
    code = int(ErrorCode.offset_out_of_range)
    return answer(epoch, offset, error_code=code, log_start_offset=start, log_end_offset=end)


def come_together(follower: ModelLog, leader: ModelLog, epoch: int) -> int:
    """Have `follower` truncated until `leader` has no objection; returns how often it was asked."""
    state = FollowerState(0, epoch)
    follower.drop_unwritten_epochs()
    for asked in range(100):
        position = state.take_position(follower)
        assert position is not None
        said = leaders_answer(leader, epoch, position)
        if said is None:
            return asked + 1
        step = state.on_answer(said, b"", follower)
        if isinstance(step, TruncateTo):
            follower.truncate_to(step.offset)
        elif isinstance(step, StartAt):
            follower.start_at(step.offset)
        else:
            raise AssertionError(f"{step} of {said}")
    raise AssertionError("no end of it")


def equal_up_to(one: ModelLog, other: ModelLog) -> int:
    """The offset before which both have the same, from where the later of them begins."""
    start = max(one.log_start_offset, other.log_start_offset)
    ends = range(start, min(one.log_end_offset, other.log_end_offset))
    return start + len(list(takewhile(lambda offset: one.at(offset) == other.at(offset), ends)))


def run_history(chance: random.Random, steps: int) -> None:
    """Three logs; whoever leads appends, some of it reaches some of the others, any of them is elected next."""
    logs = [ModelLog() for _ in range(3)]
    for epoch in range(1, steps):
        leader = chance.choice(logs)
        leader.assign(epoch, leader.log_end_offset)
        leader.append(epoch, chance.choice((0, 0, 1, 1, 2, 5)))
        for log in logs:
            if log is leader or chance.random() < 0.4:
                continue
            shared, had = equal_up_to(log, leader), log.log_end_offset
            come_together(log, leader, epoch)
            assert log.log_end_offset >= min(shared, had), "what both have is cut"
            assert equal_up_to(log, leader) == log.log_end_offset, "what stays is not the leader's"
            for offset in range(log.log_end_offset, leader.log_end_offset - chance.choice((0, 0, 1, 3))):
                log.append(leader.records[offset - leader.log_start_offset])
            assert equal_up_to(log, leader) == log.log_end_offset


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 25))
def test_logs_come_together_and_lose_nothing_that_both_have(chance: random.Random, steps: int) -> None:
    run_history(chance, steps)


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 15))
def test_they_do_so_where_retention_has_taken_their_beginnings(chance: random.Random, steps: int) -> None:
    logs = [ModelLog() for _ in range(2)]
    for epoch in range(1, steps):
        leader, log = chance.sample(logs, 2)
        leader.assign(epoch, leader.log_end_offset)
        leader.append(epoch, chance.choice((0, 1, 2, 5)))
        for each in logs:
            each.trim(chance.randint(each.log_start_offset, each.log_end_offset))
        come_together(log, leader, epoch)
        assert leader.log_start_offset <= log.log_end_offset <= leader.log_end_offset
        for offset in range(max(log.log_start_offset, leader.log_start_offset), log.log_end_offset):
            assert log.at(offset) == leader.at(offset)
        while log.log_end_offset < leader.log_end_offset:
            log.append(leader.records[log.log_end_offset - leader.log_start_offset])


def test_three_fast_leader_changes_take_two_steps() -> None:
    """KIP-279: the follower has an epoch that the leader lacks, and the leader one that the follower lacks."""
    leader, follower = ModelLog([1, 1, 3, 3, 3]), ModelLog([1, 1, 2, 2, 4])
    leader.assign(5, 5)
    assert come_together(follower, leader, 5) == 3
    assert follower.records == [1, 1]


def test_a_leader_that_wrote_nothing_answers_for_its_forerunner() -> None:
    """KAFKA-7415: two elections without appends in between."""
    leader, follower = ModelLog([1, 1]), ModelLog([1, 1, 1])
    leader.assign(2, 2)
    leader.assign(3, 2)
    come_together(follower, leader, 3)
    assert follower.records == [1, 1]
