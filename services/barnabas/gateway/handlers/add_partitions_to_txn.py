"""AddPartitionsToTxn (key 24): partitions become part of a transaction, before anything is produced to them in it.

v2 may answer PRODUCER_FENCED, v3 is flexible, v4 is the form for brokers: several transactions at once, each of which
may only ask whether the partitions are part of it, and an error of the whole; v5 may answer TRANSACTION_ABORTABLE
(KIP-890). Producers of version 2 of transactions do not send it: the partitions' leaders do that for them. Here leaders
ask the coordinator without a gateway; v4 and v5 are served to whoever sends them, as at a Kafka without an authorizer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from barnabas.gateway import limits
from barnabas.gateway.inside.by_coordinator import by_owner
from barnabas.gateway.inside.owners import TRANSACTIONS
from barnabas.gateway.inside.transaction_calls import TV0, TV2, fenced_code
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.gathering import gather
from barnabas.links.limits import CONCURRENT_WAIT_MS
from barnabas.messages.transactions_pb2 import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TransactionPartitions,
    TransactionPartitionsResult,
    TransactionTopic,
)
from barnabas.metadata.image import INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC, MetadataImage
from barnabas.metadata.leaders import NOBODY_COORDINATES

_FENCING_FROM: Final = 2
_BATCHED_FROM: Final = 4

_Codes = dict[str, dict[int, int]]
"""The error code of each partition, by topic."""


class _Wanted(NamedTuple):
    """One transaction of the request."""

    message: TransactionPartitions
    topics: Sequence[Any]
    """As the request names them."""
    refused: _Codes | None
    """Where some partition may not be added, none is, and its coordinator is not asked."""


async def handle(request: Request) -> Answer:
    image, body = request.image, request.body
    if request.version < _BATCHED_FROM:
        topics = body.v3_and_below_topics
        message = TransactionPartitions(
            transactional_id=body.v3_and_below_transactional_id,
            producer_id=body.v3_and_below_producer_id,
            producer_epoch=body.v3_and_below_producer_epoch,
            transaction_version=TV0,
            wait_ms=CONCURRENT_WAIT_MS,
            topics=_distinct(topics),
        )
        refused = _unless_all_may_be_added(image, topics, of_client=True)
        (rows,) = await _add(request, [_Wanted(message, topics, refused)])
        return {"results_by_topic_v3_and_below": rows}
    wanted = [
        _Wanted(
            TransactionPartitions(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                verify_only=each.verify_only,
                transaction_version=TV2,
                topics=_distinct(each.topics),
            ),
            each.topics,
            _unless_all_may_be_added(image, each.topics, of_client=False),
        )
        for each in body.transactions
    ]
    results = [
        {"transactional_id": each.message.transactional_id, "topic_results": rows}
        for each, rows in zip(wanted, await _add(request, wanted), strict=True)
    ]
    return {"error_code": ErrorCode.none, "results_by_transaction": results}


async def _add(request: Request, wanted: Sequence[_Wanted]) -> list[list[dict[str, Any]]]:
    """The topics of the answer for each transaction, from its coordinator or known here."""
    rows = [[] if each.refused is None else _refused_rows(each.refused) for each in wanted]
    asked: dict[str, list[int]] = {}
    for index, each in enumerate(wanted):
        if each.refused is None:
            asked.setdefault(each.message.transactional_id, []).append(index)

    loop = asyncio.get_running_loop()
    deadline = loop.time() + limits.CALL_TIMEOUT_SECONDS

    async def ask(transactional_ids: list[str]) -> None:
        """So many at a time that the coordinator and this service serve others in between."""
        indexes = deque(index for each in transactional_ids for index in asked[each])
        seconds = limits.CALL_TIMEOUT_SECONDS
        while indexes:
            some = [indexes.popleft() for _ in range(min(len(indexes), limits.KEYS_AT_A_TIME))]
            results = await _ask(request, [wanted[index].message for index in some], seconds)
            for index, result in zip(some, results, strict=True):
                codes = _by_partition(request, wanted[index].message, result.error_codes)
                rows[index] = [_row(topic.name, topic.partitions, codes) for topic in wanted[index].topics]
            if indexes:
                await asyncio.sleep(0)  # where no coordinator is known, nothing was waited for
            seconds = deadline - loop.time()

    await gather(map(ask, by_owner(request, TRANSACTION_STATE_TOPIC, asked)))
    return rows


async def _ask(
    request: Request, messages: list[TransactionPartitions], seconds: float
) -> Sequence[TransactionPartitionsResult]:
    """The coordinator of these transactions adds their partitions, or says whether it has them; without time for that
    they are refused as where it is silent."""
    if seconds <= 0:
        return _refused_all(messages, NOBODY_COORDINATES).transactions
    response = await TRANSACTIONS.ask(
        request,
        messages[0].transactional_id,
        lambda coordinator: coordinator.AddPartitionsToTxn(
            AddPartitionsToTxnRequest(transactions=messages), timeout=seconds
        ),
        lambda code: _refused_all(messages, code),
    )
    return response.transactions


def _refused_all(messages: list[TransactionPartitions], code: ErrorCode) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        transactions=[
            TransactionPartitionsResult(
                error_codes=[code for topic in message.topics for _ in topic.partitions]
            )
            for message in messages
        ]
    )


def _distinct(topics: Sequence[Any]) -> list[TransactionTopic]:
    """Each partition once, however often it is named."""
    named: dict[str, dict[int, None]] = {}
    for topic in topics:
        named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    return [TransactionTopic(name=name, partitions=partitions) for name, partitions in named.items()]


def _unless_all_may_be_added(
    image: MetadataImage, topics: Sequence[Any], *, of_client: bool
) -> _Codes | None:
    """Where some partition does not exist, or is internal and a client's, none is added; None where all may be."""
    codes: _Codes = {}
    for topic in topics:
        known = image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        of_topic = codes.setdefault(topic.name, {})
        for index in topic.partitions:
            if of_client and topic.name in INTERNAL_TOPICS:
                of_topic[index] = ErrorCode.topic_authorization_failed
            elif 0 <= index < count:
                of_topic[index] = ErrorCode.operation_not_attempted
            else:
                of_topic[index] = ErrorCode.unknown_topic_or_partition
    is_refused = any(
        code != ErrorCode.operation_not_attempted for of_topic in codes.values() for code in of_topic.values()
    )
    return codes if is_refused else None


def _by_partition(request: Request, message: TransactionPartitions, codes: Sequence[int]) -> _Codes:
    told = iter(codes)
    knows_fencing = request.version >= _FENCING_FROM
    return {
        topic.name: {
            index: fenced_code(next(told), knows_fencing=knows_fencing) for index in topic.partitions
        }
        for topic in message.topics
    }


def _refused_rows(codes: _Codes) -> list[dict[str, Any]]:
    return [_row(name, of_topic, codes) for name, of_topic in codes.items() if of_topic]


def _row(name: str, partitions: Iterable[int], codes: _Codes) -> dict[str, Any]:
    return {
        "name": name,
        "results_by_partition": [
            {"partition_index": index, "partition_error_code": codes[name][index]} for index in partitions
        ],
    }


HANDLER = Handler(api_key=24, versions=(0, 5), handle=handle, unanswered=NOBODY_COORDINATES)
