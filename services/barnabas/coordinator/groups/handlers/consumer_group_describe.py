"""ConsumerGroupDescribe (key 69): each group on its own, since one may be another coordinator's.

As a large group may have a megabyte, the answer may end early (`bytes_max`).
"""

from __future__ import annotations

import asyncio
import contextlib

from barnabas.coordinator.groups.consumer.core.describe import describe_consumer_group
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.handlers import Handler, check_consumer_protocol
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescription,
)


async def _handle(
    coordinator: GroupCoordinator, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    check_consumer_protocol(coordinator.config)
    await asyncio.gather(*(_load(coordinator, group_id) for group_id in request.group_ids))
    response, size_bytes = ConsumerGroupDescribeResponse(), 0
    for group_id in request.group_ids:
        described = _describe(coordinator, group_id)
        response.groups.append(described)
        size_bytes += described.ByteSize()
        if 0 < request.bytes_max <= size_bytes:
            break
    return response


async def _load(coordinator: GroupCoordinator, group_id: str) -> None:
    with contextlib.suppress(KafkaError):  # which `_describe` meets again
        await coordinator.runtime_of(group_id).load_times.wait_for_first()


def _describe(coordinator: GroupCoordinator, group_id: str) -> ConsumerGroupDescription:
    if not group_id:
        return ConsumerGroupDescription(error_code=ErrorCode.invalid_group_id)
    try:
        return describe_consumer_group(coordinator.runtime_of(group_id).shard, group_id)
    except KafkaError as error:
        return _refused(group_id, error)


def _refused(group_id: str, error: KafkaError) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(error_code=error.code, error_message=error.message, group_id=group_id)


def _refuse(request: ConsumerGroupDescribeRequest, error: KafkaError) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[_refused(group_id, error) for group_id in request.group_ids])


CONSUMER_GROUP_DESCRIBE = Handler("ConsumerGroupDescribe", _handle, _refuse)
