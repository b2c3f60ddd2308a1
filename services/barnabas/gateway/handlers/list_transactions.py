"""ListTransactions (key 66): the transactional ids that a broker coordinates, for tools that ask all brokers (KIP-664).

v1 adds a filter on how long a transaction has been open (KIP-994), v2 one on the id by a regular expression (KIP-1152).
As FindCoordinator names the leader of an id's partition of __transaction_state, that broker's port lists the id and the
others' do not; where one broker stands for all, it lists all.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.answers.in_slices import encode_answer
from barnabas.gateway.inside.by_coordinator import is_shown_here, not_answered
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import LinkError
from barnabas.messages.transactions_pb2 import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC
from barnabas.wire.response_slices import Rows

_AGAIN: Final = ErrorCode.coordinator_load_in_progress
"""Some id may be missing from the list where a coordinator gave no answer, or there is none. Another one comes to have
its ids, and on this code tools ask again; on COORDINATOR_NOT_AVAILABLE, which is said elsewhere, they would give up."""

_ANY_DURATION: Final = -1


async def handle(request: Request) -> Answer:
    message = ListTransactionsRequest(
        states=dict.fromkeys(request.body.state_filters),
        producer_ids=dict.fromkeys(request.body.producer_id_filters),
        duration_ms=request.get("duration_filter", _ANY_DURATION),
        transactional_id_pattern=request.get("transactional_id_pattern", None),
    )
    addresses = sorted(coordinator.address for coordinator in request.image.coordinators.values())
    responses = await asyncio.gather(*(_ask(request, address, message) for address in addresses))
    codes = [response.error_code for response in responses if response.error_code]
    if codes or not responses:
        return {"error_code": codes[0] if codes else _AGAIN}
    listed = {
        each.transactional_id: each
        for response in responses
        for each in response.transactions
        if is_shown_here(request, TRANSACTION_STATE_TOPIC, each.transactional_id)
    }
    body = {
        "error_code": ErrorCode.none,
        "unknown_state_filters": tuple(responses[0].unknown_states),  # all of them know the same states
        "transaction_states": Rows(len(listed), (_answer(each) for _, each in sorted(listed.items()))),
    }
    return await encode_answer(request, body, limits.DESCRIBED_BYTES_MAX)


async def _ask(request: Request, address: str, message: ListTransactionsRequest) -> ListTransactionsResponse:
    coordinator = request.parts.links.transactions_at(address)
    try:
        with request.wait:
            return await coordinator.ListTransactions(message, timeout=limits.CALL_TIMEOUT_SECONDS)
    except LinkError as error:
        not_answered(request, error)
        return ListTransactionsResponse(error_code=_AGAIN)


def _answer(listed: ListedTransaction) -> dict[str, Any]:
    return {
        "transactional_id": listed.transactional_id,
        "producer_id": listed.producer_id,
        "transaction_state": listed.state,
    }


HANDLER = Handler(
    api_key=66,
    versions=(0, 2),
    handle=handle,
    unanswered=_AGAIN,
)
