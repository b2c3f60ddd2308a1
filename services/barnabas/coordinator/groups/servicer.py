"""The gRPC service: each method hands its request to its handler."""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.coordinator import Coordinator
from barnabas.coordinator.groups.handlers import answer
from barnabas.coordinator.groups.handlers.delete_groups import DELETE_GROUPS
from barnabas.coordinator.groups.handlers.describe_groups import DESCRIBE_GROUPS
from barnabas.coordinator.groups.handlers.heartbeat import HEARTBEAT
from barnabas.coordinator.groups.handlers.join_group import JOIN_GROUP
from barnabas.coordinator.groups.handlers.leave_group import LEAVE_GROUP
from barnabas.coordinator.groups.handlers.list_groups import LIST_GROUPS
from barnabas.coordinator.groups.handlers.offset_commit import OFFSET_COMMIT
from barnabas.coordinator.groups.handlers.offset_delete import OFFSET_DELETE
from barnabas.coordinator.groups.handlers.offset_fetch import OFFSET_FETCH
from barnabas.coordinator.groups.handlers.sync_group import SYNC_GROUP
from barnabas.rpc.v1 import coordinator_pb2 as messages
from barnabas.rpc.v1.coordinator_pb2_grpc import GroupCoordinatorServicer


class CoordinatorServicer(GroupCoordinatorServicer):
    """Answers every call with a message; its error codes are Kafka's. A cancelled call waits no longer."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def JoinGroup(self, request: messages.JoinGroupRequest, _: Any) -> messages.JoinGroupResponse:  # noqa: N802
        return await answer(JOIN_GROUP, self._coordinator, request)

    async def SyncGroup(self, request: messages.SyncGroupRequest, _: Any) -> messages.SyncGroupResponse:  # noqa: N802
        return await answer(SYNC_GROUP, self._coordinator, request)

    async def Heartbeat(self, request: messages.HeartbeatRequest, _: Any) -> messages.HeartbeatResponse:  # noqa: N802
        return await answer(HEARTBEAT, self._coordinator, request)

    async def LeaveGroup(self, request: messages.LeaveGroupRequest, _: Any) -> messages.LeaveGroupResponse:  # noqa: N802
        return await answer(LEAVE_GROUP, self._coordinator, request)

    async def OffsetCommit(  # noqa: N802
        self, request: messages.OffsetCommitRequest, _: Any
    ) -> messages.OffsetCommitResponse:
        return await answer(OFFSET_COMMIT, self._coordinator, request)

    async def OffsetFetch(  # noqa: N802
        self, request: messages.OffsetFetchRequest, _: Any
    ) -> messages.OffsetFetchResponse:
        return await answer(OFFSET_FETCH, self._coordinator, request)

    async def DescribeGroups(  # noqa: N802
        self, request: messages.DescribeGroupsRequest, _: Any
    ) -> messages.DescribeGroupsResponse:
        return await answer(DESCRIBE_GROUPS, self._coordinator, request)

    async def ListGroups(  # noqa: N802
        self, request: messages.ListGroupsRequest, _: Any
    ) -> messages.ListGroupsResponse:
        return await answer(LIST_GROUPS, self._coordinator, request)

    async def DeleteGroups(  # noqa: N802
        self, request: messages.DeleteGroupsRequest, _: Any
    ) -> messages.DeleteGroupsResponse:
        return await answer(DELETE_GROUPS, self._coordinator, request)

    async def OffsetDelete(  # noqa: N802
        self, request: messages.OffsetDeleteRequest, _: Any
    ) -> messages.OffsetDeleteResponse:
        return await answer(OFFSET_DELETE, self._coordinator, request)
