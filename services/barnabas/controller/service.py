"""The controller as a process: its store, its server, its metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from barnabas.controller.active import WrongCluster
from barnabas.controller.config import ControllerConfig
from barnabas.controller.controller import Controller
from barnabas.controller.limits import STOP_GRACE_SECONDS, STORE_RETRY_SECONDS_MAX, STORE_RETRY_SECONDS_MIN
from barnabas.controller.metrics import ControllerCollector
from barnabas.controller.servicer import ControllerServicer
from barnabas.controller.store.protocol import Store, StoreError
from barnabas.kernel.environment import Environment
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.kernel.service import ServiceContext, StartError

log = get_logger("controller")


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
    try:
        server = environment.network.listen(config.listen_address)
    except OSError as error:
        raise StartError(str(error)) from error
    controller = Controller(store, config.advertised_address or server.address, config, environment)
    await server.serve_controller(ControllerServicer(controller))
    ended = asyncio.create_task(controller.run(), name="controller")
    try:
        yield RunningController(controller, server.address, ended)
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


async def serve(
    config: ControllerConfig,
    context: ServiceContext,
    *,
    make_store: Callable[[ControllerConfig, Environment], Store] = make_store,
) -> None:
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
    controller.environment.registry.register(ControllerCollector(controller))


async def _open(store: Store, config: ControllerConfig, context: ServiceContext) -> bool:
    """Open the store; etcd may come up later than we do, a file will not. False when asked to stop meanwhile."""
    pause, lines = STORE_RETRY_SECONDS_MIN, RareLines(log, context.environment.clock.monotonic)
    while not context.stopping.is_set():
        try:
            await store.open()
        except StoreError as error:
            if not config.etcd_endpoints:
                raise StartError(str(error)) from error
            lines.warning("waiting for the metadata store", reason=str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(context.stopping.wait(), pause)
            pause = min(pause * 2, STORE_RETRY_SECONDS_MAX)
        else:
            return True
    return False
