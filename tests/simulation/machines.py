"""Machines, each with its disks and one process: started, killed, frozen, without power, and started again."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, cast

from virtual_channel import VirtualChannel
from virtual_disk import ProcessFiles, VirtualDisk
from virtual_loop import Life
from virtual_server import VirtualServer
from virtual_store import QuorumStore
from virtual_threads import VirtualThreads, disk_seconds
from world import BEGINNING_MS, World

from barnabas.controller import service as controller_service
from barnabas.controller.config import ControllerConfig
from barnabas.controller.store.protocol import Operation, Put, StoreError
from barnabas.coordinator import service as coordinator_service
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.gateway import service as gateway_service
from barnabas.gateway.config import GatewayConfig
from barnabas.host import service as host_service
from barnabas.host.config import BrokerConfig
from barnabas.host.local_node import LocalNode
from barnabas.kernel.clock import Listener
from barnabas.kernel.environment import Environment
from barnabas.kernel.files import Files
from barnabas.kernel.service import ServiceContext, StartError
from barnabas.links.network import Network
from barnabas.log.checkpoints.partition_metadata import read_topic_id
from barnabas.log.checkpoints.stray import SUFFIX as STRAY
from barnabas.metadata.image import MetadataImage
from barnabas.rpc.network import GrpcNetwork
from barnabas.storage import service as storage_service
from barnabas.storage.config import StorageConfig
from barnabas.storage.replica.replicas import Replicas
from barnabas.storage.servicer import StorageServicer

START_AGAIN_SECONDS: Final = 0.3
"""After which a process that ended by itself is started again, as a supervisor does it."""

STORE_SECONDS_MAX: Final = 2.0
"""After which a call to the quorum store that nobody answers has failed."""


class MachineClock:
    """The clock of one machine, which may be ahead of the others'."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ahead_seconds = 0.0

    def now_ms(self) -> int:
        return BEGINNING_MS + int((self._world.now + self.ahead_seconds) * 1000)

    def monotonic(self) -> float:
        return self._world.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def on_jump(self, listener: Listener) -> None:
        """Those who wait for a time wake when it comes."""


