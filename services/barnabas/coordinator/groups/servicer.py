"""What a coordinator answers to others: each method hands its request to its handler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.handlers import Handler, answer
from barnabas.coordinator.groups.handlers.complete_transaction import COMPLETE_TRANSACTION
from barnabas.coordinator.groups.handlers.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from barnabas.coordinator.groups.handlers.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
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
from barnabas.coordinator.groups.handlers.txn_offset_commit import TXN_OFFSET_COMMIT
from barnabas.coordinator.runtime.handler import begin
from barnabas.messages import coordinator_pb2 as messages

if TYPE_CHECKING:
    from barnabas.links.begun import Begun


_BEGUN: Final[Mapping[str, Handler[GroupCoordinator, Any, Any]]] = {
    each.name: each for each in (HEARTBEAT, JOIN_GROUP, SYNC_GROUP)
}
"""Calls that may be begun."""


class CoordinatorServicer:
    """Answers every call with a message; its error codes are Kafka's. A cancelled call waits no longer.

    A `links.coordinator_link.CoordinatorService`; owns nothing.
    """

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def begin(self, call: str, request: Any) -> Begun | None:
        """See `CoordinatorService`."""
        handler = _BEGUN.get(call)
        return None if handler is None else begin(handler, self._coordinator, request)

    async def JoinGroup(self, request: messages.JoinGroupRequest) -> messages.JoinGroupResponse:
        return await answer(JOIN_GROUP, self._coordinator, request)

    async def SyncGroup(self, request: messages.SyncGroupRequest) -> messages.SyncGroupResponse:
        return await answer(SYNC_GROUP, self._coordinator, request)

    async def Heartbeat(self, request: messages.HeartbeatRequest) -> messages.HeartbeatResponse:
        return await answer(HEARTBEAT, self._coordinator, request)

    async def LeaveGroup(self, request: messages.LeaveGroupRequest) -> messages.LeaveGroupResponse:
        return await answer(LEAVE_GROUP, self._coordinator, request)

    async def OffsetCommit(self, request: messages.OffsetCommitRequest) -> messages.OffsetCommitResponse:
        return await answer(OFFSET_COMMIT, self._coordinator, request)

    async def OffsetFetch(self, request: messages.OffsetFetchRequest) -> messages.OffsetFetchResponse:
        return await answer(OFFSET_FETCH, self._coordinator, request)

    async def DescribeGroups(
        self, request: messages.DescribeGroupsRequest
    ) -> messages.DescribeGroupsResponse:
        return await answer(DESCRIBE_GROUPS, self._coordinator, request)

    async def ListGroups(self, request: messages.ListGroupsRequest) -> messages.ListGroupsResponse:
        return await answer(LIST_GROUPS, self._coordinator, request)

    async def DeleteGroups(self, request: messages.DeleteGroupsRequest) -> messages.DeleteGroupsResponse:
        return await answer(DELETE_GROUPS, self._coordinator, request)

    async def OffsetDelete(self, request: messages.OffsetDeleteRequest) -> messages.OffsetDeleteResponse:
        return await answer(OFFSET_DELETE, self._coordinator, request)

    async def TxnOffsetCommit(
        self, request: messages.TxnOffsetCommitRequest
    ) -> messages.OffsetCommitResponse:
        return await answer(TXN_OFFSET_COMMIT, self._coordinator, request)

    async def CompleteTransaction(
        self, request: messages.CompleteTransactionRequest
    ) -> messages.CompleteTransactionResponse:
        return await answer(COMPLETE_TRANSACTION, self._coordinator, request)

    async def ConsumerGroupHeartbeat(
        self, request: messages.ConsumerGroupHeartbeatRequest
    ) -> messages.ConsumerGroupHeartbeatResponse:
        return await answer(CONSUMER_GROUP_HEARTBEAT, self._coordinator, request)

    async def ConsumerGroupDescribe(
        self, request: messages.ConsumerGroupDescribeRequest
    ) -> messages.ConsumerGroupDescribeResponse:
        return await answer(CONSUMER_GROUP_DESCRIBE, self._coordinator, request)
