"""Quotas, features and the quorum asked of running controllers, on SQLite and on etcd."""

# ruff: noqa: SIM117 - nested blocks show who outlives whom
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from test_controller_service import config_for, node_request, over_grpc, settled, until, watching

from barnabas.controller.presence import FIRST_ID
from barnabas.controller.service import RunningController, running_controller
from barnabas.controller.store.etcd import EtcdStore
from barnabas.controller.store.protocol import Store
from barnabas.links.errors import Refusal, Refused
from barnabas.messages import controller_pb2 as pb
from barnabas.messages.metadata_pb2 import QuotaEntityPart
from barnabas.metadata.features import RELEASE_LEVELS
from barnabas.rpc.network import GrpcNetwork

StoreFactory = Callable[[], Awaitable[Store]]


@pytest.fixture
async def running(open_store: StoreFactory, tmp_path: Path) -> AsyncIterator[RunningController]:
    async with running_controller(config_for(tmp_path), await open_store(), over_grpc()) as controller:
        yield controller


async def quorum_of(address: str) -> pb.DescribeQuorumResponse:
    link = GrpcNetwork().connect_controller(address)
    try:
        return await link.DescribeQuorum(pb.DescribeQuorumRequest())
    finally:
        await link.close()


async def test_the_quorum_is_the_controller_and_the_nodes_that_follow_it(running: RunningController) -> None:
    async with watching(running.address, node_request(1)) as node, watching(running.address, node_request(2)):
        image = await until(node, lambda image: len(image.live_nodes()) == 2)
        answer = await quorum_of(running.address)
        assert answer.leader_id == FIRST_ID
        assert 0 < answer.leader_epoch <= answer.high_watermark
        assert answer.high_watermark >= image.revision
        assert [(voter.replica_id, voter.address) for voter in answer.voters] == [(FIRST_ID, running.address)]
        assert [observer.replica_id for observer in answer.observers] == [1, 2]
        assert {observer.log_end_offset for observer in answer.observers} == {answer.high_watermark}
        newest = answer.voters[0].last_caught_up_timestamp_ms
        assert {observer.last_caught_up_timestamp_ms for observer in answer.observers} == {newest}
    async with asyncio.timeout(10):
        while (await quorum_of(running.address)).observers:
            await asyncio.sleep(0.01)


async def test_the_epoch_rises_with_every_start(open_store: StoreFactory, tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        async with running_controller(config_for(tmp_path), await open_store(), over_grpc()) as running:
            await settled(running)
            epochs.append((await quorum_of(running.address)).leader_epoch)
    assert epochs == sorted(set(epochs))


async def test_standby_controllers_are_voters_while_they_live(own_etcd: object, tmp_path: Path) -> None:
    endpoint = own_etcd.endpoint  # type: ignore[attr-defined]

    def directory(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    first_store, second_store = EtcdStore([endpoint]), EtcdStore([endpoint])
    for store in (first_store, second_store):
        await store.open()
    try:
        first_config = config_for(directory("a"), etcd_endpoints=(endpoint,))
        second_config = config_for(directory("b"), etcd_endpoints=(endpoint,), controller_id=7)
        async with running_controller(first_config, first_store, over_grpc()) as first:
            await settled(first)
            async with running_controller(second_config, second_store, over_grpc()) as second:
                await settled(second)
                voters = (await quorum_of(first.address)).voters
                assert {voter.replica_id: voter.address for voter in voters} == {
                    FIRST_ID: first.address,
                    7: second.address,
                }
                with pytest.raises(Refused) as refused:
                    await quorum_of(second.address)
                assert refused.value.why is Refusal.NOT_ACTIVE
            voters = (await quorum_of(first.address)).voters
            assert [voter.replica_id for voter in voters] == [FIRST_ID]
    finally:
        for store in (first_store, second_store):
            await store.close()


async def test_features_are_finalized_from_the_start_and_kept(
    open_store: StoreFactory, tmp_path: Path
) -> None:
    for _ in range(2):
        async with running_controller(config_for(tmp_path), await open_store(), over_grpc()) as running:
            async with watching(running.address, node_request()) as node:
                image = await until(node, lambda image: 1 in image.nodes)
                assert image.features == RELEASE_LEVELS
                update = pb.FeatureUpdate(name="share.version", level=1, upgrade_type=1)
                refused = await node.controller.UpdateFeatures(pb.UpdateFeaturesRequest(updates=[update]))
                assert refused.result.error_code == 95


async def test_quotas_reach_everyone(running: RunningController) -> None:
    async with watching(running.address, node_request()) as node:
        change = pb.ClientQuotaChange(
            entity=[QuotaEntityPart(type="user")],
            operations=[pb.ClientQuotaOperation(key="producer_byte_rate", value=5)],
        )
        answer = await node.controller.AlterClientQuotas(pb.AlterClientQuotasRequest(entries=[change]))
        assert [result.error_code for result in answer.results] == [0]
        image = await until(node, lambda image: bool(image.client_quotas))
        assert dict(image.client_quotas) == {(("user", None),): {"producer_byte_rate": 5.0}}
