"""The whole controller in one process, over a unix socket, on SQLite and on etcd."""

# ruff: noqa: SIM117 - nested blocks show who outlives whom
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from barnabas.controller import active, internal_growth, lost_services
from barnabas.controller.config import ControllerConfig
from barnabas.controller.core.decision import Decision
from barnabas.controller.core.nodes import on_process_ended
from barnabas.controller.metrics import ControllerCollector
from barnabas.controller.service import RunningController, running_controller
from barnabas.controller.store.protocol import LeaseLost, Store
from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.kernel.service import system_environment
from barnabas.links.errors import Refusal, Refused
from barnabas.messages import controller_pb2 as pb
from barnabas.messages import metadata_pb2 as md
from barnabas.metadata.image import (
    GROUP_METADATA_TOPIC,
    NO_LEADER,
    PRODUCER_IDS_KEY,
    TERMS_KEY,
    MetadataImage,
)
from barnabas.metadata.subscription import MetadataSubscription, RegistrationRefused
from barnabas.rpc.network import GrpcNetwork

StoreFactory = Callable[[], Awaitable[Store]]
WAIT_SECONDS_MAX = 15.0


def node_request(node_id: int = 1, incarnation: str = "a", cluster_id: str = "") -> pb.WatchRequest:
    node = md.NodeRecord(node_id=node_id, incarnation_id=incarnation, address=f"unix:/node-{node_id}")
    return pb.WatchRequest(node=node, cluster_id=cluster_id)


def coordinator_request(name: str, incarnation: str = "a") -> pb.WatchRequest:
    return pb.WatchRequest(
        coordinator=md.CoordinatorRecord(
            coordinator_id=name, incarnation_id=incarnation, address=f"unix:/{name}"
        )
    )


def config_for(directory: Path, **changes: object) -> ControllerConfig:
    settings: dict[str, object] = {
        "listen_address": f"unix:{directory}/c.sock",
        "data_dir": str(directory),
        "broker_session_timeout_ms": 150,
        "gateway_session_timeout_ms": 150,
        "coordinator_session_timeout_ms": 150,
        "election_lease_ms": 1000,
        "offsets_topic_num_partitions": 8,
    }
    return ControllerConfig(**(settings | changes))  # type: ignore[arg-type]


def over_grpc() -> Environment:
    return system_environment(network=GrpcNetwork())


@asynccontextmanager
async def watching(address: str, request: pb.WatchRequest) -> AsyncIterator[MetadataSubscription]:
    """A subscription that has its first snapshot."""
    subscription = MetadataSubscription(GrpcNetwork(), [address], lambda: request)
    task = asyncio.create_task(subscription.run())
    try:
        current = asyncio.create_task(subscription.wait_until(lambda _: subscription.is_current))
        await asyncio.wait({task, current}, timeout=WAIT_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
        current.cancel()
        if task.done():
            task.result()
        assert subscription.is_current
        yield subscription
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, RegistrationRefused):
            await task


async def until(subscription: MetadataSubscription, holds: Callable[[MetadataImage], bool]) -> MetadataImage:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await subscription.wait_until(holds)


async def create(
    subscription: MetadataSubscription, name: str, partitions: int = 3, **more: object
) -> pb.CreatedTopic:
    topic = pb.NewTopic(name=name, partition_count=partitions, replication_factor=-1, **more)  # type: ignore[arg-type]
    response = await subscription.controller.CreateTopics(pb.CreateTopicsRequest(topics=[topic]))
    return response.topics[0]


def facts(image: MetadataImage) -> dict[str, md.MetadataRecord]:
    """All records but those that each controller changes as its term begins."""
    return {key: record for key, record in image.records.items() if key not in (TERMS_KEY, PRODUCER_IDS_KEY)}


@pytest.fixture
async def running(open_store: StoreFactory, tmp_path: Path) -> AsyncIterator[RunningController]:
    async with running_controller(config_for(tmp_path), await open_store(), over_grpc()) as controller:
        yield controller


async def test_a_new_cluster_gets_an_id_and_a_node_registers(running: RunningController) -> None:
    async with watching(running.address, node_request()) as node:
        image = await until(node, lambda image: 1 in image.nodes)
    assert len(image.cluster_id) == 22
    assert image.nodes[1].position == 0
    assert not image.nodes[1].fenced
    assert 0 < image.nodes[1].node_epoch <= image.revision


