"""Large answers: made a slice at a time and in turns, counted, and small ones beside them at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from gateway_harness import Gateway, decode_answer, request_frame

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.dispatch import Dispatcher
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.request_times import RequestTimes
from barnabas.kernel.errors import ErrorCode

METADATA, DESCRIBE_CONFIGS = 3, 32
COUNT = 5_000


class Large:
    """A gateway that is asked for thousands of topics that do not exist."""

    def __init__(self) -> None:
        self.gateway = Gateway()
        self.gateway.parts = replace(self.gateway.parts, budget=ByteBudget(1 << 40))
        self.gateway.dispatcher = Dispatcher(HANDLERS, self.gateway.parts, RequestMetrics())
        self.times = RequestTimes()

    def ask(self, count: int = COUNT) -> asyncio.Task[Any]:
        topics = [{"name": f"t{index}"} for index in range(count)]
        frame = request_frame(METADATA, 9, {"topics": topics, "allow_auto_topic_creation": False})
        serving = self.gateway.dispatcher.serve(frame, self.gateway.client, self.times)
        return asyncio.create_task(serving)

    def is_at_rest(self) -> bool:
        parts = self.gateway.parts
        return parts.budget.used_bytes == 0 and parts.large_answers.count == 0


async def test_others_have_their_turn_while_a_large_answer_is_encoded_and_it_counts() -> None:
    large = Large()
    asking = large.ask()
    turns, counted = 0, [0]
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
        counted.append(large.gateway.parts.budget.used_bytes)
    assert turns >= COUNT // limits.ROWS_AT_A_TIME
    # It takes room as a request before that, and more and more as an answer.
    answer_bytes = len(await asking)
    assert answer_bytes * 0.9 < max(counted) - min(each for each in counted if each) < answer_bytes
    assert large.is_at_rest()
    assert large.times.errors == [ErrorCode.unknown_topic_or_partition] * COUNT


async def done_in_order(*asking: asyncio.Task[Any]) -> list[int]:
    """The numbers of the tasks as they come to their end."""
    done: list[int] = []
    for number, task in enumerate(asking):
        task.add_done_callback(lambda _, number=number: done.append(number))
    await asyncio.wait_for(asyncio.gather(*asking), 30)
    await asyncio.sleep(0)  # the last callback
    return done


async def test_large_answers_take_turns_and_the_smaller_ones_are_done_sooner() -> None:
    large = Large()
    first, second, smaller, small = large.ask(), large.ask(), large.ask(COUNT // 5), large.ask(3)
    assert await done_in_order(first, second, smaller, small) == [3, 2, 0, 1]
    assert await first == await second
    assert large.is_at_rest()


async def test_without_room_the_first_goes_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LARGE_ANSWERS_BYTES", 10_000)
    large = Large()
    asking = [large.ask() for _ in range(4)]
    smaller = large.ask(COUNT // 5)
    largest = 0

    async def watch() -> None:
        nonlocal largest
        while True:
            largest = max(largest, large.gateway.parts.large_answers.made_bytes)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    assert await done_in_order(*asking, smaller) == [0, 1, 2, 3, 4]
    watching.cancel()
    answer_bytes = len(await asking[0])
    assert largest < answer_bytes * 1.5
    assert large.is_at_rest()


async def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    large = Large()
    leaving, waiting, last = large.ask(), large.ask(), large.ask()
    for _ in range(6):
        await asyncio.sleep(0)
    assert large.gateway.parts.large_answers.count == 3
    leaving.cancel()
    waiting.cancel()
    await asyncio.wait_for(last, 10)
    assert large.is_at_rest()


@pytest.mark.parametrize("count", [3, COUNT])
async def test_a_request_that_fails_as_a_whole_is_one_error(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DESCRIBED_BYTES_MAX", 100)
    large = Large()
    resources = [{"resource_type": 2, "resource_name": "bills"} for _ in range(count)]
    frame = request_frame(DESCRIBE_CONFIGS, 4, {"resources": resources})
    answer = await large.gateway.dispatcher.serve(frame, large.gateway.client, large.times)
    assert large.times.errors == [ErrorCode.invalid_request]
    rows = decode_answer(DESCRIBE_CONFIGS, 4, answer).results
    assert [row.error_code for row in rows] == [ErrorCode.invalid_request] * count
    assert large.is_at_rest()
