"""The way from a frame to its handler: large requests wait for room, small ones for nobody."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from gateway_harness import FakeStream, Gateway, request_frame

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.dispatch import Dispatcher
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.metrics import RequestMetrics
from barnabas.messages import coordinator_pb2 as pb

FETCH, HEARTBEAT, LEAVE_GROUP = 1, 12, 13
MIB = 1024 * 1024


class Served:
    """A gateway whose budget has room for one large request, and whose coordinator answers when the test says so."""

    def __init__(self) -> None:
        self.gateway = Gateway()
        budget = ByteBudget(2 * MIB * limits.DECODED_ONE_PART_IN)
        self.gateway.parts = replace(self.gateway.parts, budget=budget)
        self.gateway.dispatcher = Dispatcher(HANDLERS, self.gateway.parts, RequestMetrics())
        self.asked: list[int] = []
        self.answering = asyncio.Event()
        self.gateway.coordinator.answers |= {
            "LeaveGroup": self._leave,
            "Heartbeat": lambda _: pb.HeartbeatResponse(),
        }

    async def _leave(self, message: Any) -> pb.LeaveGroupResponse:
        self.asked.append(len(message.members))
        await self.answering.wait()
        return pb.LeaveGroupResponse()

    def leave(self, members: int) -> asyncio.Task[Any]:
        body = {"group_id": "g", "members": [{"member_id": f"m{index}"} for index in range(members)]}
        frame = request_frame(LEAVE_GROUP, 4, body)
        return asyncio.create_task(self.gateway.dispatcher.serve(frame, self.gateway.client))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_large_requests_are_decoded_as_there_is_room_and_small_ones_at_once() -> None:
    served = Served()
    first, second, third = served.leave(1_500), served.leave(1_501), served.leave(20)
    await settle()
    assert served.asked == [1_500, 20]
    assert 1_500 * limits.DECODED_ITEM_BYTES < served.gateway.parts.budget.used_bytes < 2 * MIB
    await asyncio.wait_for(served.gateway.ask(HEARTBEAT, 4, {"group_id": "g"}), 5)
    served.answering.set()
    await asyncio.wait_for(asyncio.gather(first, second, third), 5)
    assert served.asked == [1_500, 20, 1_501]
    assert served.gateway.parts.budget.used_bytes == 0


async def test_the_connection_of_a_large_request_that_holds_up_others_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DECODED_SECONDS_MAX", 0.01)
    served = Served()
    first, second = served.leave(1_500), served.leave(1_501)
    with pytest.raises(CloseConnection, match="others"):
        await asyncio.wait_for(first, 5)
    await settle()
    assert served.asked == [1_500, 1_501]
    served.answering.set()
    await asyncio.wait_for(second, 5)


async def test_what_waits_for_a_silent_coordinator_counts_for_what_it_holds() -> None:
    served = Served()
    budget, items = served.gateway.parts.budget, 100
    task = served.leave(items)
    await settle()
    assert served.asked == [items]
    assert (
        0
        < budget.used_bytes
        <= 2 * items * limits.DECODED_WAITING_ITEM_BYTES
        < items * limits.DECODED_ITEM_BYTES
    )
    served.answering.set()
    await asyncio.wait_for(task, 5)
    assert budget.used_bytes == 0


async def test_a_large_fetch_that_waits_is_hurried_where_others_wait_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DECODED_LONG_POLL_SECONDS_MAX", 0.01)
    served = Served()
    fetches = FakeStream(lambda _: None)
    served.gateway.node(1, fetches=fetches)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    body = {
        "max_wait": 30_000,
        "min_bytes": 1,
        "topics": [{"topic": "orders", "partitions": [partition] * 1_500}],
    }
    frame = request_frame(FETCH, 11, body)
    fetch = asyncio.create_task(served.gateway.dispatcher.serve(frame, served.gateway.client))
    await settle()
    assert (len(fetches.requests), fetches.hurried) == (1, [])
    leave = served.leave(1_501)
    await asyncio.sleep(0.05)
    assert (served.asked, fetches.hurried) == ([], fetches.requests)
    fetch.cancel()
    await settle()
    assert served.asked == [1_501]
    leave.cancel()
