"""DescribeTransactions (key 65): each id on its own, since one may be another coordinator's.

As a transaction may have many partitions, the answer may end early (`bytes_max`).
"""

from __future__ import annotations

import asyncio
import contextlib

from barnabas.coordinator.runtime.handler import Handler
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.core.describe import describe, describe_error
from barnabas.kernel.errors import KafkaError
from barnabas.messages.transactions_pb2 import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionDescription,
)


async def _handle(
    coordinator: TransactionCoordinator, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    await asyncio.gather(*(_load(coordinator, each) for each in request.transactional_ids))
    response, size_bytes = DescribeTransactionsResponse(), 0
    for transactional_id in request.transactional_ids:
        described = _describe(coordinator, transactional_id)
        response.transactions.append(described)
        size_bytes += described.ByteSize()
        if 0 < request.bytes_max <= size_bytes:
            break
    return response


async def _load(coordinator: TransactionCoordinator, transactional_id: str) -> None:
    with contextlib.suppress(KafkaError):  # which `_describe` meets again
        await coordinator.runtime_of(transactional_id).load_times.wait_for_first()


def _describe(coordinator: TransactionCoordinator, transactional_id: str) -> TransactionDescription:
    try:
        return describe(coordinator.runtime_of(transactional_id).shard, transactional_id)
    except KafkaError as error:
        return describe_error(transactional_id, error.code)


def _refuse(request: DescribeTransactionsRequest, error: KafkaError) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transactions=[describe_error(each, error.code) for each in request.transactional_ids]
    )


DESCRIBE_TRANSACTIONS = Handler("DescribeTransactions", _handle, _refuse)
