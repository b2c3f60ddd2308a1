"""What was refused has to come first: the lowest sequence of each producer, for a while, of so many."""

from __future__ import annotations

import pytest

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.producers.refused_sequences import RefusedSequences
from barnabas.records.batch import parse_header
from barnabas.records.control import encode_marker
from barnabas.records.record import encode_batch


def made(sequence: int, *, epoch: int = 0, producer_id: int = 1) -> bytes:
    return encode_batch(
        [(0, None, b"v", ())], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def may_begin_with(refused: RefusedSequences, sequence: int, *, epoch: int = 0, producer_id: int = 1) -> bool:
    header = parse_header(made(sequence, epoch=epoch, producer_id=producer_id))
    try:
        refused.check(header)
    except KafkaError as error:
        return error.code is not ErrorCode.out_of_order_sequence_number
    return True


def test_nothing_later_than_the_lowest_refused_may_be_the_first() -> None:
    refused = RefusedSequences(ManualClock().monotonic)
    for sequence in (4, 3, 5):
        refused.add(made(sequence))
    assert [may_begin_with(refused, sequence) for sequence in (2, 3, 4, 9)] == [True, True, False, False]
    assert may_begin_with(refused, 9, producer_id=2)


def test_another_epoch_begins_anew() -> None:
    refused = RefusedSequences(ManualClock().monotonic)
    refused.add(made(4))
    assert may_begin_with(refused, 9, epoch=1)
    refused.add(made(6, epoch=1))
    refused.add(made(0, epoch=0))  # late, and of no account
    assert not may_begin_with(refused, 9, epoch=1)
    assert may_begin_with(refused, 6, epoch=1)


def test_a_producer_that_the_log_knows_is_left_to_the_log() -> None:
    refused = RefusedSequences(ManualClock().monotonic)
    refused.add(made(4))
    refused.on_written(2)
    assert not may_begin_with(refused, 5)
    refused.on_written(1)
    assert may_begin_with(refused, 5)


@pytest.mark.parametrize(
    "records",
    [
        b"",
        b"short",
        encode_batch([(0, None, b"v", ())]),
        encode_marker(committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0),
    ],
    ids=["nothing", "cut", "not idempotent", "marker"],
)
def test_what_has_no_sequence_leaves_nothing(records: bytes) -> None:
    refused = RefusedSequences(ManualClock().monotonic)
    refused.add(records)
    assert len(refused) == 0


def test_only_so_many_are_remembered_and_only_for_so_long() -> None:
    now = [0.0]
    refused = RefusedSequences(lambda: now[0], producers_max=2)
    for producer_id in (1, 2, 3):
        refused.add(made(4, producer_id=producer_id))
        now[0] += 1
    assert [may_begin_with(refused, 5, producer_id=each) for each in (1, 2, 3)] == [True, False, False]
    refused.expire(2.0)
    assert [may_begin_with(refused, 5, producer_id=each) for each in (2, 3)] == [True, False]
