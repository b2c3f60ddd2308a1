"""Creating topics on behalf of requests that merely mention them, as Kafka does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import grpc.aio

from barnabas.gateway import limits
from barnabas.gateway.parts import GatewayParts
from barnabas.kernel.errors import ErrorCode
from barnabas.metadata.image import GROUP_METADATA_TOPIC, INTERNAL_TOPICS
from barnabas.rpc.v1.controller_pb2 import CreateTopicsRequest, NewTopic

_DEFAULT = -1


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
    except grpc.aio.AioRpcError:
        return {topic.name: ErrorCode.leader_not_available for topic in request.topics}
    failures: dict[str, ErrorCode] = {}
    for topic in response.topics:
        code = ErrorCode(topic.result.error_code)
        if code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            # Kafka tells a client that merely asked about a topic nothing of replication factors: "not yet".
            is_name = code is ErrorCode.invalid_topic_exception
            failures[topic.name] = code if is_name else ErrorCode.leader_not_available
    await wait_for_topics(parts, (topic.name for topic in response.topics if topic.name not in failures))
    return failures


async def wait_for_topics(parts: GatewayParts, names: Iterable[str]) -> None:
    """Wait until all topics are in this gateway's metadata, or for IMAGE_WAIT_SECONDS."""
    wanted = set(names)
    try:
        async with asyncio.timeout(limits.IMAGE_WAIT_SECONDS):
            await parts.metadata.wait_until(lambda image: wanted <= image.topics.keys())
    except TimeoutError:
        return  # the answer is then what the metadata says


async def ensure_group_metadata_topic(parts: GatewayParts) -> None:
    """Create __consumer_offsets at the first mention of a group, as Kafka's brokers do."""
    if GROUP_METADATA_TOPIC not in parts.metadata.image.topics:
        await create_missing_topics(parts, [GROUP_METADATA_TOPIC])
