"""AddPartitionsToTxn (key 24): partitions become part of a transaction, before anything is produced to them in it.

v2 may answer PRODUCER_FENCED, v3 is flexible, v4 is the form for brokers: several transactions at once, each of which
may only ask whether the partitions are part of it, and an error of the whole; v5 may answer TRANSACTION_ABORTABLE
(KIP-890). Producers of version 2 of transactions do not send it: the partitions' leaders do that for them. Here leaders
ask the coordinator without a gateway; v4 and v5 are served to whoever sends them, as at a Kafka without an authorizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.gateway import limits
from barnabas.gateway.inside.by_coordinator import by_owner
from barnabas.gateway.inside.transaction_calls import TV0, TV2, call_transactions, fenced_code
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.transactions_pb2 import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TransactionPartitions,
    TransactionPartitionsResult,
    TransactionTopic,
)
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC, MetadataImage
from barnabas.metadata.leaders import NOBODY_COORDINATES

_FENCING_FROM: Final = 2
_BATCHED_FROM: Final = 4

_Codes = Mapping[str, dict[int, int]]
"""The error code of each partition, by topic."""


class _Wanted(NamedTuple):
    """One transaction of the request."""

    message: TransactionPartitions
    known: _Codes | None
    """What is answered without asking its coordinator: a partition does not exist, so none is added."""


async def handle(request: Request) -> Answer:
    image, body = request.image, request.body
    if request.version < _BATCHED_FROM:
        wanted = _Wanted(
            TransactionPartitions(
                transactional_id=body.v3_and_below_transactional_id,
                producer_id=body.v3_and_below_producer_id,
                producer_epoch=body.v3_and_below_producer_epoch,
                transaction_version=TV0,
                topics=_topics(body.v3_and_below_topics),
            ),
            _unless_all_exist(image, body.v3_and_below_topics),
        )
        (codes,) = await _add(request, [wanted])
        return {"results_by_topic_v3_and_below": _rows(codes)}
    transactions = [
        _Wanted(
            TransactionPartitions(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                verify_only=each.verify_only,
                transaction_version=TV2,
                topics=_topics(each.topics),
            ),
            _unless_all_exist(image, each.topics),
        )
        for each in body.transactions
    ]
    results = [
        {"transactional_id": each.message.transactional_id, "topic_results": _rows(codes)}
        for each, codes in zip(transactions, await _add(request, transactions), strict=True)
    ]
    return {"error_code": ErrorCode.none, "results_by_transaction": results}


async def _add(request: Request, wanted: Sequence[_Wanted]) -> list[_Codes]:
    """What becomes of each transaction, from its coordinator or known here."""
    codes: list[_Codes] = [{} if each.known is None else each.known for each in wanted]
    asked: dict[str, list[int]] = {}
    for index, each in enumerate(wanted):
        if each.known is None:
            asked.setdefault(each.message.transactional_id, []).append(index)

    async def ask(transactional_ids: list[str]) -> None:
        indexes = [index for each in transactional_ids for index in asked[each]]
        messages = [wanted[index].message for index in indexes]
        for index, message, result in zip(indexes, messages, await _ask(request, messages), strict=True):
            codes[index] = _by_partition(request, message, result.error_codes)

    await asyncio.gather(*map(ask, by_owner(request, TRANSACTION_STATE_TOPIC, asked)))
    return codes


async def _ask(
    request: Request, messages: list[TransactionPartitions]
) -> Sequence[TransactionPartitionsResult]:
    """The coordinator of these transactions adds their partitions, or says whether it has them."""
    response = await call_transactions(
        request,
        messages[0].transactional_id,
        lambda coordinator: coordinator.AddPartitionsToTxn(
            AddPartitionsToTxnRequest(transactions=messages), timeout=limits.CALL_TIMEOUT_SECONDS
        ),
        lambda code: AddPartitionsToTxnResponse(
            transactions=[
                TransactionPartitionsResult(
                    error_codes=[code for topic in message.topics for _ in topic.partitions]
                )
                for message in messages
            ]
        ),
    )
    return response.transactions


def _topics(topics: Sequence[Any]) -> list[TransactionTopic]:
    """Each partition once, however often it is named."""
    named: dict[str, dict[int, None]] = {}
    for topic in topics:
        named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    return [TransactionTopic(name=name, partitions=partitions) for name, partitions in named.items()]


def _unless_all_exist(image: MetadataImage, topics: Sequence[Any]) -> _Codes | None:
    """Where some partition does not exist, none is added; None where all do."""
    codes: dict[str, dict[int, int]] = {}
    is_missing = False
    for topic in topics:
        known = image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        of_topic = codes.setdefault(topic.name, {})
        for index in topic.partitions:
            exists = 0 <= index < count
            is_missing |= not exists
            of_topic[index] = (
                ErrorCode.operation_not_attempted if exists else ErrorCode.unknown_topic_or_partition
            )
    return codes if is_missing else None


def _by_partition(request: Request, message: TransactionPartitions, codes: Sequence[int]) -> _Codes:
    told = iter(codes)
    knows_fencing = request.version >= _FENCING_FROM
    return {
        topic.name: {
            index: fenced_code(next(told), knows_fencing=knows_fencing) for index in topic.partitions
        }
        for topic in message.topics
    }


def _rows(codes: _Codes) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": code} for index, code in partitions.items()
            ],
        }
        for name, partitions in codes.items()
        if partitions
    ]


HANDLER = Handler(api_key=24, versions=(0, 5), handle=handle, unanswered=NOBODY_COORDINATES)
