"""The storage node of this process, as others in it see it: to the gateway it is a `links.local_storage.LocalStorage`,
to a coordinator a link like any.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from barnabas.host.local_calls import failing_as_elsewhere
from barnabas.host.local_link import LocalAppends, LocalFetches
from barnabas.links.errors import Unreachable
from barnabas.links.local_storage import Placed, Read, ReadWait, Sought

if TYPE_CHECKING:
    from barnabas.links.storage_link import AnswerRoom, NodeHere
    from barnabas.messages.storage_pb2 import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
        AppendTransaction,
        CoordinatorIdentity,
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
        PartitionAppend,
    )
    from barnabas.storage.replica.replicas import Replicas
    from barnabas.storage.service import HandOver
    from barnabas.storage.servicer import StorageServicer

ResponseT = TypeVar("ResponseT")


class LocalNode:
    """What a `StorageConnection` is to a node elsewhere: `appends`, `fetches`, and the calls of storage.proto.

    While the node does not serve yet, or no longer, it is a node that cannot be reached.
    """

    address = "in this process"

    def __init__(self, node_id: int, *, reads_for_clients: bool = True) -> None:
        self.node_id = node_id
        self.appends = LocalAppends()
        self.fetches = LocalFetches(reads_for_clients=reads_for_clients)
        self._servicer: StorageServicer | None = None
        self._replicas: Replicas | None = None
        self._hand_over: HandOver | None = None

    @asynccontextmanager
    async def serve(
        self, servicer: StorageServicer, replicas: Replicas, hand_over: HandOver
    ) -> AsyncIterator[None]:
        """The node serves while the context is open; a fault of ours that would leave fetches waiting ends it."""
        self.appends.open(servicer.appends)
        taken = self.fetches.open(servicer.fetches)
        self._servicer = servicer
        self._replicas = replicas
        self._hand_over = hand_over
        try:
            async with asyncio.TaskGroup() as tasks:
                woken = tasks.create_task(taken.serve_woken(), name="woken fetches")
                yield
                woken.cancel()
        finally:
            taken.close()
            self._servicer = self._replicas = self._hand_over = None
            servicer.fetches.purgatory.end_reads()
            self.appends.close()
            self.fetches.close()

    @property
    def here(self) -> NodeHere:
        """See `links.storage_link.StorageLink`."""
        return self

    def write_at_once(self, coordinator: CoordinatorIdentity, item: PartitionAppend) -> int | None:
        """See `NodeHere`."""
        return None if self._servicer is None else self._servicer.appends.write_at_once(coordinator, item)

    async def hand_over(self) -> None:
        """See `LocalStorage`."""
        if self._hand_over is not None:
            await self._hand_over()

    def read_within(self, room: AnswerRoom) -> None:
        """See `LocalStorage`."""
        self.fetches.room = room

    def append_at_once(
        self,
        topic_id: bytes,
        partition: int,
        records: memoryview,
        acks: int,
        transaction: AppendTransaction | None = None,
    ) -> Placed | None:
        """See `LocalStorage`."""
        if self._replicas is None or self._servicer is None or self._servicer.appends.is_stopped:
            return None
        found = self._replicas.find(topic_id, partition)
        if found is None:
            return None
        if transaction is None:
            info = found.appending.append_at_once(records, acks)
        else:
            info = self._servicer.appends.verification.append_at_once(found, records, acks, transaction)
        if info is None:
            return None
        return Placed(info.base_offset, info.log_append_time_ms, info.log_start_offset)

    def read_at_once(
        self,
        sought: Sequence[Sought],
        *,
        min_bytes: int,
        max_bytes: int,
        committed: bool,
        max_wait_ms: int,
        rack_id: str = "",
        wait: ReadWait | None = None,
    ) -> list[Read] | ReadWait | None:
        """See `LocalStorage`."""
        if self._servicer is None:
            return None
        return self._servicer.fetches.read_at_once(
            sought,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            committed=committed,
            max_wait_ms=max_wait_ms,
            rack_id=rack_id,
            wait=wait,
        )

    async def ListOffsets(
        self, request: ListOffsetsRequest, *, timeout: float | None = None
    ) -> ListOffsetsResponse:
        return await _answer("ListOffsets", self._serving().ListOffsets(request), timeout)

    async def OffsetForLeaderEpoch(
        self, request: OffsetForLeaderEpochRequest, *, timeout: float | None = None
    ) -> OffsetForLeaderEpochResponse:
        return await _answer("OffsetForLeaderEpoch", self._serving().OffsetForLeaderEpoch(request), timeout)

    async def DeleteRecords(
        self, request: DeleteRecordsRequest, *, timeout: float | None = None
    ) -> DeleteRecordsResponse:
        return await _answer("DeleteRecords", self._serving().DeleteRecords(request), timeout)

    async def AlterReplicaLogDirs(
        self, request: AlterReplicaLogDirsRequest, *, timeout: float | None = None
    ) -> AlterReplicaLogDirsResponse:
        return await _answer("AlterReplicaLogDirs", self._serving().AlterReplicaLogDirs(request), timeout)

    async def DescribeLogDirs(
        self, request: DescribeLogDirsRequest, *, timeout: float | None = None
    ) -> DescribeLogDirsResponse:
        return await _answer("DescribeLogDirs", self._serving().DescribeLogDirs(request), timeout)

    async def DescribeProducers(
        self, request: DescribeProducersRequest, *, timeout: float | None = None
    ) -> DescribeProducersResponse:
        return await _answer("DescribeProducers", self._serving().DescribeProducers(request), timeout)

    def _serving(self) -> StorageServicer:
        if self._servicer is None:
            raise Unreachable("the storage node in this process does not serve")
        return self._servicer

    async def close(self) -> None:
        """Who has the link needs it no longer; the node goes on."""


async def _answer(call: str, answer: Awaitable[ResponseT], timeout: float | None) -> ResponseT:
    """Raises LinkError."""
    time = asyncio.timeout(timeout)
    with failing_as_elsewhere(call, time):
        async with time:
            return await answer
