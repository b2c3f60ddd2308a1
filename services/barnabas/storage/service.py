"""One storage node from start to stop.

Start: learn the cluster's id, open the log directories, recover what they hold, listen, then register with the
controller and follow its metadata. Stop: end the streams, make the logs durable, mark the clean shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import grpc.aio

from barnabas.kernel.logs import get_logger
from barnabas.kernel.service import ServiceContext, StartError
from barnabas.kernel.threads import Threads
from barnabas.log.errors import LogStoreError
from barnabas.metadata.broker_settings import broker_setting
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.measurements import SubscriptionCollector
from barnabas.metadata.subscription import MetadataSubscription, RegistrationRefused
from barnabas.rpc.connections import add_address, make_server
from barnabas.rpc.stream_metrics import StreamCollector
from barnabas.rpc.v1.controller_pb2 import WatchRequest
from barnabas.rpc.v1.metadata_pb2 import NodeRecord
from barnabas.storage import limits
from barnabas.storage.cleaning import Cleaning
from barnabas.storage.cleaning_measurements import CleanerCollector
from barnabas.storage.config import StorageConfig
from barnabas.storage.delayed_fetch import FetchPurgatory
from barnabas.storage.disk_measurements import DiskCollector
from barnabas.storage.handlers.append import AppendHandler
from barnabas.storage.handlers.delete_records import DeleteRecordsHandler
from barnabas.storage.handlers.describe_log_dirs import DescribeLogDirsHandler
from barnabas.storage.handlers.describe_producers import DescribeProducersHandler
from barnabas.storage.handlers.fetch import FetchHandler
from barnabas.storage.handlers.list_offsets import ListOffsetsHandler
from barnabas.storage.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.storage.log_directories import LogDirectories, find_cluster_id
from barnabas.storage.measurements import StorageCollector
from barnabas.storage.reading import FetchReader
from barnabas.storage.replicas import Replicas
from barnabas.storage.servicer import StorageServicer
from barnabas.storage.upkeep import Upkeep

log = get_logger("storage.service")


@dataclass(frozen=True)
class Executors:
    """The node's threads, apart by what they wait for, so that a slow disk read delays no sync."""

    disk: Executor
    flush: Executor
    read: Executor
    upkeep: Executor
    cleaner: Executor


@contextlib.contextmanager
def make_executors(config: StorageConfig, threads: Threads) -> Iterator[Executors]:
    """The thread pools, ended with the context."""
    recovery_threads = config.num_recovery_threads_per_data_dir * len(config.log_dirs)
    with (
        threads.executor("disk", recovery_threads) as disk,
        threads.executor("flush", limits.FLUSH_THREADS) as flush,
        threads.executor("read", limits.READ_THREADS) as read,
        threads.executor("upkeep", 1) as upkeep,
        threads.executor("log-cleaner", 1) as cleaner,
    ):
        yield Executors(disk, flush, read, upkeep, cleaner)


async def serve(config: StorageConfig, context: ServiceContext) -> None:
    """Run the node until `context.stopping`. Raises StartError for what only the user can mend."""
    environment = context.environment
    with make_executors(config, environment.threads) as executors:
        cluster_id = await _cluster_id(config, context)
        if cluster_id is None:
            return
        try:
            directories = await environment.threads.run(
                LogDirectories.open,
                config.log_dirs,
                cluster_id,
                config.node_id,
                environment,
                producer_id_expiration_ms=config.producer_id_expiration_ms,
            )
        except LogStoreError as error:
            raise StartError(str(error)) from error
        node = StorageNode(config, context, cluster_id, directories, executors)
        try:
            await node.run()
        except BaseException:
            # Not a stop but a failure: what is on disk speaks for itself, and the next start recovers it.
            directories.abandon()
            raise


async def _cluster_id(config: StorageConfig, context: ServiceContext) -> str | None:
    """The cluster of the log directories, or for new ones the controller's; None when stopped before it answers."""
    try:
        known = await context.environment.threads.run(find_cluster_id, config.log_dirs)
    except LogStoreError as error:
        raise StartError(str(error)) from error
    if known:
        return known
    subscription = MetadataSubscription(config.controllers, WatchRequest)
    watching = asyncio.create_task(subscription.run())
    learning = asyncio.create_task(subscription.wait_until(lambda image: bool(image.cluster_id)))
    stopping = asyncio.create_task(context.stopping.wait())
    tasks: list[asyncio.Task[Any]] = [watching, learning, stopping]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return subscription.image.cluster_id or None