async def test_topics_are_created_enlarged_configured_and_deleted(running: RunningController) -> None:
    async with watching(running.address, node_request()) as node:
        created = await create(node, "orders", configs=[pb.ConfigEntry(name="retention.ms", value="1000")])
        assert created.result.error_code == 0
        image = await until(node, lambda image: "orders" in image.topics)
        assert image.topics["orders"].topic_id == created.topic_id
        assert [p.leader for p in image.topics["orders"].partitions] == [1, 1, 1]
        assert image.topic_config("orders") == {"retention.ms": "1000"}
        await node.controller.CreatePartitions(
            pb.CreatePartitionsRequest(topics=[pb.NewPartitions(name="orders", partition_count=5)])
        )
        await until(node, lambda image: len(image.topics["orders"].partitions) == 5)
        operation = pb.ConfigOperation(name="retention.ms", operation=1)
        change = pb.ConfigResourceChange(resource_type=2, resource_name="orders", operations=[operation])
        answer = await node.controller.IncrementalAlterConfigs(
            pb.IncrementalAlterConfigsRequest(resources=[change])
        )
        assert answer.results[0].error_code == 0
        await until(node, lambda image: not image.topic_config("orders"))
        deleted = await node.controller.DeleteTopics(
            pb.DeleteTopicsRequest(topics=[pb.TopicRef(topic_id=created.topic_id)])
        )
        assert deleted.topics[0].name == "orders"
        image = await until(node, lambda image: not image.topics)
        assert not [key for key in image.records if key.startswith(("topics/", "partitions/", "configs/"))]


async def test_a_topic_of_many_partitions_is_stored_in_parts_and_seen_whole(
    running: RunningController,
) -> None:
    async with watching(running.address, node_request()) as node:
        seen: list[int] = []
        node.on_change(lambda _, new: seen.extend(len(t.partitions) for t in new.topics.values()))
        assert (await create(node, "wide", 250)).result.error_code == 0
        await until(node, lambda image: "wide" in image.topics)
        assert set(seen) == {250}


async def test_many_at_once_all_get_their_answer(running: RunningController) -> None:
    async with watching(running.address, node_request()) as node:
        names = [f"topic-{number}" for number in range(40)]
        results = await asyncio.gather(*(create(node, name, 4) for name in [*names, names[0]]))
        errors = sorted(result.result.error_code for result in results)
        assert errors == [0] * 40 + [int(ErrorCode.topic_already_exists)]
        blocks = await asyncio.gather(
            *(node.controller.AllocateProducerIds(pb.AllocateProducerIdsRequest()) for _ in range(10))
        )
        first = min(block.first_producer_id for block in blocks)
        assert sorted(block.first_producer_id for block in blocks) == [first + n * 1000 for n in range(10)]


async def test_the_image_is_the_same_after_a_restart(open_store: StoreFactory, tmp_path: Path) -> None:
    config = config_for(tmp_path, broker_session_timeout_ms=10_000)
    async with running_controller(config, await open_store(), over_grpc()) as first:
        async with watching(first.address, node_request()) as node:
            await create(node, "orders")
            before = await until(node, lambda image: "orders" in image.topics)
    async with running_controller(config, await open_store(), over_grpc()) as second:
        async with watching(second.address, node_request(cluster_id=before.cluster_id)) as node:
            assert facts(node.image) == facts(before)


async def test_a_node_that_goes_is_fenced_and_leads_again_when_it_is_back(running: RunningController) -> None:
    async with watching(running.address, pb.WatchRequest()) as observer:
        async with watching(running.address, node_request()) as node:
            await create(node, "orders", 1)
            await until(observer, lambda image: "orders" in image.topics)
        image = await until(observer, lambda image: image.nodes[1].fenced)
        assert image.topics["orders"].partitions[0].leader == NO_LEADER
        epoch = image.topics["orders"].partitions[0].leader_epoch
        async with watching(running.address, node_request(incarnation="b")):
            image = await until(observer, lambda image: not image.nodes[1].fenced)
        assert image.topics["orders"].partitions[0].leader == 1
        assert image.topics["orders"].partitions[0].leader_epoch == epoch + 1