class Machine:
    """Owner of one machine: its disks, its clock, and the process that runs on it, if one does."""

    def __init__(self, world: World, name: str, more_disks: Sequence[str] = ()) -> None:
        self.world = world
        self.name = name
        self.disk = VirtualDisk(more_disks)
        self.clock = MachineClock(world)
        self.life: Life | None = None
        self.context: ServiceContext | None = None
        self.starts = 0
        self.has_stopped_in_order = False
        self.is_away = False
        """Whether it has left the cluster, so that whoever would start it does not."""
        self._files: ProcessFiles | None = None
        self._serving: asyncio.Task[None] | None = None
        self._chance = world.chance_of(f"{name}/power")

    async def serve(self, context: ServiceContext) -> None:
        """What the process does."""
        raise NotImplementedError

    @property
    def is_up(self) -> bool:
        return self.life is not None

    @property
    def is_ready(self) -> bool:
        return self.context is not None and self.context.health.is_ready()

    @property
    def is_stopping(self) -> bool:
        return self.context is not None and self.context.stopping.is_set()

    def unmet(self) -> list[str]:
        if self.is_away:
            return []
        return ["it does not run"] if self.context is None else self.context.health.unmet()

    def say(self, what: str) -> None:
        self.world.trace.say(self.name, what)

    # -- its process --------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.life is not None or self.is_away:
            return
        self.starts += 1
        self.has_stopped_in_order = False
        self.say(f"starts, number {self.starts}")
        self.life = life = Life(self.name)
        self.world.lives.append(life)
        self._files = ProcessFiles(self.disk, life)
        self.context = ServiceContext(self.name, self._environment(life))
        self._serving = self.world.loop.create_task(
            self.serve(self.context), name=self.name, context=life.context
        )
        self._serving.add_done_callback(self._on_exit, context=self.world.trace.context)

    def environment_of(self, life: Life, name: str) -> Environment:
        chance = self.world.chance_of(name)
        world = self.world
        network = GrpcNetwork(
            lambda address: cast(Any, VirtualChannel(world.network, self.name, life, address)),
            lambda: cast(Any, VirtualServer(world.network, self.name, life)),
        )
        return Environment(
            clock=self.clock,
            random=chance,
            new_id=lambda: uuid.UUID(int=chance.getrandbits(128), version=4),
            threads=VirtualThreads(
                disk_seconds(world.chance_of(f"{name}/threads"), lambda: self.disk.slowness),
                lambda: self.disk.may_halt,
            ),
            network=cast(Network, network),
            files=cast(Files, self._files),
        )

    def _environment(self, life: Life) -> Environment:
        return self.environment_of(life, f"{self.name}/{self.starts}")

    def _on_exit(self, serving: asyncio.Task[None]) -> None:
        """The process has ended by itself, or was asked to."""
        if serving is not self._serving:
            return
        error = None if serving.cancelled() else serving.exception()
        self.say("ended" if error is None else f"ended: {error!r}")
        self.has_stopped_in_order = error is None and self.is_stopping
        self._end(silently=False)
        if error is not None:
            if not isinstance(error, StartError):
                self.world.violate(f"{self.name} ended with {error!r}")
            self.world.loop.call_later(START_AGAIN_SECONDS, self.start, context=self.world.trace.context)

    def _end(self, *, silently: bool) -> None:
        life, files = self.life, self._files
        if life is None or files is None:
            return
        life.is_ended = True
        life.held.clear()
        files.on_end()
        self.life = self._files = self.context = self._serving = None
        self.world.network.on_end(life, silently=silently)

    def kill(self) -> None:
        self.say("is killed")
        self._end(silently=False)

    def lose_power(self) -> None:
        self.say("loses power")
        self._end(silently=True)
        self.disk.lose_power(self._chance)

    def replace_disk(self) -> None:
        """By an empty one, with all that there are; no process runs."""
        self.say("has an empty disk")
        self.disk = VirtualDisk(self.disk.more)

    def stop(self) -> None:
        """Ask the process to end in order."""
        if self.context is not None:
            self.say("is asked to stop")
            self.context.health.begin_stopping()
            self.context.stopping.set()

    def pause(self) -> None:
        if self.life is not None and not self.life.is_paused:
            self.say("is frozen")
            self.life.is_paused = True
            self.world.network.on_pause(self.life)

    def resume(self) -> None:
        if self.life is not None and self.life.is_paused:
            self.say("goes on")
            self.world.loop.resume(self.life)


CONTROLLER_PORT: Final = 9090
NODE_PORT: Final = 9091
KAFKA_PORT: Final = 9092
"""Of the first node; those of the others follow it."""
COORDINATOR_PORT: Final = 9089

SESSION_MS: Final = 1_500
"""Of members of consumer groups (KIP-848), and of who speaks the classic protocol in one."""
HEARTBEAT_MS: Final = 200
ASSIGNMENT_INTERVAL_MS: Final = 200
STORE: Final = "store"

LOG_DIRECTORIES: Final = ("/data/log", "/more/log")
"""Of a node that has two; the second is on a disk of its own."""
SECOND_DISK: Final = "/more"


def controller_addresses(count: int) -> tuple[str, ...]:
    return tuple(f"controller-{number}:{CONTROLLER_PORT}" for number in range(1, count + 1))