class StorageNode:
    """Owner of the parts of one running node."""

    def __init__(
        self,
        config: StorageConfig,
        context: ServiceContext,
        cluster_id: str,
        directories: LogDirectories,
        executors: Executors,
    ) -> None:
        self._config = config
        self._context = context
        self._cluster_id = cluster_id
        self._directories = directories
        self._executors = executors
        self._incarnation_id = str(context.environment.new_id())
        self._refusal: StartError | None = None
        self.purgatory = FetchPurgatory()
        self.replicas = Replicas(
            config.node_id,
            cluster_id,
            directories,
            self.purgatory,
            flush_executor=executors.flush,
            disk_executor=executors.disk,
            static=config.static_settings,
        )
        self.appends = AppendHandler(self.replicas)
        reader = FetchReader(self.replicas, bytes_max=config.fetch_max_bytes)
        self.fetches = FetchHandler(reader, self.purgatory, executors.read, self.replicas.counts)
        self.upkeep = Upkeep(config, self.replicas, directories, executors.upkeep, context.environment.clock)
        self.cleaning = Cleaning(self.replicas, directories, executors.cleaner, context.environment.clock)

    async def run(self) -> None:
        """Recover, serve until the service is to stop, and close. Raises StartError."""
        try:
            await self._recover()
        except LogStoreError as error:
            raise StartError(str(error)) from error
        async with self._serving() as address:
            subscription = MetadataSubscription(self._config.controllers, lambda: self._registration(address))
            subscription.on_change(self.replicas.on_image)
            self._context.environment.registry.register(SubscriptionCollector(subscription))
            self._add_conditions(subscription)
            log.info("storage node is up", node_id=self._config.node_id, address=address)
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self._follow(subscription), name="metadata"),
                    tasks.create_task(self.replicas.run(), name="replicas"),
                    tasks.create_task(self.upkeep.run(), name="upkeep"),
                ]
                if self._config.log_cleaner_enable:
                    background.append(tasks.create_task(self.cleaning.run(), name="log-cleaner"))
                await self._context.stopping.wait()
                for task in background:
                    task.cancel()
        if self._refusal is not None:
            self._directories.abandon()
            raise self._refusal
        # A log that is being opened or looked after in a thread must not be closed under it.
        in_thread = self._context.environment.threads.run
        await in_thread(self._executors.disk.shutdown)
        await in_thread(self._executors.upkeep.shutdown)
        await in_thread(self._executors.cleaner.shutdown)
        await in_thread(self._directories.close, self.replicas.high_watermarks())

    async def _recover(self) -> None:
        count = self._config.num_recovery_threads_per_data_dir
        threads = self._context.environment.threads
        with contextlib.ExitStack() as stack:
            executors = {
                path: stack.enter_context(threads.executor("recovery", count))
                for path in self._directories.paths
            }
            await self.replicas.recover(executors)

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[str]:
        """Answer gRPC and Prometheus while the context is open; gives the address to register."""
        server: grpc.aio.Server = make_server()
        servicer = StorageServicer(
            self.appends,
            self.fetches,
            ListOffsetsHandler(self.replicas, self._executors.read),
            OffsetForLeaderEpochHandler(self.replicas),
            DeleteRecordsHandler(self.replicas, self._executors.read),
            DescribeLogDirsHandler(self.replicas, self._directories, self._executors.read),
            DescribeProducersHandler(self.replicas),
        )
        servicer.add_to(server)
        try:
            address = add_address(server, self._config.listen_address)
        except OSError as error:
            raise StartError(str(error)) from error
        await server.start()
        environment = self._context.environment
        for collector in (
            StorageCollector(self.replicas, self.appends, self.fetches, self.purgatory),
            StreamCollector("server", self.replicas.counts.streams),
            CleanerCollector(self.cleaning, self._directories, environment.clock),
            DiskCollector(self._directories.paths),
        ):
            environment.registry.register(collector)
        try:
            yield self._config.advertised_address or address
        finally:
            await server.stop(limits.STOP_GRACE_SECONDS)

    def _registration(self, address: str) -> WatchRequest:
        node = NodeRecord(
            node_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            address=address,
            rack=self._config.broker_rack,
            configs=_without_secrets(self._config.static_settings),
        )
        if self._config.position >= 0:
            node.position = self._config.position
        return WatchRequest(node=node, cluster_id=self._cluster_id)

    async def _follow(self, subscription: MetadataSubscription) -> None:
        try:
            await subscription.run()
        except RegistrationRefused as error:
            self._refusal = StartError(f"the controller refuses this node: {error}")
            self._context.stopping.set()

    def _add_conditions(self, subscription: MetadataSubscription) -> None:
        def is_registered() -> bool:
            image: MetadataImage = subscription.image
            own = image.nodes.get(self._config.node_id)
            return (
                subscription.is_current
                and own is not None
                and own.incarnation_id == self._incarnation_id
                and not own.fenced
            )

        self._context.health.add_condition("registered with the controller", is_registered)
        self._context.health.add_condition("logs are open", lambda: self.replicas.is_settled)


def _without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with the values of the sensitive ones taken out: nobody but this node has a use for them."""
    return {name: "[hidden]" if broker_setting(name).sensitive else text for name, text in settings.items()}
