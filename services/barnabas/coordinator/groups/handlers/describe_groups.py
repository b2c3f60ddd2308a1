"""DescribeGroups (key 15): each group on its own, since one may be another coordinator's.

A group that does not exist is described as Kafka does from version 6 on (KIP-1043): GROUP_ID_NOT_FOUND, a message,
and the state Dead. For earlier versions the gateway leaves out code and message.
"""

from __future__ import annotations

import asyncio

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.describe import describe_group
from barnabas.coordinator.groups.handlers import Handler
from barnabas.kernel.errors import KafkaError
from barnabas.messages.coordinator_pb2 import DescribeGroupsRequest, DescribeGroupsResponse, GroupDescription


async def _handle(coordinator: GroupCoordinator, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    described = (_describe(coordinator, group_id) for group_id in request.group_ids)
    return DescribeGroupsResponse(groups=await asyncio.gather(*described))


async def _describe(coordinator: GroupCoordinator, group_id: str) -> GroupDescription:
    try:
        runtime = coordinator.runtime_of(group_id)
        await runtime.first_load()
        return describe_group(runtime.shard, group_id)
    except KafkaError as error:
        return _refused(group_id, error)


def _refused(group_id: str, error: KafkaError) -> GroupDescription:
    return GroupDescription(error_code=error.code, error_message=error.message, group_id=group_id)


def _refuse(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_refused(group_id, error) for group_id in request.group_ids])


DESCRIBE_GROUPS = Handler("DescribeGroups", _handle, _refuse)
