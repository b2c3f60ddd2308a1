"""How an active controller keeps its lease: what is asked when, and when it gives up."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from barnabas.controller.election import Election, Leadership, LeadershipLost
from barnabas.controller.store.protocol import Lease, LeaseLost, Store, StoreError
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
