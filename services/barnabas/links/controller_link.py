"""What every other service may ask of a controller, and what a controller answers.

The methods have their names in controller.proto, and their comments there. A call goes to the controller at one
address; one that is not the active one refuses with `NOT_ACTIVE`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.messages import controller_pb2 as pb


class ControllerLink(Protocol):
    """One controller. Calls fail with a `LinkError`, after `timeout` seconds at the latest."""

    def Watch(self, request: pb.WatchRequest) -> AsyncGenerator[pb.MetadataDelta]:
        """The metadata as they change, until the controller ends the stream; closing the generator ends it, too.

        The service that registers with it does so for as long as it is open.
        """
        ...

    def ServiceHeartbeat(
        self, request: pb.ServiceHeartbeatRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.ServiceHeartbeatResponse]: ...

    def CreateTopics(
        self, request: pb.CreateTopicsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.CreateTopicsResponse]: ...

    def DeleteTopics(
        self, request: pb.DeleteTopicsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.DeleteTopicsResponse]: ...

    def CreatePartitions(
        self, request: pb.CreatePartitionsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.CreatePartitionsResponse]: ...

    def IncrementalAlterConfigs(
        self, request: pb.IncrementalAlterConfigsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.IncrementalAlterConfigsResponse]: ...

    def AlterConfigs(
        self, request: pb.AlterConfigsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.AlterConfigsResponse]: ...

    def AllocateProducerIds(
        self, request: pb.AllocateProducerIdsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.AllocateProducerIdsResponse]: ...

    def RaiseLeaderEpochs(
        self, request: pb.RaiseLeaderEpochsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.RaiseLeaderEpochsResponse]: ...

    def AlterPartition(
        self, request: pb.AlterPartitionRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.AlterPartitionResponse]: ...

    def AlterPartitionReassignments(
        self, request: pb.AlterPartitionReassignmentsRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.AlterPartitionReassignmentsResponse]: ...

    def ElectLeaders(
        self, request: pb.ElectLeadersRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.ElectLeadersResponse]: ...

    def HandOver(
        self, request: pb.HandOverRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.HandOverResponse]: ...

    def UnregisterBroker(
        self, request: pb.UnregisterBrokerRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.UnregisterBrokerResponse]: ...

    def ReportReplicas(
        self, request: pb.ReportReplicasRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.ReportReplicasResponse]: ...

    def AlterClientQuotas(
        self, request: pb.AlterClientQuotasRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.AlterClientQuotasResponse]: ...

    def UpdateFeatures(
        self, request: pb.UpdateFeaturesRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.UpdateFeaturesResponse]: ...

    def DescribeQuorum(
        self, request: pb.DescribeQuorumRequest, *, timeout: float | None = None
    ) -> Awaitable[pb.DescribeQuorumResponse]: ...

    async def close(self) -> None:
        """What waits fails."""
        ...


class ControllerService(Protocol):
    """A controller, to those who serve it to others. It refuses by raising a `LinkError`."""

    def Watch(self, request: pb.WatchRequest) -> AsyncGenerator[pb.MetadataDelta]: ...

    async def ServiceHeartbeat(self, request: pb.ServiceHeartbeatRequest) -> pb.ServiceHeartbeatResponse: ...

    async def CreateTopics(self, request: pb.CreateTopicsRequest) -> pb.CreateTopicsResponse: ...

    async def DeleteTopics(self, request: pb.DeleteTopicsRequest) -> pb.DeleteTopicsResponse: ...

    async def CreatePartitions(self, request: pb.CreatePartitionsRequest) -> pb.CreatePartitionsResponse: ...

    async def IncrementalAlterConfigs(
        self, request: pb.IncrementalAlterConfigsRequest
    ) -> pb.IncrementalAlterConfigsResponse: ...

    async def AlterConfigs(self, request: pb.AlterConfigsRequest) -> pb.AlterConfigsResponse: ...

    async def AllocateProducerIds(
        self, request: pb.AllocateProducerIdsRequest
    ) -> pb.AllocateProducerIdsResponse: ...

    async def RaiseLeaderEpochs(
        self, request: pb.RaiseLeaderEpochsRequest
    ) -> pb.RaiseLeaderEpochsResponse: ...

    async def AlterPartition(self, request: pb.AlterPartitionRequest) -> pb.AlterPartitionResponse: ...

    async def AlterPartitionReassignments(
        self, request: pb.AlterPartitionReassignmentsRequest
    ) -> pb.AlterPartitionReassignmentsResponse: ...

    async def ElectLeaders(self, request: pb.ElectLeadersRequest) -> pb.ElectLeadersResponse: ...

    async def HandOver(self, request: pb.HandOverRequest) -> pb.HandOverResponse: ...

    async def UnregisterBroker(self, request: pb.UnregisterBrokerRequest) -> pb.UnregisterBrokerResponse: ...

    async def ReportReplicas(self, request: pb.ReportReplicasRequest) -> pb.ReportReplicasResponse: ...

    async def AlterClientQuotas(
        self, request: pb.AlterClientQuotasRequest
    ) -> pb.AlterClientQuotasResponse: ...

    async def UpdateFeatures(self, request: pb.UpdateFeaturesRequest) -> pb.UpdateFeaturesResponse: ...

    async def DescribeQuorum(self, request: pb.DescribeQuorumRequest) -> pb.DescribeQuorumResponse: ...