class ControllerMachine(Machine):
    """A machine with a controller."""

    def __init__(self, world: World, number: int, rebalance_seconds: int) -> None:
        super().__init__(world, f"controller-{number}")
        self._number = number
        self._rebalance_seconds = rebalance_seconds
        self._store_chance = world.chance_of(f"{self.name}/store")
        self.frozen_write: asyncio.Future[ControllerMachine] | None = None
        """Whom to tell when it writes of a partition: then it is frozen, with the write on its way."""

    async def serve(self, context: ServiceContext) -> None:
        config = ControllerConfig(
            listen_address=f"{self.name}:{CONTROLLER_PORT}",
            etcd_endpoints=(f"{STORE}:2379",),
            controller_id=3000 + self._number,
            http_address="",
            leader_imbalance_check_interval_seconds=self._rebalance_seconds,
            offsets_topic_num_partitions=1,
            transaction_state_log_num_partitions=1,
        )
        quorum = self.world.quorum
        assert quorum is not None, "the world has its quorum"
        await controller_service.serve(
            config,
            context,
            make_store=lambda _config, _environment: QuorumStore(quorum, self._trip, self._on_write),
        )

    def _on_write(self, operations: Sequence[Operation]) -> None:
        frozen = self.frozen_write
        if frozen is None or frozen.done():
            return
        if any(isinstance(each, Put) and each.key.startswith("partition") for each in operations):
            frozen.set_result(self)
            self.pause()

    async def _trip(self) -> None:
        """To the store or back from it."""
        network = self.world.network
        await asyncio.sleep(self._store_chance.uniform(0.0002, 0.002))
        gives_up_at = self.world.now + STORE_SECONDS_MAX
        while network.is_cut(self.name, STORE):
            if self.world.now > gives_up_at:
                raise StoreError("the store does not answer")
            await asyncio.sleep(0.02)


class NodeMachine(Machine):
    """A machine with a storage node."""

    def __init__(
        self, world: World, node_id: int, controllers: int, settings: dict[str, str], log_directories: int
    ) -> None:
        super().__init__(world, f"node-{node_id}", (SECOND_DISK,) if log_directories > 1 else ())
        self.log_directories = LOG_DIRECTORIES[:log_directories]
        self._settings = settings
        self.node_id = node_id
        self.rack = ""
        self.replicas: Replicas | None = None
        self.knew: MetadataImage | None = None
        """The metadata as its last process knew them when it ended; None if it knew none."""
        self.is_rotten = False
        """Whether it has records that nobody can read."""
        self._controllers = controllers

    async def serve(self, context: ServiceContext) -> None:
        @contextlib.asynccontextmanager
        async def offer(
            _servicer: StorageServicer, replicas: Replicas, _hand_over: storage_service.HandOver
        ) -> AsyncIterator[None]:
            self.replicas = replicas
            yield

        await storage_service.serve(self._storage_config(), context, offer=offer)

    def _storage_config(self) -> StorageConfig:
        return StorageConfig(
            node_id=self.node_id,
            broker_rack=self.rack,
            log_dirs=self.log_directories,
            listen_address=f"{self.name}:{NODE_PORT}",
            controllers=controller_addresses(self._controllers),
            http_address="",
            log_flush_offset_checkpoint_interval_ms=1_500,
            replica_high_watermark_checkpoint_interval_ms=700,
            log_retention_check_interval_ms=2_000,
            broker_settings=self._settings,
        )

    @property
    def hears_controllers(self) -> bool:
        """Whether it and all controllers hear one another: one that is silent for long is fenced."""
        cut = self.world.network.is_cut
        names = [address.partition(":")[0] for address in controller_addresses(self._controllers)]
        is_frozen = self.life is not None and self.life.is_paused
        return not is_frozen and not any(cut(self.name, each) or cut(each, self.name) for each in names)

    def directories(self) -> list[str]:
        """The paths of those of partitions on its disks, but for what is set aside as stray, or left alone because the
        power went before the topic's id was on the disk.
        """
        files = self.disk.files
        found = []
        for path in self.log_directories:
            with contextlib.suppress(FileNotFoundError):  # the disk is new
                found += [f"{path}/{name}" for name in files.list_directories(path)]
        return [path for path in found if not path.endswith(STRAY) and read_topic_id(files, path) is not None]

    @property
    def needs_a_start(self) -> bool:
        """Whether something of it is offline until it is started again, as who operates it is told. With one log
        directory alone its process ends instead, or a fault that ends starts it.
        """
        if self.replicas is None or len(self.log_directories) == 1:
            return False
        return bool(self.replicas.offline_directories) or any(
            replica.is_offline for replica in self.replicas.by_partition.values()
        )

    def _end(self, *, silently: bool) -> None:
        if self.life is not None:
            self.knew = None if self.replicas is None else self.replicas.image
        self.replicas = None
        super()._end(silently=silently)


