"""TxnOffsetCommit (key 28): a group's progress as part of a transaction, which counts once that is committed.

v2 adds leader epochs (KIP-320) and may answer COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296), v3 who commits (KIP-447), v4
may answer TRANSACTION_ABORTABLE, v5 makes the offsets part of the transaction by itself (KIP-890). Partitions that do
not exist are refused here, the others go to the group's coordinator, which asks that of the transaction.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway import limits
from barnabas.gateway.commits import Commits, codes_of
from barnabas.gateway.inside.owners import GROUPS
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import OffsetCommitResponse, TxnOffsetCommitRequest
from barnabas.metadata.leaders import NOBODY_COORDINATES

_LOADING_FROM: Final = 2
_ABORTABLE_FROM: Final = 4
_ADDED_FROM: Final = 5
_NO_GENERATION: Final = -1


async def handle(request: Request) -> Answer:
    body = request.body
    commits = Commits(request.image, body.topics)
    response = OffsetCommitResponse()
    if commits.existing:
        message = TxnOffsetCommitRequest(
            transactional_id=body.transactional_id,
            group_id=body.group_id,
            producer_id=body.producer_id,
            producer_epoch=body.producer_epoch,
            generation_id=request.get("generation_id", _NO_GENERATION),
            member_id=request.get("member_id", ""),
            group_instance_id=request.get("group_instance_id", None),
            adds_partitions=request.version >= _ADDED_FROM,
            topics=commits.existing,
        )
        response = await GROUPS.ask(
            request,
            body.group_id,
            lambda coordinator: coordinator.TxnOffsetCommit(message, timeout=limits.CALL_TIMEOUT_SECONDS),
            commits.refused,
        )
    return {"topics": commits.rows([_known_code(request, code) for code in codes_of(response)])}


def _known_code(request: Request, code: int) -> int:
    """What the client's version knows instead."""
    if code == ErrorCode.coordinator_load_in_progress and request.version < _LOADING_FROM:
        return ErrorCode.coordinator_not_available
    if code == ErrorCode.transaction_abortable and request.version < _ABORTABLE_FROM:
        return ErrorCode.invalid_txn_state
    return code


HANDLER = Handler(api_key=28, versions=(0, 5), handle=handle, unanswered=NOBODY_COORDINATES)
