"""The process of a coordinator from start to stop, with nobody to talk to but those who ask it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.service import serve
from barnabas.kernel.config import ConfigError
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.service import ServiceContext, StartError, system_environment
from barnabas.links.errors import LinkError, Unreachable
from barnabas.messages import coordinator_pb2, transactions_pb2
from barnabas.rpc.network import GrpcNetwork
from barnabas.rpc.server import RpcServer


def config_in(directory: Path) -> CoordinatorConfig:
    return CoordinatorConfig(
        listen_address=f"unix:{directory}/coordinator.sock", controllers=(f"unix:{directory}/nobody.sock",)
    )


def new_context() -> ServiceContext:
    return ServiceContext("coordinator", system_environment(network=GrpcNetwork()))


@asynccontextmanager
async def serving(config: CoordinatorConfig) -> AsyncIterator[ServiceContext]:
    context = new_context()
    task = asyncio.create_task(serve(config, context))
    try:
        yield context
    finally:
        context.stopping.set()
        await task


async def test_both_coordinators_answer_at_one_address(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    network = GrpcNetwork()
    async with serving(config) as context:
        groups = network.connect_coordinator(config.listen_address)
        transactions = network.connect_transactions(config.listen_address)
        nobody = ErrorCode.coordinator_not_available
        for _ in range(1_000):
            try:
                left = await groups.LeaveGroup(coordinator_pb2.LeaveGroupRequest(group_id="g"), timeout=5)
                break
            except LinkError:  # it does not listen yet
                await asyncio.sleep(0)
        assert left.error_code == nobody
        ended = await transactions.EndTxn(transactions_pb2.EndTxnRequest(transactional_id="a"), timeout=5)
        assert ended.error_code == nobody
        assert not context.health.is_ready()
        shown = generate_latest(context.environment.registry).decode()
        for name in ("barnabas_coordinator_transactional_ids", "barnabas_coordinator_loaded_partitions"):
            assert f"{name} 0.0" in shown
        await groups.close()
        await transactions.close()


class Reluctant:
    """The network of a broker whose node never came to serve: there is a server only once the broker stops."""

    def __init__(self, context: list[ServiceContext]) -> None:
        self._network = GrpcNetwork()
        self._context = context
        self.watched = 0
        self.address = "unix:/nowhere"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def listen(self, _: str) -> Any:
        return self

    def connect_controller(self, _: str) -> Any:
        return self

    async def serve_coordinator(self, *_: object) -> None:
        self._context[0].stopping.set()

    async def stop(self, _: float | None) -> None:
        for _turn in range(10):
            await asyncio.sleep(0)

    async def close(self) -> None: ...

    def Watch(self, _: object) -> Any:
        self.watched += 1
        raise Unreachable("it was not to be asked")


async def test_a_coordinator_that_is_not_served_before_it_stops_registers_with_nobody(tmp_path: Path) -> None:
    """It would be given what a former process of its name had, and what it has not loaded is nobody else's then."""
    made: list[ServiceContext] = []
    network = Reluctant(made)
    made.append(ServiceContext("coordinator", system_environment(network=cast(Any, network))))
    await serve(config_in(tmp_path), made[0])
    assert network.watched == 0


async def test_what_is_to_be_changed_first() -> None:
    with pytest.raises(StartError, match="controllers is empty"):
        await serve(CoordinatorConfig(), new_context())


async def test_an_address_of_another_machine() -> None:
    config = CoordinatorConfig(listen_address="192.0.2.1:1", controllers=("c:1",))
    with pytest.raises(StartError, match="cannot listen"):
        await serve(config, new_context())


async def test_one_that_is_never_served_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a broker it waits for the storage node, and may be cancelled meanwhile."""
    waits = asyncio.Event()
    stopped: list[RpcServer] = []
    stop = RpcServer.stop

    async def stop_seen(server: RpcServer, grace_seconds: float | None) -> None:
        stopped.append(server)
        await stop(server, grace_seconds)

    async def wait(*_: object) -> None:
        waits.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(RpcServer, "serve_coordinator", wait)
    monkeypatch.setattr(RpcServer, "stop", stop_seen)
    task = asyncio.create_task(serve(config_in(tmp_path), new_context()))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(stopped) == 1


@pytest.mark.parametrize(
    "name",
    [
        "transaction_max_timeout_ms",
        "transactional_id_expiration_ms",
        "transaction_abort_timed_out_transaction_cleanup_interval_ms",
        "transaction_remove_expired_transaction_cleanup_interval_ms",
        "transaction_state_log_load_buffer_size",
    ],
)
def test_settings_of_transactions_have_a_least_value(name: str) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        CoordinatorConfig(**{name: 0})  # type: ignore[arg-type]
