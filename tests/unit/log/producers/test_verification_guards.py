"""A transaction begins in the log only while its guard is the open one; what a marker says of the version it is for."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin
from barnabas.log.producers.verification_guards import NO_GUARD, UNGUARDED, VerificationGuards
from barnabas.records.control import encode_marker
from barnabas.records.record import encode_batch

P = 7


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> PartitionLog:
    return PartitionLog.open(
        str(tmp_path), "t", 0, uuid.UUID(int=1), LogConfig(), seeded_environment(clock=clock)
    )


def opened(log: PartitionLog, epoch: int = 0, *, new_epoch: bool = False, leader_epoch: int = 0) -> int:
    return log.guards.open(P, epoch, leader_epoch, is_new_epoch=new_epoch)


def write(
    log: PartitionLog,
    guard: int = NO_GUARD,
    *,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = True,
    leader_epoch: int = 0,
) -> int | ErrorCode:
    """The first offset, or why it is refused."""
    batch = encode_batch(
        [(1, None, b"v", ())],
        producer_id=P,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    try:
        return log.append_as_leader(batch, leader_epoch, guard=guard).base_offset
    except KafkaError as refused:
        return refused.code


def end(
    log: PartitionLog, epoch: int = 0, *, version: int = 0, committed: bool = True, coordinator_epoch: int = 1
) -> int | ErrorCode:
    marker = encode_marker(
        committed=committed,
        producer_id=P,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=1,
    )
    try:
        return log.append_as_leader(
            marker, 0, origin=AppendOrigin.MARKER, transaction_version=version
        ).base_offset
    except KafkaError as refused:
        return refused.code


def test_a_transaction_begins_under_its_guard_and_goes_on_without(log: PartitionLog) -> None:
    assert write(log) is ErrorCode.invalid_txn_state
    guard = opened(log)
    assert write(log, guard + 1) is ErrorCode.invalid_txn_state
    assert write(log) is ErrorCode.invalid_txn_state
    assert write(log, guard) == 0
    assert len(log.guards) == 0
    assert log.producer_state.is_open(P, 0)
    assert write(log, sequence=1) == 1
    assert write(log, transactional=False, sequence=2) is ErrorCode.invalid_txn_state


def test_a_repeated_batch_needs_no_guard(log: PartitionLog) -> None:
    assert write(log, opened(log)) == 0
    assert end(log) == 1
    assert write(log) == 0
    assert log.log_end_offset == 2


def test_a_marker_in_between_takes_the_guard_away(log: PartitionLog) -> None:
    """Scenario 30: the abort comes between the coordinator's answer and the append; nothing is left open."""
    guard = opened(log)
    assert end(log, committed=False) == 0
    assert write(log, guard) is ErrorCode.invalid_txn_state
    assert log.last_stable_offset(1) == 1
    assert log.aborted_transactions(0, 1) == []
    assert write(log, opened(log)) == 1, "asked anew it may"


def test_a_guard_is_open_until_something_ends_it(log: PartitionLog) -> None:
    guard = opened(log)
    assert opened(log) == guard
    assert opened(log, leader_epoch=1) != guard
    newer = opened(log, epoch=1)
    newest = opened(log, epoch=1, new_epoch=True)
    assert newer not in (guard, newest)
    log.guards.close(P, newer)
    assert len(log.guards) == 2, "it is another one by now, beside that of the first epoch"
    log.guards.close(P, newest)
    log.guards.close(P, opened(log))
    log.guards.close(P, opened(log, leader_epoch=1))
    assert len(log.guards) == 0


def test_a_guard_is_open_while_one_of_those_who_opened_it_may_append(log: PartitionLog) -> None:
    """What was confirmed is on its way to the disk; what came behind it is refused by the coordinator meanwhile."""
    guard = opened(log)
    assert opened(log) == guard
    log.guards.close(P, guard)
    assert write(log, guard) == 0
    assert end(log) == 1
    guard = opened(log)
    assert opened(log) == guard
    log.guards.close(P, guard)
    log.guards.close(P, guard)
    assert write(log, guard, sequence=1) is ErrorCode.invalid_txn_state


