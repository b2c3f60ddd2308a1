"""Blocks of producer ids: each id once, the next block early, and nobody who waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import Unreachable
from barnabas.messages.controller_pb2 import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.metadata.producer_ids import ProducerIds

BLOCK = 10


class FakeController:
    """Gives blocks, or not, when its gate is open."""

    def __init__(self) -> None:
        self.controller = self
        self.calls = 0
        self.is_away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def AllocateProducerIds(
        self, _: AllocateProducerIdsRequest, *, timeout: float | None = None
    ) -> AllocateProducerIdsResponse:
        assert timeout
        self.calls += 1
        first = self.calls * 1000
        await self.gate.wait()
        if self.is_away:
            raise Unreachable("no controller")
        return AllocateProducerIdsResponse(first_producer_id=first, count=BLOCK)


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def ids(controller: FakeController) -> ProducerIds:
    return ProducerIds(cast(Any, controller))


async def test_no_id_twice_and_the_next_block_early(controller: FakeController, ids: ProducerIds) -> None:
    given = [await ids.allocate() for _ in range(BLOCK - 2)]
    assert controller.calls == 1
    given.append(await ids.allocate())
    await asyncio.sleep(0)
    assert controller.calls == 2, "one is left"
    given += [await ids.allocate() for _ in range(BLOCK)]
    assert given == [*range(1000, 1000 + BLOCK), *range(2000, 2000 + BLOCK - 1)]
    await ids.close()


async def test_what_is_at_hand_needs_no_wait(controller: FakeController, ids: ProducerIds) -> None:
    assert not ids.has_some
    with pytest.raises(KafkaError) as refused:
        ids.draw()
    assert refused.value.code is ErrorCode.coordinator_load_in_progress
    await ids.wait_for_block()
    assert ids.has_some
    assert ids.draw() == 1000


async def test_the_controller_is_away(controller: FakeController, ids: ProducerIds) -> None:
    controller.is_away = True
    for _ in range(2):
        with pytest.raises(KafkaError, match="no controller"):
            await ids.allocate()
    controller.is_away = False
    assert await ids.allocate() == 3000


async def test_a_block_that_does_not_come_early_is_asked_for_again(
    controller: FakeController, ids: ProducerIds
) -> None:
    for _ in range(BLOCK - 2):
        await ids.allocate()
    controller.is_away = True
    assert await ids.allocate() == 1000 + BLOCK - 2
    await asyncio.sleep(0)
    controller.is_away = False
    assert await ids.allocate() == 1000 + BLOCK - 1
    assert await ids.allocate() == 3000


async def test_all_who_wait_share_one_call(controller: FakeController, ids: ProducerIds) -> None:
    controller.gate.clear()
    waiting = [asyncio.create_task(ids.allocate()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    controller.gate.set()
    assert await asyncio.gather(*waiting[1:]) == [1000, 1001]
    assert controller.calls == 1


async def test_more_wait_than_a_block_has(controller: FakeController, ids: ProducerIds) -> None:
    given = await asyncio.gather(*(ids.allocate() for _ in range(3 * BLOCK)))
    assert len(set(given)) == 3 * BLOCK


async def test_it_ends_while_it_asks(controller: FakeController, ids: ProducerIds) -> None:
    controller.gate.clear()
    waiting = asyncio.create_task(ids.wait_for_block())
    await asyncio.sleep(0)
    await ids.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await ids.close()
