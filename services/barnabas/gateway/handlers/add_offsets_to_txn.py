"""AddOffsetsToTxn (key 25): a group's offsets become part of a transaction, before they are committed in it.

v2 may answer PRODUCER_FENCED, v3 is flexible, v4 may answer TRANSACTION_ABORTABLE (KIP-890). Producers of version 2 of
transactions do not send it: TxnOffsetCommit does that for them.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway import limits
from barnabas.gateway.inside.owners import TRANSACTIONS
from barnabas.gateway.inside.topic_creation import ensure_internal_topic
from barnabas.gateway.inside.transaction_calls import TV0, fenced_code
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.limits import CONCURRENT_WAIT_MS
from barnabas.messages.transactions_pb2 import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TransactionPartitions,
    TransactionPartitionsResult,
    TransactionTopic,
)
from barnabas.metadata.coordinators import owning_partition
from barnabas.metadata.image import GROUP_METADATA_TOPIC
from barnabas.metadata.leaders import NOBODY_COORDINATES

_FENCING_FROM: Final = 2


async def handle(request: Request) -> Answer:
    body = request.body
    # A producer may be the first to speak of a group, before anybody has looked for its coordinator.
    await ensure_internal_topic(request.parts, GROUP_METADATA_TOPIC)
    offsets = owning_partition(request.image, GROUP_METADATA_TOPIC, body.group_id)
    if offsets is None:
        return {"error_code": NOBODY_COORDINATES}
    added = TransactionPartitions(
        transactional_id=body.transactional_id,
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        transaction_version=TV0,
        wait_ms=CONCURRENT_WAIT_MS,
        topics=[TransactionTopic(name=GROUP_METADATA_TOPIC, partitions=[offsets.partition])],
    )
    message = AddPartitionsToTxnRequest(transactions=[added])
    response = await TRANSACTIONS.ask(
        request,
        body.transactional_id,
        lambda coordinator: coordinator.AddPartitionsToTxn(message, timeout=limits.CALL_TIMEOUT_SECONDS),
        lambda code: AddPartitionsToTxnResponse(
            transactions=[TransactionPartitionsResult(error_codes=[code])]
        ),
    )
    code = response.transactions[0].error_codes[0]
    if code == ErrorCode.unknown_topic_or_partition:
        # The topic was created a moment ago, and the coordinator has not heard of it. Clients do not expect that here.
        code = NOBODY_COORDINATES
    return {"error_code": fenced_code(code, knows_fencing=request.version >= _FENCING_FROM)}


HANDLER = Handler(api_key=25, versions=(0, 4), handle=handle, unanswered=NOBODY_COORDINATES)