def test_a_guard_is_for_one_epoch_of_the_producer_and_of_the_leader(log: PartitionLog) -> None:
    guard = opened(log, epoch=1)
    assert write(log, guard, epoch=2) is ErrorCode.invalid_txn_state
    assert write(log, guard, epoch=1, leader_epoch=3) is ErrorCode.invalid_txn_state
    assert write(log, guard, epoch=1) == 0


def test_a_stale_epoch_is_told_so_whatever_its_guard(log: PartitionLog) -> None:
    assert write(log, opened(log, epoch=3), epoch=3) == 0
    assert end(log, epoch=4, version=2) == 1
    assert write(log, epoch=3, sequence=1) is ErrorCode.invalid_producer_epoch
    assert write(log, opened(log, epoch=3), epoch=3, sequence=1) is ErrorCode.invalid_producer_epoch


def test_without_verification_none_is_needed(log: PartitionLog) -> None:
    assert write(log, UNGUARDED) == 0
    assert write(log, UNGUARDED, sequence=1) == 1


@pytest.mark.parametrize(
    ("new_epoch", "expected"), [(True, ErrorCode.out_of_order_sequence_number), (False, 0)]
)
def test_a_new_producer_begins_with_sequence_0_where_each_transaction_does(
    log: PartitionLog, new_epoch: bool, expected: object
) -> None:
    """Scenario 34."""
    assert write(log, opened(log, new_epoch=new_epoch), sequence=5) == expected


def test_what_was_refused_while_the_coordinator_was_asked_comes_first(log: PartitionLog) -> None:
    guard = opened(log)
    first = encode_batch(
        [(1, None, b"v", ())], producer_id=P, producer_epoch=0, base_sequence=3, transactional=True
    )
    log.refused.note(ErrorCode.not_enough_replicas, first)
    assert write(log, guard, sequence=4) is ErrorCode.out_of_order_sequence_number
    assert write(log, guard, sequence=3) == 0
    assert write(log, sequence=4) == 1


@pytest.mark.parametrize("code", [ErrorCode.concurrent_transactions, ErrorCode.not_enough_replicas])
def test_what_the_coordinator_puts_off_is_sent_again(log: PartitionLog, code: ErrorCode) -> None:
    log.refused.note(
        code, encode_batch([(1, None, b"v", ())], producer_id=P, producer_epoch=0, base_sequence=0)
    )
    assert len(log.refused) == 1


def test_the_next_transactions_guard_outlives_the_marker_of_the_one_before(log: PartitionLog) -> None:
    """Under version 2 the producer goes on as soon as the end is decided: its next epoch is the marker's."""
    assert write(log, opened(log, new_epoch=True)) == 0
    following = opened(log, epoch=1, new_epoch=True)
    assert end(log, epoch=1, version=2) == 1
    assert write(log, following, epoch=1) == 2
    legacy = log.guards.open(9, 1, 0, is_new_epoch=False)
    log.guards.on_marker(9, 1)
    log.guards.close(9, legacy)
    assert len(log.guards) == 0


def test_a_late_marker_ends_no_later_transaction(log: PartitionLog) -> None:
    """Scenarios 23 and 24: KIP-1228, KAFKA-19999."""
    assert write(log, opened(log, new_epoch=True)) == 0
    assert end(log, epoch=0, version=2) is ErrorCode.invalid_producer_epoch
    assert end(log, epoch=1, version=2) == 1
    assert end(log, epoch=1, version=2) == 2, "sent again, while nothing is open"
    assert write(log, opened(log, epoch=1, new_epoch=True), epoch=1) == 3
    assert end(log, epoch=1, version=2) is ErrorCode.invalid_producer_epoch
    assert log.producer_state.is_open(P, 1)
    assert end(log, epoch=1, version=0) == 4, "an administrator's: what hangs is ended under its own epoch"
    assert end(log, epoch=0, version=0) is ErrorCode.invalid_producer_epoch


