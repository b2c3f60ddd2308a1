"""The end of a connection in order: what is under way is answered, nothing more is started, no answer is lost."""

from __future__ import annotations

import pytest
from test_connection import OTHER, PRODUCE, Served


async def test_who_is_drained_is_answered_what_is_under_way_and_nothing_more() -> None:
    served = Served()
    await served.send(PRODUCE, "1", "2")
    await served.send(OTHER, "not started")
    served.connection.drain()
    await served.send(PRODUCE, "too late")
    await served.answer("2", b"B")
    assert (served.transport.written, served.transport.ended) == ([], False)
    await served.answer("1", b"A")
    assert (served.transport.written, served.transport.ended) == ([b"A", b"B"], True)
    assert served.started == ["1", "2"]
    assert served.budget.used_bytes == 0
    assert not served.transport.closed, (
        "it goes on reading, or what the client sends would reset the connection"
    )
    served.connection.connection_lost(None)


@pytest.mark.parametrize("api_key", [1, 11, 14])
async def test_what_waits_for_others_does_not_hold_up_a_drain(api_key: int) -> None:
    served = Served()
    await served.send(api_key, "patient")
    served.connection.drain()
    assert served.transport.ended
    await served.settle()
    assert served.cancelled == ["patient"]
    served.connection.connection_lost(None)


async def test_a_drained_connection_is_read_so_that_nothing_unread_resets_it() -> None:
    served = Served(budget_bytes=10)
    await served.send(PRODUCE, "1", size=20)
    assert served.transport.paused
    served.connection.drain()
    assert not served.transport.paused
    await served.answer("1", b"A")
    assert served.transport.ended
    served.connection.connection_lost(None)
