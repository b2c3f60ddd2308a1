"""Consumers read from followers (KIP-392): up to the follower's own high watermark, under Kafka's error codes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest
from leader_and_followers import EPOCHS, Stream, change, create_topic, node_record, streams_of
from nodes_in_one_process import Nodes, run_nodes, until
from storage_harness import StorageHarness, batch, make_servicer, run_node
from test_nodes_replicate import append, committed

from barnabas.host.local_link import LocalFetches
from barnabas.kernel.errors import ErrorCode
from barnabas.links.local_storage import Sought
from barnabas.links.storage_messages import FetchedResult
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.messages.storage_pb2 import PartitionFetchResult
from barnabas.storage.fetching.reading import FetchReader, TooLittle
from barnabas.storage.fetching.replica_selector import rack_aware

LEADER, FOLLOWER = 1, 2
OFFSET_OUT_OF_RANGE = int(ErrorCode.offset_out_of_range)


class Consumer:
    """Owner of a consumer's fetches at one node."""

    def __init__(self, nodes: Nodes, node_id: int = FOLLOWER) -> None:
        self._nodes = nodes
        self.harness = nodes.running[node_id].harness
        self._fetches = LocalFetches()
        self._taken = self._fetches.open(make_servicer(self.harness).fetches)
        self._serving = asyncio.create_task(self._taken.serve_woken())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._taken.close()
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)

    def send(self, offset: int, **options: int | bool | str) -> asyncio.Future[FetchedResult]:
        fields = {"from_follower": True} | options
        return self._fetches.send(self.harness.fetch_request(self._nodes.topic_id, offset, **fields))

    async def read(self, offset: int, **options: int | bool | str) -> PartitionFetchResult:
        return (await self.harness.answer(self.send(offset, **options))).partitions[0]


async def test_a_follower_serves_what_is_committed_and_not_who_does_not_ask_for_it(tmp_path: Path) -> None:
    async with run_nodes(tmp_path, 2) as nodes:
        await committed(nodes, append(nodes, b"a"))
        await until(lambda: nodes.replica(FOLLOWER).high_watermark == 1, nodes.state)
        async with Consumer(nodes) as here, Consumer(nodes, LEADER) as there:
            found = await here.read(0)
            assert found.error_code == 0
            assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (1, 1, 0)
            assert found.records == (await there.read(0)).records != b""
            refused = await here.read(0, from_follower=False)
            assert refused.error_code == ErrorCode.not_leader_or_follower


async def test_what_is_not_committed_here_yet_is_waited_for(tmp_path: Path) -> None:
    """The follower's log has more than its high watermark says: nobody reads that before it is told."""
    async with run_nodes(tmp_path, 3) as nodes:
        await committed(nodes, append(nodes, b"a"))
        await nodes.until_equal()
        await nodes.stop(3, crash=False)  # still in sync: what follows is not committed
        append(nodes, b"b")
        await until(lambda: nodes.end(FOLLOWER) == 2, nodes.state)
        await until(lambda: nodes.replica(FOLLOWER).high_watermark == 1, nodes.state)
        async with Consumer(nodes) as consumer:
            assert (await consumer.read(1)).records == b""
            waiting = consumer.send(1, max_wait_ms=60_000)
            await consumer.harness.until_waiting(1)
            nodes.set_isr([1, 2])
            result = (await consumer.harness.answer(waiting)).partitions[0]
            assert (result.error_code, result.high_watermark) == (0, 2)
            assert result.records != b""


async def test_offsets_and_epochs_that_it_does_not_have(tmp_path: Path) -> None:
    async with run_nodes(tmp_path, 2) as nodes:
        await committed(nodes, append(nodes, b"a"))
        await until(lambda: nodes.replica(FOLLOWER).high_watermark == 1, nodes.state)
        async with Consumer(nodes) as consumer:
            for offset, code in ((0, 0), (1, 0), (2, OFFSET_OUT_OF_RANGE), (-1, OFFSET_OUT_OF_RANGE)):
                assert (await consumer.read(offset)).error_code == code, offset
            nodes.elect(LEADER, [1, 2])
            for epoch, code in (
                (-1, 0),
                (1, 0),
                (0, ErrorCode.fenced_leader_epoch),
                (2, ErrorCode.unknown_leader_epoch),
            ):
                assert (await consumer.read(0, current_leader_epoch=epoch)).error_code == code, epoch


async def test_who_waits_at_a_follower_hears_when_it_leads(tmp_path: Path) -> None:
    async with run_nodes(tmp_path, 2) as nodes, Consumer(nodes) as consumer:
        waiting = consumer.send(0, max_wait_ms=60_000, current_leader_epoch=0)
        await consumer.harness.until_waiting(1)
        nodes.elect(FOLLOWER, [1, 2])
        result = (await consumer.harness.answer(waiting)).partitions[0]
        assert result.error_code == ErrorCode.fenced_leader_epoch


# -- the leader ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[StorageHarness]:
    async with run_node(tmp_path / "a", tmp_path / "s") as harness:
        yield harness


def racked(node_id: int, rack: str, *, fenced: bool = False) -> MetadataRecord:
    record = node_record(node_id, EPOCHS[node_id], fenced=fenced)
    record.node.rack = rack
    return record


