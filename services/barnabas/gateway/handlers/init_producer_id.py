"""InitProducerId (key 22): an id for an idempotent producer, and for a transactional id also the next epoch.

v2 is flexible, v3 takes the producer's current id and epoch (KIP-360), v4 may answer PRODUCER_FENCED, v5
TRANSACTION_ABORTABLE (KIP-890). v6, which asks for two-phase commit (KIP-939), is not stable in Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway import limits
from barnabas.gateway.inside.owners import TRANSACTIONS
from barnabas.gateway.inside.transaction_calls import fenced_code
from barnabas.gateway.request import Answer, Handler, Request, milliseconds
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.transactions_pb2 import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.responses import Body

_FENCING_FROM: Final = 4


async def handle(request: Request) -> Answer:
    transactional_id = request.body.transactional_id
    producer_id, epoch = request.get("producer_id", -1), request.get("producer_epoch", -1)
    if transactional_id == "" or (producer_id == -1) != (epoch == -1):
        return _refused(ErrorCode.invalid_request)
    if transactional_id is None:
        # A producer without transactions gets a new id whatever it had: the storage nodes know it by its id alone.
        return {"producer_id": await request.parts.producer_ids.allocate(), "producer_epoch": 0}
    message = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=milliseconds(request.body.transaction_timeout),
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    response = await TRANSACTIONS.ask(
        request,
        transactional_id,
        lambda coordinator: coordinator.InitProducerId(message, timeout=limits.CALL_TIMEOUT_SECONDS),
        lambda code: InitProducerIdResponse(error_code=code),
    )
    if response.error_code:
        return _refused(fenced_code(response.error_code, knows_fencing=request.version >= _FENCING_FROM))
    return {"producer_id": response.producer_id, "producer_epoch": response.producer_epoch}


def _refused(code: int) -> Body:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


HANDLER = Handler(
    api_key=22,
    versions=(0, 5),
    handle=handle,
    unanswered=ErrorCode.coordinator_load_in_progress,
)
