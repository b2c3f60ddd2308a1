"""DescribeTransactions (key 65): what coordinators know of transactional ids, each from its own (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from barnabas.gateway import limits
from barnabas.gateway.answers.in_slices import encode_answer
from barnabas.gateway.inside.gathered import Gathered
from barnabas.gateway.inside.transaction_calls import call_all_transactions
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.transactions_pb2 import DescribeTransactionsRequest, TransactionDescription
from barnabas.metadata.leaders import NOBODY_COORDINATES
from barnabas.wire.response_slices import Rows

if TYPE_CHECKING:
    from barnabas.links.transactions_link import TransactionsLink


async def handle(request: Request) -> Answer:
    ids = request.body.transactional_ids
    async with Gathered(request) as gathered:
        described = await call_all_transactions(request, gathered, ids, _describe, _refused)
        # An id that is named twice is answered twice, as in Kafka, but no small request is answered without end.
        gathered.check_repeated({key: found.ByteSize() for key, found in described.items()}, ids)
        rows = Rows(len(ids), (_answer(described[transactional_id]) for transactional_id in ids))
        return await encode_answer(request, {"transaction_states": rows}, limits.DESCRIBED_BYTES_MAX)


async def _describe(
    coordinator: TransactionsLink, ids: list[str], seconds: float
) -> Sequence[TransactionDescription]:
    message = DescribeTransactionsRequest(transactional_ids=ids, bytes_max=limits.GATHERED_AT_A_TIME_BYTES)
    response = await coordinator.DescribeTransactions(message, timeout=seconds)
    return response.transactions


def _refused(transactional_id: str, code: ErrorCode) -> TransactionDescription:
    return TransactionDescription(error_code=code, transactional_id=transactional_id)


def _answer(found: TransactionDescription) -> dict[str, Any]:
    if found.error_code:  # the rest of the row is zero then, as in Kafka
        return {
            "error_code": found.error_code,
            "transactional_id": found.transactional_id,
            "transaction_start_time": 0,
        }
    return {
        "error_code": ErrorCode.none,
        "transactional_id": found.transactional_id,
        "transaction_state": found.state,
        "transaction_timeout": found.transaction_timeout_ms,
        "transaction_start_time": found.transaction_start_time_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [{"topic": topic.name, "partitions": tuple(topic.partitions)} for topic in found.topics],
    }


HANDLER = Handler(api_key=65, versions=(0, 0), handle=handle, unanswered=NOBODY_COORDINATES)
