"""Creating topics on behalf of requests that merely mention them, as Kafka does."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from barnabas.gateway import limits
from barnabas.gateway.parts import GatewayParts
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import EARLIEST
from barnabas.links.errors import LinkError
from barnabas.messages.controller_pb2 import CreateTopicsRequest, NewTopic
from barnabas.messages.storage_pb2 import ListOffsetsPartition, ListOffsetsRequest
from barnabas.metadata.image import INTERNAL_TOPICS

_DEFAULT: Final = -1


async def create_missing_topics(parts: GatewayParts, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create topics with the cluster's defaults and wait until they are in the metadata.

    Internal topics get the partitions and settings that they need. Returns the error of each name that could not
    be created; a topic that somebody else created meanwhile is fine.
    """
    request = CreateTopicsRequest(
        topics=[
            NewTopic(
                name=name,
                partition_count=_DEFAULT,
                replication_factor=_DEFAULT,
                internal=name in INTERNAL_TOPICS,
            )
            for name in names
        ]
    )
    try:
        response = await parts.metadata.controller.CreateTopics(request, timeout=limits.CALL_TIMEOUT_SECONDS)
    except LinkError:
        return {topic.name: ErrorCode.leader_not_available for topic in request.topics}
    failures: dict[str, ErrorCode] = {}
    for topic in response.topics:
        code = ErrorCode(topic.result.error_code)
        if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            # Kafka tells a client that merely asked about a topic nothing of replication factors: "not yet".
            is_name = code is ErrorCode.invalid_topic_exception
            failures[topic.name] = code if is_name else ErrorCode.leader_not_available
    there = [topic.name for topic in response.topics if topic.name not in failures]
    await wait_for_topics(parts, there)
    # No client writes to internal topics or reads them at once: their many partitions open meanwhile.
    await wait_for_leaders(parts, (name for name in there if name not in INTERNAL_TOPICS))
    return failures


async def wait_for_topics(parts: GatewayParts, names: Iterable[str]) -> None:
    """Wait until all topics are in this gateway's metadata, or for IMAGE_WAIT_SECONDS."""
    wanted = set(names)
    try:
        async with asyncio.timeout(limits.IMAGE_WAIT_SECONDS):
            await parts.metadata.wait_until(lambda image: all(name in image.topics for name in wanted))
    except TimeoutError:
        return  # the answer is then what the metadata says


async def wait_for_leaders(
    parts: GatewayParts, names: Iterable[str], seconds: float = limits.IMAGE_WAIT_SECONDS
) -> None:
    """Wait until the leaders of the topics' partitions have opened them, or for `seconds` (not at all for 0 or less).

    A storage node may hear of a topic after this gateway did, and then creates its logs. It answers the question for
    an offset when that is done, or OPENING_WAIT_MS_MAX after it has begun; what the answer says does not matter.
    """
    if seconds <= 0:
        return
    image = parts.metadata.image
    by_leader: defaultdict[int, list[ListOffsetsPartition]] = defaultdict(list)
    for topic in (image.topics[name] for name in names if name in image.topics):
        for record in topic.partitions:
            asked = ListOffsetsPartition(
                topic_id=topic.topic_id,
                partition=record.partition,
                current_leader_epoch=-1,
                timestamp_ms=EARLIEST,
            )
            by_leader[record.leader].append(asked)
    await asyncio.gather(
        *(_wait_for_leader(parts, leader, by_leader[leader], seconds) for leader in by_leader)
    )


async def _wait_for_leader(
    parts: GatewayParts, leader: int, asked: list[ListOffsetsPartition], seconds: float
) -> None:
    link = parts.links.storage(leader)
    if link is None:
        return  # no leader yet, or one that is gone: nobody to wait for
    try:
        await link.ListOffsets(ListOffsetsRequest(partitions=asked), timeout=seconds)
    except LinkError:
        return  # the client's own request will tell


async def ensure_internal_topic(parts: GatewayParts, topic: str) -> None:
    """Create __consumer_offsets at the first mention of a group, and __transaction_state at that of a transactional id,
    as Kafka's brokers do.
    """
    if topic not in parts.metadata.image.topics:
        await create_missing_topics(parts, [topic])