def test_the_last_epoch_is_ended_by_a_marker_of_its_own(log: PartitionLog) -> None:
    epoch = 2**15 - 1
    assert write(log, opened(log, epoch=epoch, new_epoch=True), epoch=epoch) == 0
    assert end(log, epoch=epoch, version=2) == 1
    assert not log.producer_state.is_open(P, epoch)


def test_a_zombie_coordinators_marker_is_fenced_and_the_guard_stays(log: PartitionLog) -> None:
    """Scenario 25."""
    assert end(log, coordinator_epoch=5) == 0
    guard = opened(log)
    assert end(log, coordinator_epoch=4) is ErrorCode.transaction_coordinator_fenced
    assert write(log, guard) == 1


def test_to_clients_topics_coordinators_write_markers_and_nothing_else(log: PartitionLog) -> None:
    plain = encode_batch([(1, None, b"v", ())])
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(plain, 0, origin=AppendOrigin.MARKER)
    assert refused.value.code is ErrorCode.invalid_record
    nobody = encode_batch([(1, b"\0\0\0\1", b"\0\0\0\0\0\1", ())], control=True)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(nobody, 0, origin=AppendOrigin.MARKER)
    assert refused.value.code is ErrorCode.invalid_record
    assert log.log_end_offset == 0


def test_a_transaction_ends_in_a_topic_that_takes_no_batch_any_more(log: PartitionLog) -> None:
    """max.message.bytes was lowered while it was open: the marker is larger than that."""
    assert write(log, opened(log)) == 0
    log.update_config(replace(log.config, max_message_bytes=1))
    assert write(log, sequence=1) is ErrorCode.message_too_large
    assert end(log) == 1
    assert log.last_stable_offset(2) == 2


def test_guards_are_forgotten_with_idle_producers_and_not_before(
    log: PartitionLog, clock: ManualClock
) -> None:
    guard = opened(log)
    clock.advance(1_000)
    log.expire_producers(1_001)
    assert opened(log) == guard
    log.expire_producers(1_000)
    assert len(log.guards) == 0
    assert opened(log) != guard, "a number is given once"


def test_they_are_in_no_snapshot(log: PartitionLog, tmp_path: Path) -> None:
    guard = opened(log)
    log.close()
    again = PartitionLog.open(
        str(tmp_path), "t", 0, uuid.UUID(int=1), LogConfig(), seeded_environment(clock=ManualClock())
    )
    assert write(again, guard) is ErrorCode.invalid_txn_state


def test_a_number_is_given_once() -> None:
    guards = VerificationGuards(ManualClock().monotonic)
    number = guards.open(P, 0, 0, is_new_epoch=False)
    guards.on_begun(8, 0)
    guards.on_marker(8, 0)
    assert guards.open(P, 0, 0, is_new_epoch=False) == number
    guards.on_begun(P, 0)
    assert guards.open(P, 0, 0, is_new_epoch=False) > number


def test_a_fenced_producer_takes_no_guard_from_the_one_that_followed_it(log: PartitionLog) -> None:
    """What is verified may be left to a thread; meanwhile somebody asks about a batch of an earlier epoch."""
    guard = opened(log, epoch=2, new_epoch=True)
    earlier = opened(log, epoch=1, new_epoch=True)
    assert earlier != guard
    log.guards.close(P, earlier)
    assert write(log, guard, epoch=2) == 0
    assert len(log.guards) == 0


def test_what_begins_takes_the_guards_of_earlier_epochs_only(log: PartitionLog) -> None:
    earlier, now, later = (opened(log, epoch=epoch) for epoch in (1, 2, 3))
    assert write(log, now, epoch=2) == 0
    assert write(log, earlier, epoch=1) is ErrorCode.invalid_producer_epoch
    assert len(log.guards) == 1
    assert opened(log, epoch=3) == later


def test_a_marker_takes_no_guard_of_a_later_epoch() -> None:
    guards = VerificationGuards(lambda: 0.0)
    later = guards.open(P, 2, 0, is_new_epoch=False)
    guards.open(P, 1, 0, is_new_epoch=False)
    guards.on_marker(P, 1)
    assert len(guards) == 1
    assert guards.open(P, 2, 0, is_new_epoch=False) == later
