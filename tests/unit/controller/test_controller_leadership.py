"""Leadership as the whole controller moves it: from nodes that died, fell silent or hand over, and back again."""

# ruff: noqa: SIM117 - nested blocks show who outlives whom
from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from barnabas.controller.config import ControllerConfig
from barnabas.controller.core.decision import Decision, partition_entry
from barnabas.controller.metrics import ControllerCollector
from barnabas.controller.service import RunningController, running_controller
from barnabas.controller.store.sqlite import SqliteStore
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.service import system_environment
from barnabas.kernel.threads import SystemThreads
from barnabas.links.errors import Refusal, Refused
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import MetadataImage, topic_key
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.rpc.network import GrpcNetwork

WAIT_SECONDS_MAX = 15.0
TOPIC = b"t" * 16


@asynccontextmanager
async def controller(directory: Path, **settings: object) -> AsyncIterator[RunningController]:
    """Its sessions outlive the test, unless it says otherwise."""
    wanted: dict[str, object] = {
        "listen_address": f"unix:{directory}/c.sock",
        "data_dir": str(directory),
        "broker_session_timeout_ms": 60_000,
    }
    config = ControllerConfig(**(wanted | settings))  # type: ignore[arg-type]
    store = SqliteStore(config.metadata_file, SystemThreads())
    await store.open()
    try:
        async with running_controller(config, store, system_environment(network=GrpcNetwork())) as running:
            yield running
    finally:
        await store.close()


class Node:
    """A registered storage node, at an address where nobody listens unless something is put there."""

    def __init__(self, node_id: int, directory: Path, controller_address: str) -> None:
        self.node_id = node_id
        self.socket_path = directory / f"node-{node_id}"
        request = pb.WatchRequest(
            node=md.NodeRecord(node_id=node_id, incarnation_id="a", address=f"unix:{self.socket_path}")
        )
        self.subscription = MetadataSubscription(GrpcNetwork(), [controller_address], lambda: request)
        self._task = asyncio.create_task(self.subscription.run())

    async def until(self, holds: Callable[[MetadataImage], bool]) -> MetadataImage:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await self.subscription.wait_until(holds)

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def cluster(running: RunningController, directory: Path) -> AsyncIterator[tuple[Node, Node]]:
    """Nodes 1 and 2, registered."""
    async with AsyncExitStack() as stack:
        nodes = []
        for node_id in (1, 2):
            node = Node(node_id, directory, running.address)
            stack.push_async_callback(node.leave)
            await node.until(lambda image, node_id=node_id: node_id in image.nodes)  # type: ignore[misc]
            nodes.append(node)
        yield nodes[0], nodes[1]


async def put_topic(running: RunningController, *rows: tuple[int, Sequence[int]]) -> None:
    """A topic `t` of (leader, replicas and in-sync replicas) rows."""
    records = [
        partition_entry(
            md.PartitionRecord(topic_id=TOPIC, partition=index, leader=leader, replicas=nodes, isr=nodes)
        )
        for index, (leader, nodes) in enumerate(rows)
    ]
    topic = md.TopicRecord(name="t", topic_id=TOPIC, partition_count=len(rows))
    records.append(md.MetadataRecord(key=topic_key("t"), topic=topic))
    active = running.controller.active
    assert active is not None
    await active.writer.submit(lambda _: Decision(tuple(records), None))


def leaders(image: MetadataImage) -> list[int]:
    return [partition.leader for partition in image.topics["t"].partitions] if "t" in image.topics else []


async def test_a_process_that_died_is_succeeded_without_waiting_for_its_session(tmp_path: Path) -> None:
    async with controller(tmp_path) as running, cluster(running, tmp_path) as (first, second):
        await put_topic(running, (1, (1, 2)), (2, (2, 1)))
        await first.leave()
        image = await second.until(lambda image: leaders(image) == [2, 2])
        assert [list(partition.isr) for partition in image.topics["t"].partitions] == [[2], [2]]
        assert image.nodes[1].fenced


async def test_what_only_it_has_waits_for_it_as_long_as_before(tmp_path: Path) -> None:
    async with controller(tmp_path) as running, cluster(running, tmp_path) as (first, second):
        await put_topic(running, (1, (1,)), (1, (1, 2)))
        await first.leave()
        image = await second.until(lambda image: leaders(image) == [1, 2])
        assert not image.nodes[1].fenced


