"""What a storage node answers to others: the handlers of appends and fetches, and a method for each other call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from barnabas.links.storage_messages import ReplicaFetched
from barnabas.messages.storage_pb2 import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ReplicaPositionsFrame,
)
from barnabas.storage.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from barnabas.storage.handlers.append import AppendHandler
from barnabas.storage.handlers.delete_records import DeleteRecordsHandler
from barnabas.storage.handlers.describe_log_dirs import DescribeLogDirsHandler
from barnabas.storage.handlers.describe_producers import DescribeProducersHandler
from barnabas.storage.handlers.fetch import FetchHandler
from barnabas.storage.handlers.list_offsets import ListOffsetsHandler
from barnabas.storage.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.storage.replication.follower_session import ReplicationHandler


class StorageServicer:
    """Owns nothing; a `links.storage_link.StorageService`."""

    def __init__(
        self,
        appends: AppendHandler,
        fetches: FetchHandler,
        replication: ReplicationHandler,
        list_offsets: ListOffsetsHandler,
        offset_for_leader_epoch: OffsetForLeaderEpochHandler,
        delete_records: DeleteRecordsHandler,
        alter_replica_log_dirs: AlterReplicaLogDirsHandler,
        describe_log_dirs: DescribeLogDirsHandler,
        describe_producers: DescribeProducersHandler,
    ) -> None:
        self.appends = appends
        self.fetches = fetches
        self._replication = replication
        self._list_offsets = list_offsets
        self._offset_for_leader_epoch = offset_for_leader_epoch
        self._delete_records = delete_records
        self._alter_replica_log_dirs = alter_replica_log_dirs
        self._describe_log_dirs = describe_log_dirs
        self._describe_producers = describe_producers

    def Replicate(
        self, positions: AsyncIterator[ReplicaPositionsFrame]
    ) -> AsyncGenerator[Sequence[ReplicaFetched]]:
        return self._replication.follow(positions)

    async def ListOffsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return await self._list_offsets.handle(request)

    async def OffsetForLeaderEpoch(
        self, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        return self._offset_for_leader_epoch.handle(request)

    async def DeleteRecords(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        return await self._delete_records.handle(request)

    async def AlterReplicaLogDirs(self, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        return await self._alter_replica_log_dirs.handle(request)

    async def DescribeLogDirs(self, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        return await self._describe_log_dirs.handle(request)

    async def DescribeProducers(self, request: DescribeProducersRequest) -> DescribeProducersResponse:
        return self._describe_producers.handle(request)
