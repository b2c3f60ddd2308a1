"""UnregisterBroker asked of a running controller, of nodes that are away and of one that is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from test_controller_service import config_for, node_request, over_grpc, until, watching

from barnabas.controller.service import RunningController, running_controller
from barnabas.controller.store.protocol import Store
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import Refused
from barnabas.messages.controller_pb2 import UnregisterBrokerRequest

StoreFactory = Callable[[], Awaitable[Store]]


@pytest.fixture
async def running(open_store: StoreFactory, tmp_path: Path) -> AsyncIterator[RunningController]:
    async with running_controller(config_for(tmp_path), await open_store(), over_grpc()) as controller:
        yield controller


async def test_one_that_is_away_is_forgotten(running: RunningController) -> None:
    async with watching(running.address, node_request(1)) as watcher:
        async with watching(running.address, node_request(2)):
            image = await until(watcher, lambda image: 2 in image.nodes)
        answer = await watcher.controller.UnregisterBroker(UnregisterBrokerRequest(node_id=2))
        assert answer.node_epoch == image.nodes[2].node_epoch
        await until(watcher, lambda image: 2 not in image.nodes)
        with pytest.raises(Refused) as caught:
            await watcher.controller.UnregisterBroker(UnregisterBrokerRequest(node_id=2))
        assert caught.value.code is ErrorCode.broker_id_not_registered


async def test_one_that_is_there_registers_again(running: RunningController) -> None:
    async with watching(running.address, node_request(1)) as watcher:
        async with watching(running.address, node_request(2)) as node:
            await until(watcher, lambda image: 2 in image.nodes)
            answer = await watcher.controller.UnregisterBroker(UnregisterBrokerRequest(node_id=2))
            for each in (watcher, node):
                await until(
                    each, lambda image: 2 in image.nodes and image.nodes[2].node_epoch > answer.node_epoch
                )
        await until(watcher, lambda image: image.nodes[2].fenced)  # it is awaited as before
