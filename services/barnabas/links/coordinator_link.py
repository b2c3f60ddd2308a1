"""What gateways and transaction coordinators may ask of a group coordinator, and what it answers.

The methods have their names in coordinator.proto, and their comments there; Kafka's codes are in the answers.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from barnabas.links.begun import Begun
    from barnabas.messages import coordinator_pb2 as pb


class CoordinatorLink(Protocol):
    """One coordinator. Calls fail with a `LinkError`, after `timeout` seconds at the latest; a call that is
    cancelled ends there, too.
    """

    def JoinGroup(
        self, request: pb.JoinGroupRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.JoinGroupResponse]: ...

    def SyncGroup(
        self, request: pb.SyncGroupRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.SyncGroupResponse]: ...

    def Heartbeat(
        self, request: pb.HeartbeatRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.HeartbeatResponse]: ...

    def LeaveGroup(
        self, request: pb.LeaveGroupRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.LeaveGroupResponse]: ...

    def OffsetCommit(
        self, request: pb.OffsetCommitRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.OffsetCommitResponse]: ...

    def OffsetFetch(
        self, request: pb.OffsetFetchRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.OffsetFetchResponse]: ...

    def DescribeGroups(
        self, request: pb.DescribeGroupsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.DescribeGroupsResponse]: ...

    def ListGroups(
        self, request: pb.ListGroupsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.ListGroupsResponse]: ...

    def DeleteGroups(
        self, request: pb.DeleteGroupsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.DeleteGroupsResponse]: ...

    def OffsetDelete(
        self, request: pb.OffsetDeleteRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.OffsetDeleteResponse]: ...

    def TxnOffsetCommit(
        self, request: pb.TxnOffsetCommitRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.OffsetCommitResponse]: ...

    def CompleteTransaction(
        self, request: pb.CompleteTransactionRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.CompleteTransactionResponse]: ...

    def ConsumerGroupHeartbeat(
        self, request: pb.ConsumerGroupHeartbeatRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.ConsumerGroupHeartbeatResponse]: ...

    def ConsumerGroupDescribe(
        self, request: pb.ConsumerGroupDescribeRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.ConsumerGroupDescribeResponse]: ...

    def begin(self, call: str, request: Any, timeout: float) -> Begun | None:
        """Begin the call of this name where the coordinator is in the same process, and can at least decide at once
        what becomes of it. None, with nothing changed, where it has to be awaited as any. Raises Unreachable.
        """
        ...

    async def close(self) -> None:
        """What waits fails."""
        ...


class CoordinatorService(Protocol):
    """A coordinator, to those who serve it to others."""

    async def JoinGroup(self, request: pb.JoinGroupRequest) -> pb.JoinGroupResponse: ...

    async def SyncGroup(self, request: pb.SyncGroupRequest) -> pb.SyncGroupResponse: ...

    async def Heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse: ...

    async def LeaveGroup(self, request: pb.LeaveGroupRequest) -> pb.LeaveGroupResponse: ...

    async def OffsetCommit(self, request: pb.OffsetCommitRequest) -> pb.OffsetCommitResponse: ...

    async def OffsetFetch(self, request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse: ...

    async def DescribeGroups(self, request: pb.DescribeGroupsRequest) -> pb.DescribeGroupsResponse: ...

    async def ListGroups(self, request: pb.ListGroupsRequest) -> pb.ListGroupsResponse: ...

    async def DeleteGroups(self, request: pb.DeleteGroupsRequest) -> pb.DeleteGroupsResponse: ...

    async def OffsetDelete(self, request: pb.OffsetDeleteRequest) -> pb.OffsetDeleteResponse: ...

    async def TxnOffsetCommit(self, request: pb.TxnOffsetCommitRequest) -> pb.OffsetCommitResponse: ...

    async def CompleteTransaction(
        self, request: pb.CompleteTransactionRequest
    ) -> pb.CompleteTransactionResponse: ...

    async def ConsumerGroupHeartbeat(
        self, request: pb.ConsumerGroupHeartbeatRequest
    ) -> pb.ConsumerGroupHeartbeatResponse: ...

    async def ConsumerGroupDescribe(
        self, request: pb.ConsumerGroupDescribeRequest
    ) -> pb.ConsumerGroupDescribeResponse: ...

    def begin(self, call: str, request: Any) -> Begun | None:
        """Decide about a request of the call of this name. None, with nothing changed, where it is to be awaited."""
        ...
