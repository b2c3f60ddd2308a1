"""Whom a gateway that stops tells to ask where to go, and for how long."""

from __future__ import annotations

import asyncio

from barnabas.gateway import limits
from barnabas.gateway.clients.sending_away import SendingAway
from jumping_time import jumping_time


async def test_each_connection_is_told_for_a_moment_from_its_first_request_on() -> None:
    away = SendingAway()
    assert not away.is_told(1)
    away.begin()
    with jumping_time():
        assert away.is_told(1)
        await asyncio.sleep(limits.TELLING_SECONDS / 2)
        assert away.is_told(1)
        assert away.is_told(2), "however late it comes"
        await asyncio.sleep(limits.TELLING_SECONDS * 0.6)
        assert (away.is_told(1), away.is_told(2)) == (False, True)


async def test_who_was_told_has_a_moment_to_ask() -> None:
    away = SendingAway()
    away.begin()
    with jumping_time():
        assert not away.has_told(1)
        away.is_told(1)
        await asyncio.sleep(limits.ASKING_SECONDS / 2)
        assert not away.has_told(1)
        await asyncio.sleep(limits.ASKING_SECONDS)
        assert (away.has_told(1), away.has_told(2)) == (True, False)
