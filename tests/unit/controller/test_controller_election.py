"""How an active controller keeps its lease, when it gives up, and what who waits for a lease says of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from barnabas.controller.election import ELECTION_KEY, Election, Leadership, LeadershipLost
from barnabas.controller.store.protocol import (
    Changes,
    Lease,
    LeaseLost,
    Snapshot,
    Store,
    StoredValue,
    StoreError,
)
from barnabas.kernel.clock import ManualClock

LEASE = Lease(lease_id=7, ttl_ms=3000)


class Answers:
    """A store that only prolongs leases: each answer is how long it takes in ms, and what it raises."""

    def __init__(self, clock: ManualClock, answers: list[tuple[int, Exception | None]]) -> None:
        self._clock = clock
        self._answers = iter(answers)

    async def keep_lease_alive(self, lease_id: int) -> None:
        assert lease_id == LEASE.lease_id
        milliseconds, error = next(self._answers)
        self._clock.advance(milliseconds)
        if error is not None:
            raise error


async def keep(
    monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, Exception | None]
) -> tuple[list[float], str]:
    """The pauses between the questions, in seconds, and why leadership was lost in the end."""
    clock, pauses = ManualClock(), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(round(seconds * 1000))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    election = Election(
        cast(Store, Answers(clock, list(answers))), "here", LEASE.ttl_ms, clock.monotonic, "one"
    )
    with pytest.raises(LeadershipLost) as lost:
        await election.keep(Leadership(LEASE, 1))
    return pauses, str(lost.value)


async def test_a_member_that_does_not_answer_costs_no_lease_while_another_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unreachable, gone = StoreError("unreachable"), LeaseLost("lease 7 is gone")
    pauses, reason = await keep(monkeypatch, (0, None), (1000, unreachable), (0, None), (0, gone))
    assert pauses == [1.0, 1.0, 0.25, 1.0]
    assert sum(pauses[1:3]) + 1.0 < LEASE.ttl_ms / 1000
    assert reason == "lease 7 is gone"


async def test_leadership_ends_when_nobody_answered_for_the_time_of_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses, reason = await keep(monkeypatch, *[(1000, StoreError("unreachable"))] * 5)
    assert pauses == [1.0, 0.25]
    assert "for the time of the lease" in reason


class HeldKey:
    """A store whose election key somebody else holds, until `free`."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.is_free = asyncio.Event()
        self.is_broken = asyncio.Event()
        self.watches = 0

    async def snapshot(self, prefix: str) -> Snapshot:
        assert prefix == ELECTION_KEY
        held = {ELECTION_KEY: StoredValue(self.holder.encode(), 5)}
        return Snapshot(9, {} if self.is_free.is_set() else held)

    async def watch(self, _: int, __: str) -> AsyncIterator[Changes]:
        self.watches += 1
        waiting = [asyncio.create_task(each.wait()) for each in (self.is_free, self.is_broken)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self.is_broken.is_set():
                self.is_broken.clear()
                raise StoreError("unreachable")
            yield Changes(10, ())
        finally:
            for each in waiting:
                each.cancel()

    async def grant_lease(self, _: int) -> Lease:
        return LEASE

    async def transact(self, *_: object) -> int:
        return 11


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def candidate(store: HeldKey, lease_ms: int) -> Election:
    return Election(cast(Store, store), "here", lease_ms, asyncio.get_running_loop().time, "new")


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.message.partition(":")[0]) for record in caplog.records]


async def test_a_former_process_of_this_controller_is_no_reason_to_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    store = HeldKey("old@here")
    campaign = asyncio.create_task(candidate(store, 60_000).campaign())
    await until(lambda: store.watches)
    store.is_broken.set()
    await until(lambda: store.watches == 2)
    store.is_free.set()
    await campaign
    waits = (logging.INFO, "waiting for the lease of this controller's former process to end")
    assert said(caplog) == [waits, (logging.WARNING, "the metadata store does not answer")]


async def test_one_that_outlives_its_lease_is_another_controller(caplog: pytest.LogCaptureFixture) -> None:
    store = HeldKey("other@here")
    campaign = asyncio.create_task(candidate(store, 1).campaign())
    twice = (logging.WARNING, "another process is active under the address of this controller")
    await until(lambda: twice in said(caplog))
    for watches in (2, 3):
        store.is_broken.set()
        await until(lambda watches=watches: store.watches == watches)
    assert said(caplog).count(twice) == 1
    store.is_free.set()
    await campaign


async def test_a_former_term_of_the_same_process_is_waited_for_by_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = HeldKey("new@here")
    assert (await candidate(store, 60_000).campaign()).lease == LEASE
    assert not caplog.records
    assert store.watches == 0
