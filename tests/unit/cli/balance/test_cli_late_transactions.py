"""Which open transactions are late, and which of them nobody will end."""

from __future__ import annotations

from dataclasses import replace

from barnabas.cli.balance.late_transactions import (
    LateTransaction,
    Producer,
    Transaction,
    judged,
    late,
    overdue,
    still_open,
)

OPEN = Producer(("t", 0), 7, 3, 1, 5, 1_000, 40)
AWAITED = Transaction("id", 1, 7, 3, "Ongoing", 60_000, 900, [("t", 0)])


def test_late_is_what_is_open_and_was_last_written_before() -> None:
    closed = replace(OPEN, start_offset=None)
    assert list(late([OPEN, closed], 1_001)) == [OPEN]
    assert list(late([OPEN], 1_000)) == []


def test_a_partition_that_its_coordinator_will_tell_waits_for_it() -> None:
    assert judged([OPEN], {7: AWAITED}) == [LateTransaction(OPEN, AWAITED)]


def test_what_no_coordinator_has_hangs() -> None:
    elsewhere = replace(AWAITED, places=[("t", 1), ("u", 0)])
    for known in ({}, {8: AWAITED}, {7: elsewhere}):
        (found,) = judged([OPEN], known)
        assert found.is_hanging


def test_they_are_in_the_order_of_their_partitions() -> None:
    producers = [replace(OPEN, place=("t", 1)), replace(OPEN, start_offset=90), OPEN]
    assert [(each.producer.place[1], each.producer.start_offset) for each in judged(producers, {})] == [
        (0, 40),
        (0, 90),
        (1, 40),
    ]


def test_what_has_just_begun_is_not_late_though_its_records_are_old() -> None:
    hanging, young = LateTransaction(OPEN), LateTransaction(OPEN, AWAITED)
    assert overdue([hanging, young], 900) == [hanging]
    assert overdue([hanging, young], 901) == [hanging, young]
    never = LateTransaction(OPEN, replace(AWAITED, start_ms=None))
    assert overdue([never], 0) == [never]


def test_what_ended_meanwhile_is_not_found() -> None:
    found = [LateTransaction(OPEN)]
    newer = replace(OPEN, last_sequence=6, last_timestamp_ms=1_100)
    assert still_open(found, [newer]) == [LateTransaction(newer)]
    for other in (
        replace(OPEN, start_offset=None),
        replace(OPEN, start_offset=60),
        replace(OPEN, place=("t", 1)),
        replace(OPEN, producer_id=8),
    ):
        assert still_open(found, [other]) == []
