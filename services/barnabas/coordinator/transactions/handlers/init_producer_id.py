"""InitProducerId (key 22) for a transactional id. One without is the gateway's own to answer."""

from __future__ import annotations

import asyncio
import contextlib

from barnabas.coordinator import limits
from barnabas.coordinator.runtime.core.decision import Waiter
from barnabas.coordinator.runtime.handler import Handler
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.core.decision import Decision
from barnabas.coordinator.transactions.core.init_producer_id import (
    check_init_producer_id,
    handle_init_producer_id,
    init_producer_id_error,
)
from barnabas.coordinator.transactions.core.shard import TransactionShard
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.transactions_pb2 import InitProducerIdRequest, InitProducerIdResponse


async def _handle(
    coordinator: TransactionCoordinator, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    check_init_producer_id(request, coordinator.settings)
    producer_ids = coordinator.producer_ids

    def decide(shard: TransactionShard, waiter: Waiter, decision: Decision) -> None:
        handle_init_producer_id(shard, request, waiter, decision, producer_ids.draw)

    response: InitProducerIdResponse = await coordinator.runtime_of(request.transactional_id).submit(decide)
    if response.error_code != ErrorCode.coordinator_load_in_progress or producer_ids.has_some:
        return response
    # It is the first here, or the controller was away: rather than have the client come back, wait a little.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limits.PRODUCER_ID_WAIT_SECONDS):
            await producer_ids.wait_for_block()
    again: InitProducerIdResponse = await coordinator.runtime_of(request.transactional_id).submit(decide)
    return again


def _refuse(_: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return init_producer_id_error(error.code)


INIT_PRODUCER_ID = Handler("InitProducerId", _handle, _refuse)