async def replicated(leader: StorageHarness) -> uuid.UUID:
    """One record; node 2 is in the rack east and has all of it, node 1 leads in west."""
    topic_id = await create_topic(leader)
    leader.apply(racked(1, "west"), racked(2, "east"), racked(3, "east"))
    change(leader, topic_id, isr=(1, 2))
    leader.replica(topic_id).appending.append(batch(b"a"), 0, -1)
    return topic_id


def selecting(leader: StorageHarness) -> FetchReader:
    return FetchReader(leader.replicas, bytes_max=1 << 20, selector=rack_aware)


def sent_to(
    reader: FetchReader, leader: StorageHarness, topic_id: uuid.UUID, offset: int, rack: str
) -> int | None:
    """The node that a consumer hears of; the same is asked of a read at once, which then says nothing."""
    outcome = reader.read(leader.fetch_request(topic_id, offset, rack_id=rack))
    (answer,) = outcome.answers
    nearer = (
        answer.fields.preferred_read_replica if answer.fields.HasField("preferred_read_replica") else None
    )
    sought = [Sought(topic_id.bytes, 0, offset, 1 << 20, -1, -1)]
    at_once = reader.read_at_once(sought, min_bytes=0, max_bytes=1 << 20, committed=False, rack_id=rack)
    assert (at_once is None) == bool(nearer is not None or answer.fields.error_code)
    if nearer is not None:
        assert outcome.is_final
        assert answer.records == b""
        assert answer.fields.log_start_offset == 0
        assert answer.fields.high_watermark == leader.replica(topic_id).high_watermark
    return nearer


async def test_a_leader_sends_consumers_to_a_follower_in_their_rack(leader: StorageHarness) -> None:
    topic_id = await replicated(leader)
    reader = selecting(leader)
    async with Stream(streams_of(leader), 2, EPOCHS[2]) as second:
        assert sent_to(reader, leader, topic_id, 0, "east") is None, "nobody knows where the follower is"
        second.at(topic_id, 1, 0)
        await until(lambda: leader.replica(topic_id).high_watermark == 1)
        assert sent_to(reader, leader, topic_id, 0, "east") == 2
        assert sent_to(reader, leader, topic_id, 1, "east") == 2
        assert sent_to(reader, leader, topic_id, 2, "east") is None, "beyond its log"
        assert sent_to(reader, leader, topic_id, 0, "west") is None
        assert sent_to(reader, leader, topic_id, 0, "") is None
        assert sent_to(leader.reader, leader, topic_id, 0, "east") is None, "without the setting"
        second.at(topic_id, 1, 0, log_start_offset=1)
        await asyncio.sleep(0.01)
        assert sent_to(reader, leader, topic_id, 0, "east") is None, "before its log"
        assert sent_to(reader, leader, topic_id, 1, "east") == 2
    await asyncio.sleep(0.01)
    assert sent_to(reader, leader, topic_id, 1, "east") is None, "its stream has ended"


async def test_a_follower_out_of_sync_or_fenced_is_nobody_to_read_from(leader: StorageHarness) -> None:
    """KAFKA-14372."""
    topic_id = await replicated(leader)
    reader = selecting(leader)
    async with (
        Stream(streams_of(leader), 2, EPOCHS[2]) as second,
        Stream(streams_of(leader), 3, EPOCHS[3]) as third,
    ):
        second.at(topic_id, 1, 0)
        third.at(topic_id, 1, 0)
        await until(lambda: leader.replica(topic_id).high_watermark == 1)
        assert sent_to(reader, leader, topic_id, 0, "east") == 2, "the other one has all, and is not in sync"
        leader.apply(racked(2, "east", fenced=True))
        assert sent_to(reader, leader, topic_id, 0, "east") is None
        leader.apply(racked(2, "east"))
        change(leader, topic_id, isr=(1,))
        assert sent_to(reader, leader, topic_id, 0, "east") is None


async def test_a_follower_sends_nobody_elsewhere(leader: StorageHarness) -> None:
    """KAFKA-13778; also right after it has led."""
    topic_id = await replicated(leader)
    async with Stream(streams_of(leader), 2, EPOCHS[2]) as second:
        second.at(topic_id, 1, 0)
        await until(lambda: leader.replica(topic_id).high_watermark == 1)
    change(leader, topic_id, leader=2, leader_epoch=1)
    request = leader.fetch_request(topic_id, 0, rack_id="east", from_follower=True)
    (answer,) = selecting(leader).read(request).answers
    assert (answer.fields.error_code, answer.fields.HasField("preferred_read_replica")) == (0, False)
    assert answer.records != b""


async def test_a_read_at_once_is_of_an_in_sync_follower_and_for_those_who_mean_it(tmp_path: Path) -> None:
    async with run_nodes(tmp_path, 2) as nodes:
        await committed(nodes, append(nodes, b"a"))
        await until(lambda: nodes.replica(FOLLOWER).high_watermark == 1, nodes.state)
        reader = nodes.running[FOLLOWER].harness.reader
        sought = [Sought(nodes.topic_id.bytes, 0, 0, 1 << 20, -1, -1)]

        def at_once(rack_id: str, min_bytes: int = 1) -> object:
            return reader.read_at_once(
                sought, min_bytes=min_bytes, max_bytes=1 << 20, committed=False, rack_id=rack_id
            )

        found = at_once("east")
        assert isinstance(found, list)
        assert bytes(found[0].records) == nodes.bytes_of(LEADER)
        assert at_once("") is None
        assert isinstance(at_once("east", min_bytes=1 << 19), TooLittle)
        nodes.set_isr([1])
        assert at_once("east") is None
