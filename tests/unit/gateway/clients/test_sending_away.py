"""Whom a gateway that stops tells to ask where to go, and for how long."""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits
from barnabas.gateway.clients.sending_away import SendingAway, Who
from barnabas.gateway.request_times import RequestTimes
from jumping_time import jumping_time

WHO, OTHER = ("10.0.0.1", "producer-1"), ("10.0.0.1", "producer-2")


def tell(away: SendingAway, connection_id: int, who: Who = WHO) -> RequestTimes:
    times = RequestTimes()
    away.on_told(connection_id, who, times)
    return times


async def test_each_connection_is_told_until_a_moment_after_the_first_refusal_has_left() -> None:
    away = SendingAway()
    assert not away.is_telling(1)
    with jumping_time():
        away.begin()
        assert away.is_telling(1)
        first, second = tell(away, 1), tell(away, 1)
        second.left_at = asyncio.get_running_loop().time()
        await asyncio.sleep(limits.TELLING_SECONDS * 2)
        assert away.is_telling(1), "the answer that tells it waits for others"
        first.left_at = asyncio.get_running_loop().time()
        assert away.is_telling(2), "however late it comes"
        await asyncio.sleep(limits.TELLING_SECONDS / 2)
        assert away.is_telling(1)
        await asyncio.sleep(limits.TELLING_SECONDS * 0.6)
        assert (away.is_telling(1), away.is_telling(2)) == (False, True)


async def test_who_never_hears_is_told_until_all_are_ended_and_who_comes_then_for_a_moment() -> None:
    away = SendingAway()
    with jumping_time():
        away.begin()
        assert away.is_telling(1)
        assert away.is_telling(3)
        await asyncio.sleep(limits.SENDING_AWAY_SECONDS)
        tell(away, 3).left_at = asyncio.get_running_loop().time()
        await asyncio.sleep(limits.TELLING_SECONDS / 2)
        assert (away.has_begun, away.is_telling(1), away.is_telling(2)) == (True, False, True)
        assert not away.is_telling(3), "it hears at the end"
        await asyncio.sleep(limits.TELLING_SECONDS * 1.1)
        assert not away.is_telling(2)


async def test_who_has_heard_and_asked_has_a_moment_to_go() -> None:
    away, moment = SendingAway(), limits.GOING_SECONDS
    with jumping_time():
        away.on_asked(WHO)  # before: it heard of this gateway
        away.begin()
        told = tell(away, 1)
        told.left_at = asyncio.get_running_loop().time()
        away.on_asked(OTHER)
        await asyncio.sleep(moment * 2)
        assert not away.has_had_time_to_go(1), "it has not asked"
        away.on_asked(WHO)
        await asyncio.sleep(moment / 2)
        assert not away.has_had_time_to_go(1)
        away.on_asked(WHO)
        await asyncio.sleep(moment * 0.6)
        assert away.has_had_time_to_go(1), "the first time counts"


async def test_others_of_its_name_may_have_asked_before_it_hears() -> None:
    away, moment = SendingAway(), limits.GOING_SECONDS
    with jumping_time():
        away.begin()
        away.on_asked(WHO)
        told = tell(away, 1)
        await asyncio.sleep(moment * 2)
        assert not away.has_had_time_to_go(1), "what tells it waits for other answers"
        told.left_at = asyncio.get_running_loop().time()
        await asyncio.sleep(moment / 2)
        assert not away.has_had_time_to_go(1)
        await asyncio.sleep(moment)
        assert (away.has_had_time_to_go(1), away.has_had_time_to_go(2)) == (True, False)