async def test_a_node_that_comes_back_in_time_is_not_fenced(open_store: StoreFactory, tmp_path: Path) -> None:
    config = config_for(tmp_path, broker_session_timeout_ms=10_000)
    async with running_controller(config, await open_store(), over_grpc()) as running:
        async with watching(running.address, node_request()) as node:
            await create(node, "orders", 1)
            before = await until(node, lambda image: "orders" in image.topics)
        async with watching(running.address, node_request()) as node:
            assert facts(node.image) == facts(before)
        async with watching(running.address, node_request(incarnation="b")) as node:
            partition = node.image.topics["orders"].partitions[0]
            assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 1)
            assert node.image.nodes[1].node_epoch > before.nodes[1].node_epoch


async def test_a_controller_gives_known_services_time_after_its_own_restart(
    open_store: StoreFactory, tmp_path: Path
) -> None:
    # Longer than a busy machine takes to stop the one controller and to start the other.
    config = config_for(tmp_path, broker_session_timeout_ms=2_000, coordinator_session_timeout_ms=2_000)
    async with running_controller(config, await open_store(), over_grpc()) as first:
        async with (
            watching(first.address, node_request()),
            watching(first.address, coordinator_request("c1")),
        ):
            pass
    async with running_controller(config, await open_store(), over_grpc()) as second:
        async with watching(second.address, pb.WatchRequest()) as observer:
            assert not observer.image.nodes[1].fenced
            image = await until(observer, lambda image: image.nodes[1].fenced and not image.coordinators)
            assert image.nodes[1].position == 0


