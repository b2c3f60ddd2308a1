"""A whole node that runs, against a controller that only streams metadata and hears of hand-overs."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import cast

from storage_harness import CLUSTER_ID, batch, topic_records

from barnabas.kernel.service import ServiceContext
from barnabas.links.controller_link import ControllerService
from barnabas.links.errors import Refusal, Refused
from barnabas.messages.controller_pb2 import (
    HandOverRequest,
    HandOverResponse,
    MetadataDelta,
    WatchRequest,
)
from barnabas.messages.metadata_pb2 import ClusterRecord, MetadataRecord, NodeRecord
from barnabas.messages.storage_pb2 import AppendRequest, PartitionAppend
from barnabas.rpc.network import GrpcNetwork
from barnabas.storage import service
from barnabas.storage.config import StorageConfig
from barnabas.storage.service import serve

TOPIC = uuid.UUID(int=7)
NODE_EPOCH = 40


class FakeController:
    """Registers whoever comes, and streams one snapshot with one topic."""

    def __init__(
        self, *, refuse: bool = False, silent: bool = False, replicated: bool = False, ahead: bool = False
    ) -> None:
        self.refuse = refuse
        self.goes_on = asyncio.Event()
        """Set once the node that comes is in sync; until then another one leads (`ahead`)."""
        if not ahead:
            self.goes_on.set()
        self.silent = silent
        self.replicas = (1, 2) if replicated else (1,)
        self.hand_overs = 0
        self.answers_hand_overs = True
        self.others_can_lead = True
        self.registered: list[WatchRequest] = []

    async def Watch(self, request: WatchRequest) -> AsyncGenerator[MetadataDelta]:
        records = [MetadataRecord(key="cluster", cluster=ClusterRecord(cluster_id=CLUSTER_ID))]
        if request.HasField("node"):
            if self.refuse:
                raise Refused(Refusal.NEVER_ACCEPTED, "node 1 belongs to another cluster")
            self.registered.append(request)
            if self.silent:
                await asyncio.Event().wait()
            known = NodeRecord()
            known.CopyFrom(request.node)
            known.node_epoch = NODE_EPOCH + len(self.registered)
            records.append(MetadataRecord(key="nodes/1", node=known))
            records += self._topic()
        yield MetadataDelta(revision=1, snapshot=True, records=records)
        if request.HasField("node"):
            await self.goes_on.wait()
            yield MetadataDelta(revision=2, records=self._topic())
        await asyncio.Event().wait()

    def _topic(self) -> list[MetadataRecord]:
        if self.goes_on.is_set():
            return topic_records("events", TOPIC, 2, replicas=self.replicas)
        records = topic_records("events", TOPIC, 2, replicas=(1, 2), leader=2)
        for record in records[:2]:
            record.partition.isr[:] = [2]
        return records

    async def HandOver(self, _: HandOverRequest) -> HandOverResponse:
        """Somebody could lead what the node leads, and does not come to; or nobody could."""
        self.hand_overs += 1
        if not self.answers_hand_overs:
            await asyncio.Event().wait()
        return HandOverResponse(led_partitions=1 if self.others_can_lead else 0)


@contextlib.asynccontextmanager
async def controller(address: str, **options: bool) -> AsyncIterator[FakeController]:
    fake, server = FakeController(**options), GrpcNetwork().listen(address)
    await server.serve_controller(cast(ControllerService, fake))  # it answers these two alone
    try:
        yield fake
    finally:
        await server.stop(0)


async def append_one(address: str, acks: int = -1) -> int:
    connection = GrpcNetwork().connect_storage(address)
    item = PartitionAppend(topic_id=TOPIC.bytes, partition=1, leader_epoch=0, records=batch(b"a"))
    result = await connection.appends.send(AppendRequest(partitions=[item], acks=acks, timeout_ms=5_000))
    await connection.close()
    assert result.partitions[0].error_code == 0
    return result.partitions[0].base_offset


async def run_until_ready(
    config: StorageConfig, context: ServiceContext, offer: service.Offer | None = None
) -> asyncio.Task[None]:
    running: asyncio.Task[None] = asyncio.ensure_future(serve(config, context, offer=offer))
    async with asyncio.timeout(20):
        while not context.health.is_ready():
            assert not running.done()
            await asyncio.sleep(0)
    return running
