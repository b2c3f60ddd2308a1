"""A client's transactional records where the coordinator of the transaction is in the leader's own process."""

from __future__ import annotations

from typing import Any

import pytest
from fake_coordinators import ADDS, VERIFIES, FakeCoordinators, Producer, code, until_waiting

from barnabas.kernel.clock import machine_seconds
from barnabas.kernel.errors import ErrorCode
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages.storage_pb2 import AppendTransaction


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
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of a slow disk may write the marker in between."""
    opened = producer.node.replica(producer.topic).log
    assert opened is not None

    def verify_and_end(_: TransactionQuestion) -> bool:
        opened.guards.on_marker(7, 0)
        return True

    monkeypatch.setattr(producer.node.verification.questions, "verify_nowait", verify_and_end)
    assert code(await producer.send(0)) is ErrorCode.invalid_txn_state
    assert opened.log_end_offset == 0


# -- answered when the call returns ----------------------------------------------------------------------------------


def at_once(producer: Producer, sequence: int, transaction: AppendTransaction = VERIFIES) -> int | None:
    """The first offset; None where it has to go another way."""
    replica = producer.node.replica(producer.topic)
    assert replica.lane is not None
    now = machine_seconds()
    replica.lane.on_append(now, now)  # the disk is known to be fast
    records = memoryview(producer.batch(sequence))
    info = producer.node.verification.append_at_once(replica, records, -1, transaction)
    return None if info is None else info.base_offset


async def test_what_need_not_be_asked_about_is_answered_at_once(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    assert at_once(producer, 0) is None, "it has to be asked about"
    opened = producer.node.replica(producer.topic).log
    assert opened is not None
    assert len(opened.guards) == 0
    coordinators.parts = {events()}
    assert [at_once(producer, number) for number in range(2)] == [0, 1]
    coordinators.parts.clear()
    assert [at_once(producer, 2), at_once(producer, 3, ADDS)] == [2, 3], "it is open in the log"
    assert await producer.end() is ErrorCode.none
    assert at_once(producer, 4) is None
    assert coordinators.asked == [], "which is left to the general way"


async def test_nothing_overtakes_what_waits(producer: Producer, coordinators: FakeCoordinators) -> None:
    coordinators.is_held = True
    first = producer.send(0)
    await coordinators.until_asked(1)
    coordinators.parts = {events()}
    assert at_once(producer, 1) is None
    await coordinators.release()
    assert (await first).base_offset == 0
    assert at_once(producer, 1) == 1


async def test_what_cannot_be_answered_at_once_leaves_no_guard(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.parts = {events()}
    replica = producer.node.replica(producer.topic)
    assert replica.log is not None
    queue: Any = replica.appending._queue
    queue.items["something"] = None
    assert at_once(producer, 0) is None
    assert len(replica.log.guards) == 0
    queue.items.clear()
    assert at_once(producer, 0) == 0
    assert await producer.end() is ErrorCode.none
    damaged = memoryview(producer.batch(1)[:-1] + b"?")
    assert producer.node.verification.append_at_once(replica, damaged, -1, VERIFIES) is None
    producer.epoch = -1
    assert at_once(producer, 1) is None, "an epoch of before"
    assert len(replica.log.guards) == 0
    replica.appending.refuses_clients = True
    producer.epoch = 0
    assert at_once(producer, 1) is None
    assert len(replica.log.guards) == 0


async def test_a_batch_that_is_in_the_log_already_leaves_no_guard(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    """It was sent again after its transaction's end, which its client has not heard of."""
    coordinators.parts = {events()}
    assert at_once(producer, 0) == 0
    assert await producer.end() is ErrorCode.none
    assert at_once(producer, 0) == 0
    replica = producer.node.replica(producer.topic)
    assert replica.log is not None
    assert len(replica.log.guards) == 0


async def test_a_batch_that_is_wrong_leaves_no_guard(
    producer: Producer, coordinators: FakeCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinators.parts = {events(), events(-1)}
    replica = producer.node.replica(producer.topic)
    assert replica.log is not None
    damaged = producer.batch(0)[:-1] + b"?"
    with monkeypatch.context() as damaging:
        damaging.setattr(producer, "batch", lambda *_: damaged)
        assert code(await producer.send(0)) is ErrorCode.corrupt_message
        assert at_once(producer, 0) is None
    assert len(replica.log.guards) == 0
    assert code(await producer.send(0)) is ErrorCode.none
    assert await producer.end() is ErrorCode.none
    producer.epoch = -1
    assert code(await producer.send(1)) is ErrorCode.invalid_producer_epoch
    assert len(replica.log.guards) == 0
