"""The controller's gRPC methods: each is one decision; errors become gRPC status codes here and only here.

FAILED_PRECONDITION: not the active controller. UNAVAILABLE: it lost the leadership, the outcome is not known.
INVALID_ARGUMENT: will never be accepted. ALREADY_EXISTS: another process has the id. NOT_FOUND: not registered.
RESOURCE_EXHAUSTED: later.
DATA_LOSS: these metadata do not continue those that the caller has followed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from barnabas.controller.active import WrongCluster
from barnabas.controller.controller import Controller
from barnabas.controller.core.client_quotas import alter_client_quotas
from barnabas.controller.core.configs import alter_configs, replace_configs
from barnabas.controller.core.deletion import delete_topics
from barnabas.controller.core.features import update_features
from barnabas.controller.core.leader_epochs import raise_leader_epochs
from barnabas.controller.core.partitions import create_partitions
from barnabas.controller.core.producer_ids import allocate_producer_ids
from barnabas.controller.core.topics import create_topics
from barnabas.controller.election import LeadershipLost
from barnabas.controller.fanout import StreamEnded
from barnabas.controller.sessions import AlreadyRegistered
from barnabas.controller.writer import Decide, TooManyRequests
from barnabas.kernel.errors import KafkaError
from barnabas.metadata.history import HistoryRefused
from barnabas.rpc.v1 import controller_pb2 as pb
from barnabas.rpc.v1.controller_pb2_grpc import ControllerServicer

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]

_STATUS: Final[dict[type[Exception], grpc.StatusCode]] = {
    LeadershipLost: grpc.StatusCode.UNAVAILABLE,
    StreamEnded: grpc.StatusCode.UNAVAILABLE,
    TooManyRequests: grpc.StatusCode.RESOURCE_EXHAUSTED,
    AlreadyRegistered: grpc.StatusCode.ALREADY_EXISTS,
    WrongCluster: grpc.StatusCode.INVALID_ARGUMENT,
    HistoryRefused: grpc.StatusCode.DATA_LOSS,
    KafkaError: grpc.StatusCode.INVALID_ARGUMENT,
}
_ERRORS: Final = tuple(_STATUS)


class Servicer(ControllerServicer):
    """Serves `controller` to the other services. Owns nothing."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._defaults = controller.config.defaults

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.MetadataDelta]:
        active = self._controller.active
        if active is None:
            await self._refuse(context)
        else:
            try:
                async for delta in active.watch(request):
                    yield delta
            except _ERRORS as error:
                await context.abort(_STATUS[type(error)], str(error))

    async def ServiceHeartbeat(  # noqa: N802
        self, request: pb.ServiceHeartbeatRequest, context: Context
    ) -> pb.ServiceHeartbeatResponse:
        active = self._controller.active
        if active is None:
            await self._refuse(context)
        assert active is not None
        if not active.heard_from(request):
            await context.abort(grpc.StatusCode.NOT_FOUND, "not registered: begin with Watch")
        return pb.ServiceHeartbeatResponse()

    async def CreateTopics(  # noqa: N802
        self, request: pb.CreateTopicsRequest, context: Context
    ) -> pb.CreateTopicsResponse:
        return await self._submit(
            context, lambda image: create_topics(image, request, self._defaults, self._new_topic_id)
        )

    async def DeleteTopics(  # noqa: N802
        self, request: pb.DeleteTopicsRequest, context: Context
    ) -> pb.DeleteTopicsResponse:
        enabled = self._defaults.delete_topic_enable
        now_ms = self._controller.now_ms()
        return await self._submit(
            context, lambda image: delete_topics(image, request, now_ms=now_ms, enabled=enabled)
        )

    async def CreatePartitions(  # noqa: N802
        self, request: pb.CreatePartitionsRequest, context: Context
    ) -> pb.CreatePartitionsResponse:
        return await self._submit(context, lambda image: create_partitions(image, request))

    async def IncrementalAlterConfigs(  # noqa: N802
        self, request: pb.IncrementalAlterConfigsRequest, context: Context
    ) -> pb.IncrementalAlterConfigsResponse:
        return await self._submit(context, lambda image: alter_configs(image, request))

    async def AlterConfigs(  # noqa: N802
        self, request: pb.AlterConfigsRequest, context: Context
    ) -> pb.AlterConfigsResponse:
        return await self._submit(context, lambda image: replace_configs(image, request))

    async def AllocateProducerIds(  # noqa: N802
        self, request: pb.AllocateProducerIdsRequest, context: Context
    ) -> pb.AllocateProducerIdsResponse:
        return await self._submit(context, allocate_producer_ids)

    async def RaiseLeaderEpochs(  # noqa: N802
        self, request: pb.RaiseLeaderEpochsRequest, context: Context
    ) -> pb.RaiseLeaderEpochsResponse:
        return await self._submit(context, lambda image: raise_leader_epochs(image, request))

    async def AlterClientQuotas(  # noqa: N802
        self, request: pb.AlterClientQuotasRequest, context: Context
    ) -> pb.AlterClientQuotasResponse:
        return await self._submit(context, lambda image: alter_client_quotas(image, request))

    async def UpdateFeatures(  # noqa: N802
        self, request: pb.UpdateFeaturesRequest, context: Context
    ) -> pb.UpdateFeaturesResponse:
        return await self._submit(context, lambda image: update_features(image, request))

    async def DescribeQuorum(  # noqa: N802
        self, request: pb.DescribeQuorumRequest, context: Context
    ) -> pb.DescribeQuorumResponse:
        active = self._controller.active
        if active is None:
            await self._refuse(context)
        assert active is not None
        try:
            return await self._controller.describe_quorum(active)
        except LeadershipLost as error:
            await context.abort(_STATUS[LeadershipLost], str(error))
            raise

    def _new_topic_id(self) -> bytes:
        return self._controller.environment.new_id().bytes

    async def _submit(self, context: Context, decide: Decide[T]) -> T:
        active = self._controller.active
        if active is None:
            await self._refuse(context)
        assert active is not None
        try:
            return await active.writer.submit(decide)
        except _ERRORS as error:
            await context.abort(_STATUS[type(error)], str(error))
            raise

    async def _refuse(self, context: Context) -> None:
        address = self._controller.active_address
        where = f"the active controller is {address}" if address else "no controller is active yet"
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, where)
