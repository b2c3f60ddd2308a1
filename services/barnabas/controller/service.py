"""The controller as a process: it stands by, leads when elected, and stands by again when deposed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from barnabas.controller.active import ActiveController, WrongCluster, load_image
from barnabas.controller.config import ControllerConfig
from barnabas.controller.counts import ControllerCounts
from barnabas.controller.election import Election, LeadershipLost
from barnabas.controller.limits import STOP_GRACE_SECONDS, STORE_RETRY_SECONDS_MAX, STORE_RETRY_SECONDS_MIN
from barnabas.controller.presence import Presence
from barnabas.controller.store.protocol import Store, StoreError
from barnabas.kernel.environment import Environment
from barnabas.kernel.logs import get_logger
from barnabas.kernel.service import ServiceContext, StartError
from barnabas.metadata.history import HistoryRefused, check_continues, term_id
from barnabas.metadata.image import MetadataImage
from barnabas.rpc.connections import add_address, make_server
from barnabas.rpc.v1.controller_pb2 import DescribeQuorumResponse

log = get_logger("controller")


class Controller:
    """Owner of this process's part in the election, and of the term while it leads."""

    def __init__(
        self, store: Store, address: str, config: ControllerConfig, environment: Environment
    ) -> None:
        self.config = config
        self.environment = environment
        self._store = store
        self._address = address
        self._presence = Presence(
            store,
            address,
            config.controller_id,
            config.election_lease_ms,
            shared=bool(config.etcd_endpoints),
        )
        process_id = str(environment.new_id())
        self._election = Election(
            store, address, config.election_lease_ms, asyncio.get_running_loop().time, process_id
        )
        self._active: ActiveController | None = None
        self._known = MetadataImage()
        """What this process led with last: the store must continue it."""
        self.counts = ControllerCounts()

    @property
    def active(self) -> ActiveController | None:
        """The current term when this controller leads and is ready to serve."""
        return self._active if self._active is not None and self._active.is_ready else None

    @property
    def active_address(self) -> str:
        """Where the active controller is, as far as is known; empty when it is not."""
        return self._election.active_address

    def now_ms(self) -> int:
        """The time, in ms since 1970."""
        return self.environment.clock.now_ms()

    def is_settled(self) -> bool:
        """Whether it leads, or stands by for one that does."""
        # Our own address there is a lease of our last life that has not run out yet, or a mistake (see Election).
        return self.active is not None or (
            self._active is None and self.active_address not in ("", self._address)
        )

    async def describe_quorum(self, active: ActiveController) -> DescribeQuorumResponse:
        """The controllers and those who follow them, in KRaft's terms. Raises LeadershipLost."""
        try:
            voters = await self._presence.everyone()
        except StoreError as error:
            raise LeadershipLost(f"the metadata store does not answer: {error}") from error
        return active.describe_quorum(self._presence.controller_id, voters)

    async def run(self) -> None:
        """Be there and take part in elections until cancelled. Raises WrongCluster."""
        await self._presence.join()
        keeping = asyncio.create_task(self._presence.keep(), name="presence")
        try:
            await self._lead_when_elected()
        finally:
            keeping.cancel()
            await self._presence.leave()

    async def _lead_when_elected(self) -> None:
        while True:
            pause = 0.0
            leadership = await self._election.campaign()
            try:
                image = await load_image(self._store, leadership)
                check_continues(image, self._known.revision, term_id(self._known))
                self._active = ActiveController(
                    self._store, leadership, image, self.config, self.environment, self.counts
                )
                log.info("this controller is active", revision=image.revision)
                await self._active.run(self._election, leadership)
            except LeadershipLost as error:
                log.warning("stepped down", reason=str(error))
            except HistoryRefused as error:
                log.error(
                    "this controller does not lead: the store is not the one that it led with; restart the controller "
                    "to go on with this store",
                    reason=str(error),
                )
                pause = STORE_RETRY_SECONDS_MAX
            except StoreError as error:
                log.warning("could not load the metadata", reason=str(error))
                pause = STORE_RETRY_SECONDS_MIN
            finally:
                if self._active is not None:
                    self._known = self._active.image
                self._active = None
                self._election.active_address = ""
                await self._election.resign(leadership)
            await asyncio.sleep(pause)


@dataclass(frozen=True, slots=True)
class RunningController:
    """A controller that serves at `address`. `ended` finishes only when it cannot go on."""

    controller: Controller
    address: str
    ended: asyncio.Task[None]


@asynccontextmanager
async def running_controller(
    config: ControllerConfig, store: Store, environment: Environment
) -> AsyncIterator[RunningController]:
    """Serve with the opened `store`, which the caller closes afterwards. Raises StartError."""
    from barnabas.controller.handlers.servicer import Servicer
    from barnabas.rpc.v1.controller_pb2_grpc import add_ControllerServicer_to_server

    server = make_server()
    try:
        address = add_address(server, config.listen_address)
    except OSError as error:
        raise StartError(str(error)) from error
    controller = Controller(store, config.advertised_address or address, config, environment)
    add_ControllerServicer_to_server(Servicer(controller), server)
    await server.start()
    ended = asyncio.create_task(controller.run(), name="controller")
    try:
        yield RunningController(controller, address, ended)
    finally:
        ended.cancel()
        with contextlib.suppress(asyncio.CancelledError, WrongCluster):
            await ended
        await server.stop(STOP_GRACE_SECONDS)


def make_store(config: ControllerConfig, environment: Environment) -> Store:
    """The store that the config names, not opened yet."""
    if config.etcd_endpoints:
        from barnabas.controller.store.etcd import EtcdStore

        return EtcdStore(config.etcd_endpoints, config.etcd_namespace)
    from barnabas.controller.store.sqlite import SqliteStore

    return SqliteStore(config.metadata_file, environment.threads)


async def serve(config: ControllerConfig, context: ServiceContext) -> None:
    """Run the service until it is asked to stop. Raises StartError."""
    store = make_store(config, context.environment)
    stopping = asyncio.create_task(context.stopping.wait())
    running: RunningController | None = None
    context.health.add_condition(
        "a controller is active", lambda: running is not None and running.controller.is_settled()
    )
    try:
        if not await _open(store, config, context):
            return
        async with running_controller(config, store, context.environment) as running:
            log.info("serving", address=running.address)
            _measure(running.controller)
            await asyncio.wait({stopping, running.ended}, return_when=asyncio.FIRST_COMPLETED)
            if running.ended.done():
                running.ended.result()
    except WrongCluster as error:
        raise StartError(str(error)) from error
    finally:
        stopping.cancel()
        await store.close()


def _measure(controller: Controller) -> None:
    """Show the controller's state at /metrics."""
    from barnabas.controller.measurements import ControllerCollector

    controller.environment.registry.register(ControllerCollector(controller))


async def _open(store: Store, config: ControllerConfig, context: ServiceContext) -> bool:
    """Open the store; etcd may come up later than we do, a file will not. False when asked to stop meanwhile."""
    pause = STORE_RETRY_SECONDS_MIN
    while not context.stopping.is_set():
        try:
            await store.open()
        except StoreError as error:
            if not config.etcd_endpoints:
                raise StartError(str(error)) from error
            log.warning("waiting for the metadata store", reason=str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(context.stopping.wait(), pause)
            pause = min(pause * 2, STORE_RETRY_SECONDS_MAX)
        else:
            return True
    return False
