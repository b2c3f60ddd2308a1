"""ListTransactions (key 66): the ids that this coordinator owns and the filters let through.

While some partition is being loaded, what is known is listed all the same; the code says that there may be more.
"""

from __future__ import annotations

import asyncio

from barnabas.coordinator.runtime.handler import Handler
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.core.list_transactions import (
    TransactionFilter,
    list_transactions,
    unknown_states,
)
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.transactions_pb2 import ListTransactionsRequest, ListTransactionsResponse


async def _handle(
    coordinator: TransactionCoordinator, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    asked = TransactionFilter.of(request, coordinator.clock.now_ms())
    response = ListTransactionsResponse(unknown_states=unknown_states(request))
    runtimes = coordinator.partitions.runtimes()
    await asyncio.gather(*(runtime.load_times.wait_for_first() for runtime in runtimes))
    for runtime in runtimes:
        try:
            response.transactions.extend(list_transactions(runtime.shard, asked))
        except KafkaError as error:
            if error.code is ErrorCode.coordinator_load_in_progress:
                response.error_code = error.code
        await asyncio.sleep(0)
    return response


def _refuse(request: ListTransactionsRequest, error: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code, unknown_states=unknown_states(request))


LIST_TRANSACTIONS = Handler("ListTransactions", _handle, _refuse)
