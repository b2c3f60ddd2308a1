"""InitProducerId (key 22): an id for an idempotent producer.

v2 is flexible, v3 takes the producer's current id and epoch (KIP-360), v4 may answer PRODUCER_FENCED. v6, which asks
for two-phase commit (KIP-939), is not stable in Kafka 4.3.
"""

from __future__ import annotations

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode

_NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1}


async def handle(request: Request) -> Answer:
    if request.body.transactional_id is not None:
        is_empty = not request.body.transactional_id
        code = ErrorCode.invalid_request if is_empty else ErrorCode.transactional_id_authorization_failed
        return {"error_code": code, **_NO_PRODUCER}
    if (request.get("producer_id", -1) == -1) != (request.get("producer_epoch", -1) == -1):
        return {"error_code": ErrorCode.invalid_request, **_NO_PRODUCER}
    # A producer without transactions gets a new id whatever it had: the storage nodes know it by its id alone.
    return {"producer_id": await request.parts.producer_ids.allocate(), "producer_epoch": 0}


HANDLER = Handler(
    api_key=22,
    versions=(0, 5),
    handle=handle,
    unanswered=ErrorCode.coordinator_load_in_progress,
    lacks="Transactional ids are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED until transactions are served.",
)
