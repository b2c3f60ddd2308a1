"""DescribeGroups (key 15): each group on its own, since one may be another coordinator's.

A group that does not exist is described as Kafka does from version 6 on (KIP-1043): GROUP_ID_NOT_FOUND, a message,
and the state Dead. For earlier versions the gateway leaves out code and message. As a generation may have a megabyte,
the answer may end early (`bytes_max`).
"""

from __future__ import annotations

import asyncio
import contextlib

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.describe import describe_group
from barnabas.coordinator.groups.handlers import Handler
from barnabas.kernel.errors import KafkaError
from barnabas.messages.coordinator_pb2 import DescribeGroupsRequest, DescribeGroupsResponse, GroupDescription


async def _handle(coordinator: GroupCoordinator, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    loads = (_load(coordinator, group_id) for group_id in request.group_ids)
    await asyncio.gather(*loads)
    response, size_bytes = DescribeGroupsResponse(), 0
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


def _describe(coordinator: GroupCoordinator, group_id: str) -> GroupDescription:
    try:
        return describe_group(coordinator.runtime_of(group_id).shard, group_id)
    except KafkaError as error:
        return _refused(group_id, error)


def _refused(group_id: str, error: KafkaError) -> GroupDescription:
    return GroupDescription(error_code=error.code, error_message=error.message, group_id=group_id)


def _refuse(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_refused(group_id, error) for group_id in request.group_ids])


DESCRIBE_GROUPS = Handler("DescribeGroups", _handle, _refuse)
