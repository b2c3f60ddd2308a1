"""EndTxn (key 26): a transaction is committed or aborted.

v2 may answer PRODUCER_FENCED, v3 is flexible, v4 may answer TRANSACTION_ABORTABLE, v5 gives the producer a new epoch
for its next transaction, and a new id where there is no epoch left (KIP-890). It is answered once the decision is
certain; markers follow.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway import limits
from barnabas.gateway.inside.transaction_calls import TV0, TV2, call_transactions, fenced_code
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.messages.transactions_pb2 import EndTxnRequest, EndTxnResponse
from barnabas.metadata.leaders import NOBODY_COORDINATES

_FENCING_FROM: Final = 2
_NEW_EPOCH_FROM: Final = 5


async def handle(request: Request) -> Answer:
    body = request.body
    message = EndTxnRequest(
        transactional_id=body.transactional_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        committed=body.committed,
        transaction_version=TV2 if request.version >= _NEW_EPOCH_FROM else TV0,
    )
    response = await call_transactions(
        request,
        body.transactional_id,
        lambda coordinator: coordinator.EndTxn(message, timeout=limits.CALL_TIMEOUT_SECONDS),
        lambda code: EndTxnResponse(error_code=code),
    )
    if response.error_code:
        code = fenced_code(response.error_code, knows_fencing=request.version >= _FENCING_FROM)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": response.producer_id, "producer_epoch": response.producer_epoch}


HANDLER = Handler(api_key=26, versions=(0, 5), handle=handle, unanswered=NOBODY_COORDINATES)
