"""Fetches that wait without a task: the very answers of the general way, and an end of each wait, whatever happens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from storage_harness import batch, hand_nothing_over, make_servicer, topic_records
from test_host_plain_fetch import (
    BILLS,
    ORDERS,
    Broker,
    broker,
    fetch_frame,
    joined,
    sessions_of,
    want,
)

from barnabas.gateway.plain_fetch import LaterFetch
from barnabas.gateway.request_times import RequestTimes

__all__ = ["broker"]

LONG_MS = 60_000


class Waiting:
    """A fetch that waits the short way, and what becomes of it."""

    def __init__(self, broker: Broker, frame: bytes) -> None:
        later = broker.fetches.answer(frame, 0.0)
        assert isinstance(later, LaterFetch)
        self.later = later
        self.times = RequestTimes(asyncio.get_running_loop().time(), len(frame))
        self.answers: list[Any] = []
        later.start(self.times, self.answers.append)

    async def answer(self) -> Any:
        async with asyncio.timeout(20):
            while not self.answers:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        (answer,) = self.answers
        return answer


def at_the_end(broker: Broker, version: int = 12, *, max_wait_ms: int = LONG_MS, **others: Any) -> bytes:
    """A Fetch of two partitions that have nothing new."""
    end = broker.node.replica(ORDERS).high_watermark
    wanted = {"orders": [want(version, 0, end), want(version, 3)]}
    return fetch_frame(version, wanted, max_wait_ms=max_wait_ms, **others)


async def both(broker: Broker, frame: bytes) -> tuple[Waiting, asyncio.Task[Any]]:
    """The same request the short and the general way; both wait."""
    general = asyncio.create_task(broker.general.dispatcher.serve(frame, broker.general.client))
    await broker.node.until_waiting(1)
    return Waiting(broker, frame), general


@pytest.mark.parametrize("version", [4, 9, 12, 17])
async def test_records_that_come_end_the_wait(broker: Broker, version: int) -> None:
    waiting, general = await both(broker, at_the_end(broker, version))
    assert len(broker.node.purgatory) == 2
    await broker.node.append(BILLS, batch(b"of no interest"))
    assert not waiting.answers
    await broker.node.append(ORDERS, batch(b"what it waits for"), index=3)
    answer = await waiting.answer()
    assert joined(answer) == joined(await general)
    assert b"what it waits for" in joined(answer)
    assert len(broker.node.purgatory) == 0
    assert not broker.node.replica(ORDERS).watchers
    left: Any = waiting.later._wait
    assert left.timer is None, "thousands of timers would be left behind"
    times = waiting.times
    assert (times.api_key, times.api_version, times.errors) == (1, version, None)
    assert 0 < times.local_seconds < times.answered - times.started + 1


async def test_too_few_records_do_not_end_it(broker: Broker) -> None:
    waiting, general = await both(broker, at_the_end(broker, min_bytes=5_000))
    await broker.node.append(ORDERS, batch(b"few"), index=3)
    await asyncio.sleep(0.01)
    assert not waiting.answers
    await broker.node.append(ORDERS, batch(bytes(6_000)), index=0)
    assert joined(await waiting.answer()) == joined(await general)


async def test_the_end_of_its_time_ends_it(broker: Broker) -> None:
    frame = at_the_end(broker, max_wait_ms=20)
    waiting, general = await both(broker, frame)
    answer = await waiting.answer()
    assert joined(answer) == joined(await general)
    assert len(broker.node.purgatory) == 0
    assert await broker.ask(at_the_end(broker, max_wait_ms=0)) == (joined(answer), True)


async def test_a_session_goes_on_when_the_wait_is_over(broker: Broker) -> None:
    end = broker.node.replica(ORDERS).high_watermark
    opened, _ = await broker.ask(fetch_frame(17, {"orders": [want(17, 0, end)]}, session=(0, 0)))
    session_id = int.from_bytes(opened[15:19])
    for epoch, expected in ((1, b""), (2, b"news")):
        frame = fetch_frame(17, {}, session=(session_id, epoch), max_wait_ms=20 if epoch == 1 else LONG_MS)
        waiting, general = await both(broker, frame)
        if expected:
            await broker.node.append(ORDERS, batch(expected), index=0)
        assert joined(await waiting.answer()) == joined(await general)
        assert sessions_of(broker.plain) == sessions_of(broker.general)


async def test_a_session_that_waits_is_no_idle_one(broker: Broker) -> None:
    """However long ago its last answer was: another may not take its place."""
    end = broker.node.replica(ORDERS).high_watermark
    opened, _ = await broker.ask(fetch_frame(17, {"orders": [want(17, 0, end)]}, session=(0, 0)))
    sessions, clock = broker.plain.parts.fetch_sessions, broker.plain.clock
    first = sessions.peek(int.from_bytes(opened[15:19]))
    assert first is not None
    later = sessions.open([], uses_topic_ids=True, now_ms=clock.now_ms())
    assert later is not None
    clock.advance(600_000)
    waiting = Waiting(
        broker, fetch_frame(17, {}, session=(first.session_id, first.epoch), max_wait_ms=LONG_MS)
    )
    sessions._slots_max = 2
    assert sessions.open([], uses_topic_ids=True, now_ms=clock.now_ms()) is not None
    assert (sessions.peek(first.session_id), sessions.peek(later.session_id)) == (first, None)
    waiting.later.stop()


async def test_who_leaves_is_not_called(broker: Broker) -> None:
    waiting = Waiting(broker, at_the_end(broker))
    gone = Waiting(broker, at_the_end(broker))
    broker.node.replica(ORDERS, 3)._complete_watchers()
    gone.later.stop()  # although it is on its way by now
    await asyncio.sleep(0.01)
    assert len(broker.node.purgatory) == 1, "the other one found nothing, and waits again"
    await broker.node.append(ORDERS, batch(b"v"), index=3)
    assert await waiting.answer()
    assert not gone.answers


async def test_who_leaves_takes_his_wait_along(broker: Broker) -> None:
    gone = Waiting(broker, at_the_end(broker, max_wait_ms=20))
    gone.later.stop()
    gone.later.stop()
    await asyncio.sleep(0.05)
    assert (gone.answers, len(broker.node.purgatory), broker.node.replica(ORDERS, 3).watchers) == ([], 0, {})


async def test_a_partition_that_is_led_elsewhere_is_told_by_the_general_way(broker: Broker) -> None:
    waiting = Waiting(broker, at_the_end(broker))
    await asyncio.sleep(0.02)
    records = topic_records("orders", ORDERS, 4, leader=2, leader_epoch=9, replicas=(1, 2))
    broker.node.apply(*records)
    assert await waiting.answer() is None
    assert waiting.times.waited_ms >= 10
    assert len(broker.node.purgatory) == 0


async def test_what_has_waited_already_is_not_waited_again(broker: Broker) -> None:
    frame = at_the_end(broker)
    times = RequestTimes(0.0, len(frame))
    times.waited_ms = LONG_MS - 10
    async with asyncio.timeout(20):
        answer = await broker.general.dispatcher.serve(frame, broker.general.client, times)
    assert answer is not None


async def test_a_node_that_ends_ends_the_wait(broker: Broker) -> None:
    async with broker.local.serve(make_servicer(broker.node), broker.node.replicas, hand_nothing_over):
        waiting = Waiting(broker, at_the_end(broker))
    assert await waiting.answer() is None


async def test_one_too_many_is_answered_at_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.node.purgatory, "_fetches_max", 1)
    waiting = Waiting(broker, at_the_end(broker))
    assert isinstance(broker.fetches.answer(at_the_end(broker), 0.0), list)
    waiting.later.stop()


async def test_without_room_for_answers_it_takes_the_general_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Waiting(broker, at_the_end(broker))
    monkeypatch.setattr(broker.plain.parts.unread_answers, "bytes_max", 1)
    broker.plain.parts.unread_answers.take(1)
    await broker.node.append(ORDERS, batch(b"v"), index=3)
    assert await waiting.answer() is None
    broker.plain.parts.unread_answers.give_back(1)


@pytest.mark.parametrize("what", ["faults", "failure"])
async def test_whatever_hinders_the_answer_it_comes_the_general_way(
    broker: Broker, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Waiting(broker, at_the_end(broker))
    if what == "faults":
        monkeypatch.setattr(broker.faults, "is_active", True)
    else:
        monkeypatch.setattr(broker.fetches, "_read", lambda *_, **__: 1 / 0)
    await broker.node.append(ORDERS, batch(b"v"), index=3)
    assert await waiting.answer() is None
    assert len(broker.node.purgatory) == 0
