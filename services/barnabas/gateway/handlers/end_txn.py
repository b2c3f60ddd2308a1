"""EndTxn (key 26): a transaction is committed or aborted.

v2 may answer PRODUCER_FENCED, v3 is flexible, v4 may answer TRANSACTION_ABORTABLE, v5 gives the producer a new epoch
for its next transaction, and a new id where there is no epoch left (KIP-890). It is answered once the decision is
certain; markers follow.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.gateway.inside.coordinator_call import CoordinatorCall
from barnabas.gateway.inside.owners import TRANSACTIONS
from barnabas.gateway.inside.transaction_calls import TV0, TV2, fenced_code
from barnabas.gateway.request import Handler, Request
from barnabas.messages.transactions_pb2 import EndTxnRequest, EndTxnResponse
from barnabas.metadata.leaders import NOBODY_COORDINATES

_FENCING_FROM: Final = 2
_NEW_EPOCH_FROM: Final = 5


def _message(request: Request) -> EndTxnRequest:
    body = request.body
    return EndTxnRequest(
        transactional_id=body.transactional_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        committed=body.committed,
        transaction_version=TV2 if request.version >= _NEW_EPOCH_FROM else TV0,
    )


def _answer(request: Request, response: EndTxnResponse) -> dict[str, Any]:
    if response.error_code:
        code = fenced_code(response.error_code, knows_fencing=request.version >= _FENCING_FROM)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": response.producer_id, "producer_epoch": response.producer_epoch}


CALL: Final = CoordinatorCall(
    "EndTxn", TRANSACTIONS, _message, _answer, refused=lambda _, code: EndTxnResponse(error_code=code)
)

HANDLER = Handler(api_key=26, versions=(0, 5), handle=CALL.handle, call=CALL, unanswered=NOBODY_COORDINATES)