class CoordinatingMachine(Machine):
    """A machine whose process is a coordinator, if it `coordinates`. Its id is the machine's name."""

    coordinates = True

    coordinator: GroupCoordinator | None = None
    transactions: TransactionCoordinator | None = None

    async def serve_coordinator(self, config: CoordinatorConfig, context: ServiceContext) -> None:
        """Run the coordinator, to be looked at."""

        def make(*arguments: Any) -> GroupCoordinator:
            self.coordinator = GroupCoordinator(*arguments)
            return self.coordinator

        def make_transactions(*arguments: Any) -> TransactionCoordinator:
            self.transactions = TransactionCoordinator(*arguments)
            return self.transactions

        await coordinator_service.serve(
            config, context, make_coordinator=make, make_transactions=make_transactions
        )

    def _end(self, *, silently: bool) -> None:
        self.coordinator = self.transactions = None
        super()._end(silently=silently)


def coordinator_config(name: str, port: int, controllers: int) -> CoordinatorConfig:
    """Of a coordinator at the machine `name`."""
    return CoordinatorConfig(
        coordinator_id=name,
        listen_address=f"{name}:{port}",
        controllers=controller_addresses(controllers),
        http_address="",
        group_initial_rebalance_delay_ms=100,
        group_min_session_timeout_ms=500,
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_min_session_timeout_ms=SESSION_MS,
        group_consumer_heartbeat_interval_ms=HEARTBEAT_MS,
        group_consumer_min_heartbeat_interval_ms=HEARTBEAT_MS,
        group_consumer_assignment_interval_ms=ASSIGNMENT_INTERVAL_MS,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=250,
    )


def gateway_config(name: str, controllers: int) -> GatewayConfig:
    """Of a gateway at the machine `name`."""
    return GatewayConfig(
        gateway_id=name,
        controllers=controller_addresses(controllers),
        listeners=(f"PLAINTEXT://{name}:{KAFKA_PORT}",),
        http_address="",
    )


class BrokerMachine(NodeMachine, CoordinatingMachine):
    """A machine with a storage node and a gateway in one process, which may be a coordinator, too."""

    coordinates = False

    async def serve(self, context: ServiceContext) -> None:
        machine = self

        class Node(LocalNode):
            @contextlib.asynccontextmanager
            async def serve(
                self, servicer: StorageServicer, replicas: Replicas, hand_over: storage_service.HandOver
            ) -> AsyncIterator[None]:
                machine.replicas = replicas
                async with super().serve(servicer, replicas, hand_over):
                    yield

        config = BrokerConfig(
            gateway_config(self.name, self._controllers),
            self._storage_config(),
            coordinator_config(self.name, NODE_PORT, self._controllers) if self.coordinates else None,
        )
        await host_service.serve(config, context, make_node=Node, serve_coordinator=self.serve_coordinator)


class GatewayMachine(Machine):
    """A machine with a gateway."""

    def __init__(self, world: World, number: int, controllers: int) -> None:
        super().__init__(world, f"gateway-{number}")
        self._controllers = controllers

    async def serve(self, context: ServiceContext) -> None:
        await gateway_service.serve(gateway_config(self.name, self._controllers), context)


class CoordinatorMachine(CoordinatingMachine):
    """A machine with a coordinator."""

    def __init__(self, world: World, number: int, controllers: int) -> None:
        super().__init__(world, f"coordinator-{number}")
        self._controllers = controllers

    async def serve(self, context: ServiceContext) -> None:
        config = coordinator_config(self.name, COORDINATOR_PORT, self._controllers)
        await self.serve_coordinator(config, context)


class ClientMachine(Machine):
    """A machine whose process is a client of the cluster."""

    def __init__(self, world: World, name: str, work: Callable[[Environment], Awaitable[None]]) -> None:
        super().__init__(world, name)
        self._work = work

    async def serve(self, context: ServiceContext) -> None:
        await self._work(context.environment)
