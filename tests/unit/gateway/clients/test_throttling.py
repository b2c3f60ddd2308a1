"""Which connections are throttled, one after the other of each client, and from when on they can be ended."""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits
from barnabas.gateway.clients.throttling import THROTTLE_TIME_MS, Throttling
from barnabas.gateway.request_times import RequestTimes
from jumping_time import jumping_time

WHO, OTHER = ("10.0.0.1", "producer-1"), ("10.0.0.1", "producer-2")


def begun(*connection_ids: int) -> Throttling:
    throttling = Throttling()
    throttling.begin(connection_ids)
    return throttling


async def test_of_each_client_one_connection_is_throttled_at_a_time() -> None:
    with jumping_time():
        throttling = begun(1, 2, 3)
        assert throttling.throttle(1, WHO, RequestTimes()) == THROTTLE_TIME_MS
        assert throttling.throttle(2, WHO, RequestTimes()) == 0
        assert throttling.throttle(3, OTHER, RequestTimes()) == THROTTLE_TIME_MS
        assert throttling.throttle(1, WHO, RequestTimes()) == THROTTLE_TIME_MS, "what was under way"
        throttling.on_ended(1)
        await asyncio.sleep(limits.ASKING_SECONDS * 0.9)
        assert throttling.throttle(2, WHO, RequestTimes()) == 0, "the client asks"
        await asyncio.sleep(limits.ASKING_SECONDS * 0.2)
        assert throttling.throttle(2, WHO, RequestTimes()) == THROTTLE_TIME_MS
        throttling.on_ended(4)  # it was never throttled


async def test_who_cannot_be_ended_holds_up_the_next_for_a_moment_only() -> None:
    with jumping_time():
        throttling = begun(1, 2)
        throttling.throttle(1, WHO, RequestTimes())
        await asyncio.sleep(limits.THROTTLE_SECONDS * 0.9)
        assert throttling.throttle(2, WHO, RequestTimes()) == 0
        await asyncio.sleep(limits.THROTTLE_SECONDS * 0.2)
        assert throttling.throttle(2, WHO, RequestTimes()) == THROTTLE_TIME_MS
        assert throttling.throttle(1, WHO, RequestTimes()) == THROTTLE_TIME_MS


async def test_who_has_heard_has_a_moment_for_what_it_has_sent() -> None:
    first, second = RequestTimes(), RequestTimes()
    with jumping_time():
        throttling = begun(1)
        assert not throttling.is_silent(1)
        throttling.throttle(1, WHO, first)
        throttling.throttle(1, WHO, second)
        second.left_at = asyncio.get_running_loop().time()
        await asyncio.sleep(limits.SILENT_SECONDS * 2)
        assert not throttling.is_silent(1), "the answer that throttles it waits for others"
        first.left_at = asyncio.get_running_loop().time()
        await asyncio.sleep(limits.SILENT_SECONDS * 0.9)
        assert not throttling.is_silent(1)
        await asyncio.sleep(limits.SILENT_SECONDS * 0.2)
        assert throttling.is_silent(1)


async def test_who_comes_later_or_has_too_many_namesakes_is_refused() -> None:
    with jumping_time():
        assert Throttling().throttle(1, WHO, RequestTimes()) is None, "nobody is sent away"
        throttling = begun(1, 2)
        assert throttling.throttle(3, OTHER, RequestTimes()) is None
        assert throttling.throttle(1, WHO, RequestTimes()) == THROTTLE_TIME_MS
        await asyncio.sleep(limits.TURNS_SECONDS * 1.1)
        assert throttling.throttle(2, WHO, RequestTimes()) is None
        assert throttling.throttle(1, WHO, RequestTimes()) == THROTTLE_TIME_MS