async def test_the_only_node_has_its_time_to_come_back(tmp_path: Path) -> None:
    async with controller(tmp_path) as running, cluster(running, tmp_path) as (first, second):
        await put_topic(running, (1, (1, 2)))
        await second.leave()
        await first.until(lambda image: image.nodes[2].fenced)
        await first.leave()
        await asyncio.sleep(0.5)
        active = running.controller.active
        assert active is not None
        assert leaders(active.image) == [1]
        assert not active.image.nodes[1].fenced


async def test_one_that_keeps_silent_has_its_session(tmp_path: Path) -> None:
    async with controller(tmp_path, broker_session_timeout_ms=1_500) as running:
        async with cluster(running, tmp_path) as (first, second):
            await put_topic(running, (1, (1, 2)))
            with socket.socket(socket.AF_UNIX) as frozen:
                frozen.bind(str(first.socket_path))
                frozen.listen()
                began = asyncio.get_running_loop().time()
                await first.leave()
                image = await second.until(lambda image: leaders(image) == [2])
                assert asyncio.get_running_loop().time() - began > 1.4
                assert image.nodes[1].fenced


async def test_a_node_hands_over_before_it_goes(tmp_path: Path) -> None:
    async with controller(tmp_path) as running, cluster(running, tmp_path) as (first, second):
        await put_topic(running, (1, (1, 2)), (1, (1,)))
        with pytest.raises(Refused) as refused:
            await first.subscription.controller.HandOver(pb.HandOverRequest(node_id=1, incarnation_id="b"))
        assert (refused.value.why, refused.value.code) == (
            Refusal.NEVER_ACCEPTED,
            ErrorCode.stale_broker_epoch,
        )
        answer = await first.subscription.controller.HandOver(
            pb.HandOverRequest(node_id=1, incarnation_id="a")
        )
        assert answer.led_partitions == 0
        image = await second.until(lambda image: leaders(image) == [2, 1])
        assert image.nodes[1].stopping
        assert dict(image.eligible_epochs) == {2: image.nodes[2].node_epoch}
        measured = {
            metric.name: metric.samples for metric in ControllerCollector(running.controller).collect()
        }
        (sample,) = measured["kafka_controller_kafkacontroller_controlledshutdownbrokercount"]
        assert sample.value == 1


async def test_a_leader_changes_the_isr(tmp_path: Path) -> None:
    async with controller(tmp_path) as running, cluster(running, tmp_path) as (first, second):
        await put_topic(running, (1, (1, 2)))
        image = await first.until(lambda image: leaders(image) == [1])
        proposal = pb.IsrProposal(topic_id=TOPIC, isr=[pb.IsrMember(node_id=1, broker_epoch=-1)])
        request = pb.AlterPartitionRequest(
            node_id=1, node_epoch=image.nodes[1].node_epoch, partitions=[proposal]
        )
        answer = await first.subscription.controller.AlterPartition(request)
        assert list(answer.results[0].partition.isr) == [1]
        await second.until(lambda image: list(image.topics["t"].partitions[0].isr) == [1])


async def test_leadership_goes_back_to_the_preferred_leader_by_itself(tmp_path: Path) -> None:
    settings = {"leader_imbalance_check_interval_seconds": 1}
    async with controller(tmp_path, **settings) as running, cluster(running, tmp_path) as (first, _):
        await put_topic(running, (2, (1, 2)), (2, (2, 1)))
        await first.until(lambda image: leaders(image) == [1, 2])


async def test_or_not(tmp_path: Path) -> None:
    settings = {"leader_imbalance_check_interval_seconds": 1, "auto_leader_rebalance_enable": False}
    async with controller(tmp_path, **settings) as running, cluster(running, tmp_path) as (first, _):
        await put_topic(running, (2, (1, 2)))
        await asyncio.sleep(1.5)
        assert leaders(first.subscription.image) == [2]
        elected = pb.ElectLeadersRequest(topics=[pb.ElectedTopic(name="t", partitions=[0])])
        answer = await first.subscription.controller.ElectLeaders(elected)
        assert answer.topics[0].partitions[0].result.error_code == 0
        await first.until(lambda image: leaders(image) == [1])
