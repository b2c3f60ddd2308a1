"""What a controller answers to other services: each method is one decision.

Errors become those of links here and only here. A controller that lost the leadership meanwhile does not know what
became of the request; whatever else is wrong is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, TypeVar

from barnabas.controller.active import ActiveController, WrongCluster
from barnabas.controller.controller import Controller
from barnabas.controller.core.client_quotas import alter_client_quotas
from barnabas.controller.core.configs import alter_configs, replace_configs
from barnabas.controller.core.deletion import delete_topics
from barnabas.controller.core.elect_leaders import elect_leaders
from barnabas.controller.core.features import update_features
from barnabas.controller.core.in_sync import alter_partitions
from barnabas.controller.core.leader_epochs import raise_leader_epochs
from barnabas.controller.core.nodes import hand_over
from barnabas.controller.core.partitions import create_partitions
from barnabas.controller.core.producer_ids import allocate_producer_ids
from barnabas.controller.core.reassignments import alter_partition_reassignments
from barnabas.controller.core.replica_reports import report_replicas
from barnabas.controller.core.topics import create_topics
from barnabas.controller.election import LeadershipLost
from barnabas.controller.fanout import StreamEnded
from barnabas.controller.sessions import AlreadyRegistered
from barnabas.controller.writer import Decide, TooManyRequests
from barnabas.kernel.errors import KafkaError
from barnabas.links.errors import LinkError, OutcomeUnknown, Refusal, Refused
from barnabas.messages import controller_pb2 as pb
from barnabas.metadata.history import HistoryRefused

T = TypeVar("T")

_REFUSALS: Final[dict[type[Exception], Refusal]] = {
    TooManyRequests: Refusal.TOO_BUSY,
    AlreadyRegistered: Refusal.ID_TAKEN,
    WrongCluster: Refusal.NEVER_ACCEPTED,
    HistoryRefused: Refusal.OTHER_HISTORY,
}
_LOST: Final = (LeadershipLost, StreamEnded)
_ERRORS: Final[tuple[type[Exception], ...]] = (*_REFUSALS, *_LOST, KafkaError)


class ControllerServicer:
    """Serves `controller` to the other services: a `links.controller_link.ControllerService`. Owns nothing."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._defaults = controller.config.defaults

    async def Watch(self, request: pb.WatchRequest) -> AsyncGenerator[pb.MetadataDelta]:
        try:
            async with aclosing(self._active().watch(request)) as deltas:
                async for delta in deltas:
                    yield delta
        except _ERRORS as error:
            raise _link_error(error) from error

    async def ServiceHeartbeat(self, request: pb.ServiceHeartbeatRequest) -> pb.ServiceHeartbeatResponse:
        if not self._active().heard_from(request):
            raise Refused(Refusal.NOT_REGISTERED, "not registered: begin with Watch")
        return pb.ServiceHeartbeatResponse()

    async def CreateTopics(self, request: pb.CreateTopicsRequest) -> pb.CreateTopicsResponse:
        return await self._submit(
            lambda image: create_topics(image, request, self._defaults, self._new_topic_id)
        )

    async def DeleteTopics(self, request: pb.DeleteTopicsRequest) -> pb.DeleteTopicsResponse:
        enabled = self._defaults.delete_topic_enable
        now_ms = self._controller.now_ms()
        return await self._submit(lambda image: delete_topics(image, request, now_ms=now_ms, enabled=enabled))

    async def CreatePartitions(self, request: pb.CreatePartitionsRequest) -> pb.CreatePartitionsResponse:
        return await self._submit(lambda image: create_partitions(image, request))

    async def IncrementalAlterConfigs(
        self, request: pb.IncrementalAlterConfigsRequest
    ) -> pb.IncrementalAlterConfigsResponse:
        return await self._submit(lambda image: alter_configs(image, request))

    async def AlterConfigs(self, request: pb.AlterConfigsRequest) -> pb.AlterConfigsResponse:
        return await self._submit(lambda image: replace_configs(image, request))

    async def AllocateProducerIds(
        self, request: pb.AllocateProducerIdsRequest
    ) -> pb.AllocateProducerIdsResponse:
        return await self._submit(allocate_producer_ids)

    async def RaiseLeaderEpochs(self, request: pb.RaiseLeaderEpochsRequest) -> pb.RaiseLeaderEpochsResponse:
        return await self._submit(lambda image: raise_leader_epochs(image, request))

    async def AlterPartition(self, request: pb.AlterPartitionRequest) -> pb.AlterPartitionResponse:
        return await self._submit(lambda image: alter_partitions(image, request))

    async def AlterPartitionReassignments(
        self, request: pb.AlterPartitionReassignmentsRequest
    ) -> pb.AlterPartitionReassignmentsResponse:
        return await self._submit(lambda image: alter_partition_reassignments(image, request))

    async def ElectLeaders(self, request: pb.ElectLeadersRequest) -> pb.ElectLeadersResponse:
        return await self._submit(lambda image: elect_leaders(image, request))

    async def HandOver(self, request: pb.HandOverRequest) -> pb.HandOverResponse:
        active = self._active()
        return await self._submit(
            lambda image: hand_over(
                image, request, active.present_nodes(image), came_back=active.just_came_back()
            )
        )

    async def ReportReplicas(self, request: pb.ReportReplicasRequest) -> pb.ReportReplicasResponse:
        return await self._submit(lambda image: report_replicas(image, request))

    async def UnregisterBroker(self, request: pb.UnregisterBrokerRequest) -> pb.UnregisterBrokerResponse:
        try:
            return await self._active().unregister_broker(request)
        except _ERRORS as error:
            raise _link_error(error) from error

    async def AlterClientQuotas(self, request: pb.AlterClientQuotasRequest) -> pb.AlterClientQuotasResponse:
        return await self._submit(lambda image: alter_client_quotas(image, request))

    async def UpdateFeatures(self, request: pb.UpdateFeaturesRequest) -> pb.UpdateFeaturesResponse:
        return await self._submit(lambda image: update_features(image, request))

    async def DescribeQuorum(self, request: pb.DescribeQuorumRequest) -> pb.DescribeQuorumResponse:
        try:
            return await self._controller.describe_quorum(self._active())
        except LeadershipLost as error:
            raise _link_error(error) from error

    def _new_topic_id(self) -> bytes:
        return self._controller.environment.new_id().bytes

    async def _submit(self, decide: Decide[T]) -> T:
        try:
            return await self._active().writer.submit(decide)
        except _ERRORS as error:
            raise _link_error(error) from error

    def _active(self) -> ActiveController:
        """This controller, while it is the active one. Raises Refused."""
        active = self._controller.active
        if active is None:
            address = self._controller.active_address
            where = f"the active controller is {address}" if address else "no controller is active yet"
            raise Refused(Refusal.NOT_ACTIVE, where)
        return active


def _link_error(error: Exception) -> LinkError:
    if isinstance(error, _LOST):
        return OutcomeUnknown(str(error))
    if isinstance(error, KafkaError):
        return Refused(Refusal.NEVER_ACCEPTED, error.message or error.code.name, error.code)
    return Refused(_REFUSALS[type(error)], str(error))