async def test_what_nobody_can_take_over_is_looked_for_once_in_the_same_metadata(
    open_store: StoreFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes, looks = list[str](), list[set[int]]()

    async def has_ended(_: object, address: str) -> bool:
        probes.append(address)
        return True

    def look(image: MetadataImage, node_id: int, present: set[int], **others: Any) -> Decision[None]:
        looks.append(present)
        return on_process_ended(image, node_id, present, **others)

    async def probed() -> None:
        before = len(probes)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while len(probes) < before + 30:
                await asyncio.sleep(0)

    monkeypatch.setattr(lost_services, "_has_ended", has_ended)
    monkeypatch.setattr(lost_services, "PROBE_PAUSE_SECONDS", 0)
    monkeypatch.setattr(lost_services, "PROBE_PAUSE_SECONDS_MIN", 0)
    monkeypatch.setattr(active, "on_process_ended", look)
    config = config_for(tmp_path, broker_session_timeout_ms=60_000)
    async with running_controller(config, await open_store(), over_grpc()) as running:
        async with watching(running.address, node_request(2)) as other:
            async with watching(running.address, node_request(1)) as node:
                await create(node, "orders")
            await probed()
            assert looks == [{2}]
            await create(other, "more")
            await probed()
            assert looks == [{2}, {2}]


async def test_gateways_go_with_the_process_that_they_are_in(
    open_store: StoreFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the node itself is waited for, as it has what nobody else has: clients go elsewhere meanwhile."""

    async def has_ended(*_: object) -> bool:
        return True

    def gateway_in(node_id: int, name: str) -> pb.WatchRequest:
        return pb.WatchRequest(gateway=md.GatewayRecord(gateway_id=name, node_id=node_id))

    monkeypatch.setattr(lost_services, "_has_ended", has_ended)
    config = config_for(tmp_path, broker_session_timeout_ms=60_000, gateway_session_timeout_ms=60_000)
    async with (
        running_controller(config, await open_store(), over_grpc()) as running,
        AsyncExitStack() as of_one,
    ):
        node = await of_one.enter_async_context(watching(running.address, node_request(1)))
        await create(node, "orders")
        async with (
            watching(running.address, node_request(2)) as other,
            watching(running.address, gateway_in(1, "of the next process")),
        ):
            for request in (gateway_in(1, "gone"), gateway_in(2, "elsewhere")):
                async with watching(running.address, request):
                    pass
            await until(other, lambda image: len(image.gateways) == 3)
            await of_one.aclose()
            image = await until(other, lambda image: "gone" not in image.gateways)
            assert image.gateways.keys() == {"of the next process", "elsewhere"}
            assert not image.nodes[1].fenced


async def test_two_processes_cannot_have_one_id(running: RunningController) -> None:
    async with watching(running.address, node_request()) as node:
        with pytest.raises(Refused) as caught:
            await anext(node.controller.Watch(node_request(incarnation="b")))
        assert caught.value.why is Refusal.ID_TAKEN
        assert node.image.nodes[1].incarnation_id == "a"


async def test_another_clusters_node_is_refused_for_good(running: RunningController) -> None:
    with pytest.raises(RegistrationRefused, match="belongs to cluster somewhere-else"):
        async with watching(running.address, node_request(cluster_id="somewhere-else")):
            pass


async def test_what_the_store_cannot_take_is_refused_with_kafkas_code(running: RunningController) -> None:
    async with watching(running.address, node_request()) as node:
        await create(node, "orders")
        change = pb.ConfigResourceChange(resource_type=2, resource_name="orders")
        throttled = "follower.replication.throttled.replicas"
        change.operations.add(name=throttled, operation=0, value=",".join(["0:1"] * 150_000))
        with pytest.raises(Refused, match=r"^configs/.* would have \d+ bytes") as caught:
            await node.controller.IncrementalAlterConfigs(
                pb.IncrementalAlterConfigsRequest(resources=[change])
            )
    assert (caught.value.why, caught.value.code) == (Refusal.NEVER_ACCEPTED, ErrorCode.policy_violation)


async def test_gateways_come_and_go(running: RunningController) -> None:
    gateway = pb.WatchRequest(gateway=md.GatewayRecord(gateway_id="g1", rack="r"))
    async with watching(running.address, pb.WatchRequest()) as observer:
        async with watching(running.address, gateway):
            await until(observer, lambda image: "g1" in image.gateways)
        await until(observer, lambda image: not image.gateways)


async def test_offset_partitions_follow_the_coordinators(running: RunningController) -> None:
    async with watching(running.address, node_request()) as node:
        async with watching(running.address, coordinator_request("c1")):
            created = await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
            assert created.partition_count == 8
            async with watching(running.address, coordinator_request("c2")):
                image = await until(node, lambda image: len(image.coordinators) == 2)
                owners = [p.coordinator_id for p in image.topics[GROUP_METADATA_TOPIC].partitions]
                assert sorted(owners) == ["c1"] * 4 + ["c2"] * 4
            image = await until(node, lambda image: len(image.coordinators) == 1)
            partitions = image.topics[GROUP_METADATA_TOPIC].partitions
            assert {p.coordinator_id for p in partitions} == {"c1"}
            moved_twice = [
                p.coordinator_epoch for p, owner in zip(partitions, owners, strict=True) if owner == "c2"
            ]
            assert moved_twice == [2] * 4
            assert {p.leader_epoch for p in partitions} == {0}


async def test_internal_topics_grow_when_nodes_join(
    running: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internal_growth, "INTERNAL_TOPICS_CHECK_SECONDS", 0.01)
    async with watching(running.address, node_request()) as node:
        created = await create(node, GROUP_METADATA_TOPIC, -1, internal=True)
        assert created.replication_factor == 1
        async with watching(running.address, node_request(2)):
            image = await until(node, lambda image: len(adding(image)) == 8)
            assert set(adding(image)) == {(2,)}
            assert shown(running, "barnabas_controller_reassigning_partitions") == 8
            assert shown(running, "barnabas_controller_replicas_being_added") == 8


def shown(running: RunningController, name: str) -> float:
    """The value of a metric without labels."""
    (found,) = (metric for metric in ControllerCollector(running.controller).collect() if metric.name == name)
    return float(found.samples[0].value)


def adding(image: MetadataImage) -> list[tuple[int, ...]]:
    """The replicas that partitions of groups' topic are to get, of those that are."""
    found = image.topics[GROUP_METADATA_TOPIC].partitions
    return [tuple(each.adding_replicas) for each in found if each.adding_replicas]


async def test_a_standby_names_the_active_one_and_takes_over(
    open_store: StoreFactory, tmp_path: Path
) -> None:
    directories = [tmp_path / "1", tmp_path / "2"]
    for directory in directories:
        directory.mkdir()
    first_config, second_config = (config_for(d, broker_session_timeout_ms=10_000) for d in directories)
    async with running_controller(first_config, await open_store(), over_grpc()) as first:
        async with watching(first.address, node_request()) as node:
            await create(node, "orders")
            before = await until(node, lambda image: "orders" in image.topics)
            async with running_controller(second_config, await open_store(), over_grpc()) as second:
                await settled(second)
                standby = GrpcNetwork().connect_controller(second.address)
                with pytest.raises(Refused, match=r"active controller is unix:.*/1/c\.sock") as caught:
                    await standby.CreateTopics(pb.CreateTopicsRequest())
                assert caught.value.why is Refusal.NOT_ACTIVE
                await standby.close()
                first.ended.cancel()
                async with watching(second.address, node_request()) as survivor:
                    assert facts(survivor.image) == facts(before)
                    assert (await create(survivor, "payments")).result.error_code == 0


async def test_a_controller_that_lost_its_lease_leads_again_and_can_be_stopped(
    open_store: StoreFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, is_lost = await open_store(), False
    keep = store.keep_lease_alive

    async def keep_or_lose(lease_id: int) -> None:
        nonlocal is_lost
        if is_lost:
            is_lost = False
            raise LeaseLost(f"lease {lease_id} is gone")
        await keep(lease_id)

    monkeypatch.setattr(store, "keep_lease_alive", keep_or_lose)
    config = config_for(tmp_path, broker_session_timeout_ms=10_000)
    async with running_controller(config, store, over_grpc()) as running:
        for topic in ("orders", "payments"):
            await settled(running)
            former, is_lost = running.controller.active, True
            assert former is not None
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while running.controller.active in (former, None):
                    assert not running.ended.done(), "it ended with the lease"
                    await asyncio.sleep(0.02)
            async with watching(running.address, node_request()) as node:
                assert (await create(node, topic)).result.error_code == 0


async def test_metrics_say_who_is_active_and_what_is_offline(running: RunningController) -> None:
    def measured() -> dict[str, float]:
        samples = (s for metric in ControllerCollector(running.controller).collect() for s in metric.samples)
        return {s.name.removeprefix("kafka_controller_kafkacontroller_"): s.value for s in samples}

    async with watching(running.address, pb.WatchRequest()) as observer:
        async with watching(running.address, node_request()) as node:
            await create(node, "orders", 3)
            assert measured()["globalpartitioncount"] == 3
            assert measured()["offlinepartitionscount"] == 0
        await until(observer, lambda image: image.nodes[1].fenced)
        values = measured()
    assert (values["activecontrollercount"], values["globaltopiccount"]) == (1, 1)
    assert (values["activebrokercount"], values["fencedbrokercount"]) == (0, 1)
    assert values["offlinepartitionscount"] == 3


async def settled(running: RunningController) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not running.controller.is_settled():
            await asyncio.sleep(0.01)


async def test_metrics_say_what_is_throttled_and_cordoned(running: RunningController) -> None:
    def measured() -> dict[str, float]:
        samples = (s for metric in ControllerCollector(running.controller).collect() for s in metric.samples)
        return {s.labels.get("setting", s.name): s.value for s in samples}

    async def change(resource_type: int, name: str, **values: str) -> None:
        changed = pb.ConfigResourceChange(resource_type=resource_type, resource_name=name)
        for setting, value in values.items():
            changed.operations.add(name=setting.replace("_", "."), operation=0, value=value)
        request = pb.IncrementalAlterConfigsRequest(resources=[changed])
        assert (await node.controller.IncrementalAlterConfigs(request)).results[0].error_code == 0

    rate, replicas = "leader.replication.throttled.rate", "follower.replication.throttled.replicas"
    names = ("barnabas_controller_cordoned_nodes", "barnabas_controller_replicas_on_cordoned_nodes")
    async with watching(running.address, node_request()) as node:
        await create(node, "orders", 3)
        await change(BROKER_RESOURCE, "", leader_replication_throttled_rate="1000")
        values = measured()
        assert [values[name] for name in (rate, replicas, *names)] == [0, 0, 0, 0], "what all have stays"
        await change(BROKER_RESOURCE, "1", leader_replication_throttled_rate="1000", cordoned_log_dirs="*")
        await change(TOPIC_RESOURCE, "orders", follower_replication_throttled_replicas="0:1,1:1")
        await until(node, lambda image: bool(image.topic_config("orders")))
        values = measured()
        assert [values[name] for name in (rate, replicas, *names)] == [1, 1, 1, 3]
