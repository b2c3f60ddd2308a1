"""A client's transactional records where the coordinator of the transaction is in the leader's own process."""

from __future__ import annotations

from typing import Any

import pytest
from fake_coordinators import ADDS, FakeCoordinators, Producer, code, until_waiting

from barnabas.kernel.errors import ErrorCode
from barnabas.links.transactions_link import TransactionQuestion


def events(epoch: int = 0, *, adds: bool = False) -> TransactionQuestion:
    return TransactionQuestion("t", 7, epoch, adds, "events", 0)


async def test_a_coordinator_in_the_process_is_not_asked_where_it_knows(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.parts = {events(), events(adds=True)}
    assert [code(await producer.send(number)) for number in range(3)] == [ErrorCode.none] * 3
    assert coordinators.asked == []
    assert await producer.end() is ErrorCode.none
    opened = producer.node.replica(producer.topic).log
    assert opened is not None
    assert len(opened.guards) == 0, "its guard is used like any other"
    coordinators.parts = {events(adds=True)}
    coordinators.codes[0] = [ErrorCode.transaction_abortable]
    assert code(await producer.send(3)) is ErrorCode.transaction_abortable
    assert len(coordinators.asked) == 1
    assert code(await producer.send(4, ADDS)) is ErrorCode.transaction_abortable
    assert len(coordinators.asked) == 2, "what adds a partition waits for the log"


async def test_what_is_known_at_once_comes_behind_what_waits(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.is_held = True
    first = producer.send(0)
    await coordinators.until_asked(1)
    coordinators.parts = {events()}
    second = producer.send(1)
    await until_waiting(producer, 2)
    await coordinators.release()
    assert [(await each).base_offset for each in (first, second)] == [0, 1]


async def test_under_a_guard_that_a_marker_took_away_nothing_is_appended(
    producer: Producer, coordinators: FakeCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane of a slow disk may have the marker come first."""
    coordinators.parts = {events()}
    opened = producer.node.replica(producer.topic).log
    assert opened is not None
    begin = producer.node.verification.begin

    def begin_and_end(*args: Any) -> Any:
        guard = begin(*args)
        opened.guards.on_marker(7, 0)
        return guard

    monkeypatch.setattr(producer.node.verification, "begin", begin_and_end)
    assert code(await producer.send(0)) is ErrorCode.invalid_txn_state
    assert opened.log_end_offset == 0
