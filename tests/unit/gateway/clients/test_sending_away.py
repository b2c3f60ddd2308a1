"""Whom a gateway that stops tells to ask where to go, and for how long."""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits
from barnabas.gateway.clients.sending_away import SendingAway
from jumping_time import jumping_time


async def test_each_connection_is_told_until_a_moment_after_its_answers_have_left() -> None:
    away = SendingAway()
    assert not away.is_telling(1)
    with jumping_time():
        away.begin()
        away.on_quiet(2, 0)  # of nothing: it has sent nothing since
        assert away.is_telling(1)
        await asyncio.sleep(limits.TELLING_SECONDS * 2)
        assert away.is_telling(1), "the answer that tells it may wait for others"
        away.on_quiet(1, 0)
        assert away.is_telling(2), "however late it comes"
        await asyncio.sleep(limits.TELLING_SECONDS / 2)
        away.on_quiet(1, 0)
        assert away.is_telling(1)
        await asyncio.sleep(limits.TELLING_SECONDS * 0.6)
        assert (away.is_telling(1), away.is_telling(2)) == (False, True)


async def test_who_never_hears_is_told_until_all_are_ended_and_who_comes_then_for_a_moment() -> None:
    away = SendingAway()
    with jumping_time():
        away.begin()
        assert away.is_telling(1)
        await asyncio.sleep(limits.SENDING_AWAY_SECONDS * 1.1)
        assert (away.has_begun, away.is_telling(1), away.is_telling(2)) == (True, False, True)
        await asyncio.sleep(limits.TELLING_SECONDS * 1.1)
        assert not away.is_telling(2), "who came late for a moment only"


async def test_who_was_told_and_has_asked_has_a_moment_to_go() -> None:
    away, who, other = SendingAway(), ("10.0.0.1", "producer-1"), ("10.0.0.1", "producer-2")
    moment = limits.GOING_SECONDS
    with jumping_time():
        away.on_asked(who)  # before: it heard of this gateway
        away.begin()
        away.on_told(1, who)
        away.on_quiet(1, 0)
        away.on_quiet(2, 0)
        away.on_asked(other)
        await asyncio.sleep(moment * 2)
        assert not away.has_had_time_to_go(1), "it has not asked"
        away.on_asked(who)
        await asyncio.sleep(moment / 2)
        assert not away.has_had_time_to_go(1)
        await asyncio.sleep(moment)
        assert away.has_had_time_to_go(1)
        away.on_told(2, who)
        assert not away.has_had_time_to_go(2), "others of this name may have asked before"
        away.on_asked(who)
        await asyncio.sleep(moment * 1.1)
        assert (away.has_had_time_to_go(2), away.has_had_time_to_go(3)) == (True, False)


async def test_its_moment_counts_from_when_nothing_is_under_way() -> None:
    away, who = SendingAway(), ("10.0.0.1", "producer-1")
    moment = limits.GOING_SECONDS
    with jumping_time():
        away.begin()
        away.on_told(1, who)
        away.on_asked(who)
        await asyncio.sleep(moment * 2)
        assert not away.has_had_time_to_go(1), "what tells it waits for other answers"
        away.on_quiet(1, 0)
        await asyncio.sleep(moment * 0.6)
        away.on_quiet(1, asyncio.get_running_loop().time())
        await asyncio.sleep(moment * 0.6)
        assert not away.has_had_time_to_go(1), "it was asked something, and answered it, between two looks"
        away.on_busy(1)
        await asyncio.sleep(moment * 2)
        assert not away.has_had_time_to_go(1)
        away.on_quiet(1, 0)
        await asyncio.sleep(moment * 1.1)
        assert away.has_had_time_to_go(1)
