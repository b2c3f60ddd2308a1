"""Services that are away are asked at their addresses: one whose process has ended is known by the refusal."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.controller import lost_services
from barnabas.controller.lost_services import LostServices
from barnabas.links.errors import (
    ConnectionRefused,
    DeadlinePassed,
    LinkError,
    NotSentInTime,
    OutcomeUnknown,
    Refusal,
    Refused,
    Unreachable,
)
from barnabas.links.network import Network
from barnabas.rpc.network import GrpcNetwork

Answer = LinkError | None


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_services, "PROBE_PAUSE_SECONDS", 0)
    monkeypatch.setattr(lost_services, "PROBE_PAUSE_SECONDS_MIN", 0)


class Links:
    """A network whose one node answers as `answers` say, one after another; the links that were opened and closed."""

    def __init__(self, *answers: Answer) -> None:
        self._answers: Iterator[Answer] = iter(answers)
        self.opened = self.closed = 0

    def connect_storage(self, address: str, **_: object) -> Links:
        assert address == "n1"
        self.opened += 1
        return self

    async def OffsetForLeaderEpoch(self, request: Any, *, timeout: float | None = None) -> object:
        assert timeout == lost_services.PROBE_SECONDS_MAX
        answer = next(self._answers)
        if answer is not None:
            raise answer
        return object()

    async def close(self) -> None:
        self.closed += 1


async def others() -> None:
    """Wait until every other task has ended."""
    current = cast("asyncio.Task[Any]", asyncio.current_task())
    await asyncio.gather(*(asyncio.all_tasks() - {current}), return_exceptions=True)


async def probes(
    *answers: Answer, awaited: Callable[[int], bool] = lambda _: True
) -> tuple[list[int], Links]:
    """Who was said to have ended, when the node was given these answers and then up."""
    links, ended = Links(*answers), list[int]()

    def address_of(node_id: int) -> str | None:
        return "n1" if links.opened < len(answers) or links.closed < len(answers) else None

    async def on_ended(node_id: int) -> None:
        ended.append(node_id)

    def address_while_awaited(node_id: int) -> str | None:
        return address_of(node_id) if awaited(links.closed) else None

    lost = LostServices("storage node", cast(Network, links), address_while_awaited, on_ended)
    lost.look_for(1)
    lost.look_for(1)
    async with asyncio.timeout(5):
        await others()
    assert links.opened == links.closed
    return ended, links


async def test_a_node_whose_address_refuses_has_ended() -> None:
    ended, _ = await probes(ConnectionRefused("refused"), None)
    assert ended == [1]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        DeadlinePassed("silent"),
        NotSentInTime("silent"),
        Refused(Refusal.TOO_BUSY, "later"),
        OutcomeUnknown("connection reset by peer"),
        Unreachable("no such host"),
    ],
)
async def test_a_node_that_answers_or_is_silent_or_cannot_be_found_has_not(answer: Answer) -> None:
    ended, links = await probes(answer, answer)
    assert (ended, links.opened) == ([], 2)


async def test_it_is_told_again_for_as_long_as_the_node_is_awaited() -> None:
    refused = ConnectionRefused("refused")
    ended, _ = await probes(DeadlinePassed("silent"), refused, refused, None)
    assert ended == [1, 1]


async def test_it_is_asked_again_soon_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections of a process that was killed break a moment before its address refuses."""
    monkeypatch.undo()
    pauses, sleep = list[float](), asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("barnabas.controller.lost_services.asyncio.sleep", pause)
    broke = OutcomeUnknown("connection reset by peer")
    await probes(broke, broke, broke, broke, broke, broke, ConnectionRefused("refused"), None)
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16, 0.2, 0.2, 0.2]


async def test_nobody_is_told_of_a_node_that_came_back_meanwhile() -> None:
    ended, links = await probes(ConnectionRefused("refused"), None, awaited=lambda closed: closed == 0)
    assert (ended, links.opened) == ([], 1)


async def test_over_grpc_nobody_at_an_address_refuses_and_a_frozen_process_is_silent(tmp_path: Path) -> None:
    told = {"dead": asyncio.Event(), "frozen": asyncio.Event()}

    async def on_ended(node_id: int) -> None:
        list(told.values())[node_id].set()

    def address_of(node_id: int) -> str:
        return f"unix:{tmp_path}/{list(told)[node_id]}"

    lost = LostServices("storage node", GrpcNetwork(), address_of, on_ended)
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(tmp_path / "frozen"))
        frozen.listen()
        for node_id in range(len(told)):
            lost.look_for(node_id)
        async with asyncio.timeout(10):
            await told["dead"].wait()
            await asyncio.sleep(lost_services.PROBE_SECONDS_MAX * 1.5)
        assert not told["frozen"].is_set()
        lost.close()
        await others()


async def test_one_that_is_lost_again_in_the_moment_its_probes_end_is_asked() -> None:
    """It came back, and went."""
    links, is_awaited = Links(*[None] * 10), False
    lost: LostServices[int] = LostServices(
        "node", cast("Network", links), lambda _: "n1" if is_awaited else None, cast("Any", None)
    )
    lost.look_for(1)
    (probes,) = lost._tasks.values()
    while not probes.done():
        await asyncio.sleep(0)
        is_awaited = probes.done()
        if is_awaited:
            lost.look_for(1)
    async with asyncio.timeout(10):
        while not links.opened:
            await asyncio.sleep(0)
    lost.close()


async def test_nobody_is_looked_for_later_once_the_term_is_over() -> None:
    lost: LostServices[int] = LostServices(
        "node", cast("Network", Links()), lambda _: "n1", cast("Any", None)
    )
    lost.look_for_later(1, 0.0)
    lost.close()
    await asyncio.sleep(0.01)
    assert not lost._tasks
