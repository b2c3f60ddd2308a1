"""A node that stops has others lead first: what it asks of the controller, and of clients meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from served_node import append_one, controller, run_until_ready

from barnabas.kernel.service import ServiceContext, system_environment
from barnabas.log.checkpoints.clean_shutdown import CleanShutdown
from barnabas.rpc.network import GrpcNetwork
from barnabas.storage import limits, service
from barnabas.storage.config import StorageConfig
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.handlers.append import AppendHandler


def rests_of_appends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What becomes of the node's appends, as it does."""
    rests: list[str] = []
    refuse_before_hand_over, go_on = AppendHandler.refuse_before_hand_over, AppendHandler.go_on

    async def resting(appends: AppendHandler, seconds_max: float) -> None:
        rests.append("at rest")
        await refuse_before_hand_over(appends, seconds_max)

    def going_on(appends: AppendHandler) -> None:
        rests.append("goes on")
        go_on(appends)

    monkeypatch.setattr(AppendHandler, "refuse_before_hand_over", resting)
    monkeypatch.setattr(AppendHandler, "go_on", going_on)
    return rests


async def test_a_hand_over_that_has_had_its_time_is_not_begun_again(
    config: StorageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker's gateway asks for it before it ends, and the node once more."""
    monkeypatch.setattr(limits, "HAND_OVER_SECONDS_MAX", 0.2)
    offered: list[service.HandOver] = []

    @contextlib.asynccontextmanager
    async def offer(_: object, __: object, hand_over: service.HandOver) -> AsyncIterator[None]:
        offered.append(hand_over)
        yield

    async with controller(config.controllers[0], replicated=True) as fake:
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context, offer)
        await offered[0]()
        asked = fake.hand_overs
        assert asked > 0
        context.stopping.set()
        await running
    assert fake.hand_overs == asked


@pytest.mark.parametrize("answers", [False, True], ids=["does not answer", "finds nobody"])
async def test_a_controller_that_does_not_hand_over_keeps_no_client_waiting(
    config: StorageConfig, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    monkeypatch.setattr(limits, "HAND_OVER_REFUSAL_SECONDS_MAX", 60.0 if answers else 0.2)
    monkeypatch.setattr(limits, "HAND_OVER_SECONDS_MAX", 1.0)
    rests = rests_of_appends(monkeypatch)
    async with controller(config.controllers[0], replicated=True) as fake:
        fake.answers_hand_overs = answers
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context)
        context.stopping.set()
        while len(rests) < 2:
            assert not running.done()
            await asyncio.sleep(0.01)
        await running
    assert rests[:2] == ["at rest", "goes on"]


async def test_what_nobody_else_can_lead_is_led_on(
    config: StorageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HAND_OVER_REFUSAL_SECONDS_MAX", 0.2)
    offered: list[service.HandOver] = []

    @contextlib.asynccontextmanager
    async def offer(_: object, __: object, hand_over: service.HandOver) -> AsyncIterator[None]:
        offered.append(hand_over)
        yield

    async with controller(config.controllers[0], replicated=True) as fake:
        fake.others_can_lead = False
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context, offer)
        await offered[0]()
        await asyncio.sleep(0.3)
        assert await append_one(config.listen_address, acks=1) == 0
        context.stopping.set()
        await running


async def test_each_time_that_it_asks_it_is_at_rest(
    config: StorageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = rests_of_appends(monkeypatch)
    monkeypatch.setattr(limits, "HAND_OVER_SECONDS_MAX", 0.5)
    async with controller(config.controllers[0], replicated=True):
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context)
        context.stopping.set()
        await running
    assert steps[:4] == ["at rest", "goes on", "at rest", "goes on"]


async def test_what_was_to_end_a_rest_does_not_end_the_next_one(
    config: StorageConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = rests_of_appends(monkeypatch)
    monkeypatch.setattr(limits, "HAND_OVER_SECONDS_MAX", 0.6)
    monkeypatch.setattr(limits, "HAND_OVER_REFUSAL_SECONDS_MAX", 0.3)
    async with controller(config.controllers[0], replicated=True):
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context)
        context.stopping.set()
        await running
    assert all(step != after for step, after in itertools.pairwise(steps))


@pytest.mark.parametrize("replicated", [False, True])
async def test_a_node_that_has_handed_over_ends_its_streams_when_nobody_asks_any_more(
    config: StorageConfig, monkeypatch: pytest.MonkeyPatch, replicated: bool
) -> None:
    """Who asks until then is told to go to the next leader. Where nobody else could lead, nobody is waited for."""
    steps: list[str] = []
    wait, marker = AppendHandler.wait_until_unasked, LogDirectories.marker

    async def waiting(appends: AppendHandler) -> None:
        await wait(appends)
        steps.append("nobody asks")

    def closing(directories: LogDirectories, *arguments: Any) -> CleanShutdown:
        steps.append("streams ended")
        return marker(directories, *arguments)

    monkeypatch.setattr(AppendHandler, "wait_until_unasked", waiting)
    monkeypatch.setattr(LogDirectories, "marker", closing)
    async with controller(config.controllers[0], replicated=replicated) as fake:
        fake.others_can_lead = False
        context = ServiceContext("storage", system_environment(network=GrpcNetwork()))
        running = await run_until_ready(config, context)
        context.stopping.set()
        await running
    assert steps == [*(["nobody asks"] if replicated else []), "streams ended"]
