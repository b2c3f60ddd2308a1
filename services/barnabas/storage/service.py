"""One storage node from start to stop.

Start: learn the cluster's id, open the log directories, recover what they hold, listen, then register with the
controller and follow its metadata. Stop: refuse appends, answer those that were taken, end the streams, then leave the
controller, make the logs durable, mark the clean shutdown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from barnabas.kernel.allocator import collection_put_off
from barnabas.kernel.logs import get_logger
from barnabas.kernel.service import ServiceContext, StartError
from barnabas.links.errors import LinkError
from barnabas.links.stream_metrics import StreamCollector
from barnabas.log.checkpoints.clean_shutdown import UNKNOWN_BROKER_EPOCH, CleanShutdown
from barnabas.log.errors import LogStoreError
from barnabas.messages.controller_pb2 import (
    HandOverRequest,
    RaiseLeaderEpochsRequest,
    ReplicaReport,
    ReportReplicasRequest,
    SeenLeaderEpoch,
    WatchRequest,
)
from barnabas.messages.metadata_pb2 import NodeRecord
from barnabas.metadata.broker_settings import broker_setting
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.subscription import MetadataSubscription, RegistrationRefused
from barnabas.metadata.subscription_metrics import SubscriptionCollector
from barnabas.storage import limits
from barnabas.storage.config import StorageConfig
from barnabas.storage.directories.cluster_id import find_cluster_id
from barnabas.storage.directories.directory_lane import DirectoryLane, open_lanes
from barnabas.storage.directories.disk_metrics import DiskCollector, DiskUsage
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.fetching.delayed_fetch import FetchPurgatory
from barnabas.storage.fetching.reading import FetchReader
from barnabas.storage.fetching.replica_selector import selector_of
from barnabas.storage.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from barnabas.storage.handlers.append import AppendHandler
from barnabas.storage.handlers.delete_records import DeleteRecordsHandler
from barnabas.storage.handlers.describe_log_dirs import DescribeLogDirsHandler
from barnabas.storage.handlers.describe_producers import DescribeProducersHandler
from barnabas.storage.handlers.fetch import FetchHandler
from barnabas.storage.handlers.list_offsets import ListOffsetsHandler
from barnabas.storage.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from barnabas.storage.metrics import StorageCollector
from barnabas.storage.moves.moves_metrics import MovesCollector
from barnabas.storage.replica.caught_up import CaughtUp
from barnabas.storage.replica.refusing_disks import RefusingDisks
from barnabas.storage.replica.refusing_logs import RefusingLogs
from barnabas.storage.replica.replicas import Replicas
from barnabas.storage.replication.fetchers import ReplicaFetchers
from barnabas.storage.replication.follower_session import ReplicationHandler
from barnabas.storage.servicer import StorageServicer
from barnabas.storage.transactions.transactions_metrics import TransactionsCollector
from barnabas.storage.transactions.verification import Verification
from barnabas.storage.upkeep.cleaning import Cleaning
from barnabas.storage.upkeep.cleaning_metrics import CleanerCollector
from barnabas.storage.upkeep.schedules import Upkeep

log = get_logger("storage.service")

StepT = TypeVar("StepT")

HandOver = Callable[[], Awaitable[None]]
"""Has others lead what they can; to be called before the node stops, while it serves."""

Offer = Callable[[StorageServicer, Replicas, HandOver], contextlib.AbstractAsyncContextManager[None]]
"""Open for as long as the node answers: for whoever in this process calls it without a network between."""


async def serve(config: StorageConfig, context: ServiceContext, *, offer: Offer | None = None) -> None:
    """Run the node until `context.stopping`. Raises StartError for what only the user can mend."""
    environment = context.environment
    # From the first moment: a gateway in the same process is ready long before thousands of logs are open.
    recovered = asyncio.Event()
    context.health.add_condition("logs are recovered", recovered.is_set)
    recovery_threads = config.num_recovery_threads_per_data_dir
    with open_lanes(config.log_dirs, environment.threads, opening_threads=recovery_threads) as lanes:
        cluster_id = await _cluster_id(config, context)
        if cluster_id is None:
            return
        opening = environment.threads.run(
            LogDirectories.open,
            config.log_dirs,
            cluster_id,
            config.node_id,
            environment,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )
        directories = await _started(opening, context)
        if directories is None:
            return
        node = StorageNode(config, context, cluster_id, directories, lanes, recovered, offer)
        try:
            await node.run()
        except BaseException:
            # Not a stop but a failure: what is on disk speaks for itself, and the next start recovers it.
            directories.abandon()
            raise


async def _started(step: Coroutine[Any, Any, StepT], context: ServiceContext) -> StepT | None:
    """What a step of the start comes to. Raises StartError for what only the user can mend.

    None where the node is to stop, and the disk has not answered for STARTING_SECONDS_MAX since: what hangs there is
    left behind, as if the node had been killed.
    """
    working = asyncio.create_task(step)
    stopping = asyncio.create_task(context.stopping.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await asyncio.wait((working,), timeout=limits.STARTING_SECONDS_MAX)
        if working.done():
            return working.result()
    except LogStoreError as error:
        raise StartError(str(error)) from error
    finally:
        stopping.cancel()
        working.cancel()
    log.error("the node stops before its log directories have answered: the next start recovers them")
    return None


async def _cluster_id(config: StorageConfig, context: ServiceContext) -> str | None:
    """The cluster of the log directories, or for new ones the controller's; None when stopped before that is known."""
    finding = context.environment.threads.run(find_cluster_id, context.environment.files, config.log_dirs)
    known = await _started(finding, context)
    if known is None or known:
        return known
    subscription = MetadataSubscription(context.environment.network, config.controllers, WatchRequest)
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
        lanes: Mapping[str, DirectoryLane],
        recovered: asyncio.Event,
        offer: Offer | None = None,
    ) -> None:
        """`recovered` is set once the logs that were found are open, and further conditions say what is left."""
        self._offer = offer
        self._recovered = recovered
        self._config = config
        self._context = context
        self._cluster_id = cluster_id
        self._directories = directories
        self._lanes = lanes
        self._incarnation_id = str(context.environment.new_id())
        self._refusal: StartError | None = None
        self._hand_over_until: float | None = None
        self._subscription: MetadataSubscription | None = None
        clock = context.environment.clock
        self.purgatory = FetchPurgatory()
        self.replicas = Replicas(
            config.node_id,
            cluster_id,
            directories,
            lanes,
            self.purgatory,
            clock,
            static=config.static_settings,
        )
        self.fetchers = ReplicaFetchers(self.replicas, context.environment.network)
        self.verification = Verification(self.replicas, context.environment.network)
        self.appends = AppendHandler(self.replicas, self.verification, self._is_in_touch)
        reader = FetchReader(
            self.replicas,
            bytes_max=config.fetch_max_bytes,
            selector=selector_of(self.replicas.broker_value("replica.selector.class")),
        )
        self.fetches = FetchHandler(reader, self.purgatory, self.replicas.counts)
        files = context.environment.files
        self.refusing_disks = RefusingDisks(self.replicas, lanes, clock, files)
        self.refusing_logs = RefusingLogs(self.replicas, lanes, clock, files)
        self.upkeep = Upkeep(config, self.replicas, directories, lanes, clock)
        self.cleaning = Cleaning(self.replicas, directories, lanes, clock)
        self.disk_usage = DiskUsage(lanes, clock, files)

    async def run(self) -> None:
        """Recover, serve until the service is to stop, and close. Raises StartError."""
        with collection_put_off():
            if await _started(self._recover(), self._context) is None:
                return
        async with contextlib.AsyncExitStack() as serving:
            address = await serving.enter_async_context(self._serving())
            subscription = MetadataSubscription(
                self._context.environment.network,
                self._config.controllers,
                lambda: self._registration(address),
            )
            self._subscription = subscription
            subscription.on_change(self.replicas.on_image)
            subscription.on_change(self.fetchers.on_image)
            subscription.on_change(self.verification.on_image)
            self._context.environment.registry.register(SubscriptionCollector(subscription))
            self._add_conditions(subscription)
            self._recovered.set()
            log.info("storage node is up", node_id=self._config.node_id, address=address)
            async with asyncio.TaskGroup() as tasks:
                background = [
                    tasks.create_task(self._follow(subscription), name="metadata"),
                    tasks.create_task(self.replicas.run(), name="replicas"),
                    tasks.create_task(self.fetchers.run(), name="replica fetchers"),
                    tasks.create_task(self._raise_epochs(subscription), name="newer leader epochs"),
                    tasks.create_task(self._change_isr(subscription), name="in-sync replicas"),
                    tasks.create_task(self._report_replicas(subscription), name="offline replicas"),
                    tasks.create_task(self.refusing_disks.run(), name="refusing disks"),
                    tasks.create_task(self.refusing_logs.run(), name="refusing logs"),
                    tasks.create_task(self._watch_lag(), name="lagging followers"),
                    tasks.create_task(self.upkeep.run(), name="upkeep"),
                    tasks.create_task(self.disk_usage.run(), name="disk usage"),
                ]
                if self._config.log_cleaner_enable:
                    background.append(tasks.create_task(self.cleaning.run(), name="log-cleaner"))
                await self._context.stopping.wait()
                await self.hand_over()
                await self.appends.stop(limits.STOP_ANSWERS_SECONDS_MAX)
                if self._hand_over_until is not None:
                    await self.appends.wait_until_unasked()
                # Before the controller is left: gateways wait no longer for a node that has gone.
                await serving.aclose()
                await self.verification.questions.close()
                for task in background:
                    task.cancel()
        if self._refusal is not None:
            self._directories.abandon()
            raise self._refusal
        marker = self._directories.marker(self._epoch_to_mark(), self.replicas.moves.targets)
        await asyncio.gather(*(self._close(lane, marker) for lane in self._lanes.values()))

    async def _recover(self) -> bool:
        await self.replicas.recover()
        return True

    async def _close(self, lane: DirectoryLane, marker: CleanShutdown) -> None:
        """Close one log directory; the others need not wait for one that does not answer, which is recovered."""
        high_watermarks = self.replicas.high_watermarks(lane)

        def close() -> None:
            # A log that is being written, opened or looked after in a thread must not be closed under it.
            lane.join()
            self._directories.close_one(lane.path, high_watermarks, marker)

        lane.close()
        try:
            seconds = min(limits.CLOSING_SECONDS_MAX, self._context.stopping.seconds_left())
            async with asyncio.timeout(seconds):
                await self._context.environment.threads.run(close)
        except TimeoutError:
            log.error("a log directory does not answer: the next start recovers it", log_dir=lane.path)

    def _epoch_to_mark(self) -> int:
        """Under which broker epoch the logs are as they are.

        A process that never came to be registered left them as the one before it had them. If it was registered without
        having heard of it, the controller knows it under another epoch than this, and does not take it for clean.
        """
        own = self._registered()
        if own is not None:
            return own.node_epoch
        previous = self._directories.previous_broker_epoch
        return UNKNOWN_BROKER_EPOCH if previous is None else previous

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[str]:
        """Answer other services and Prometheus while the context is open; gives the address to register."""
        environment = self._context.environment
        try:
            server = environment.network.listen(self._config.listen_address)
        except OSError as error:
            raise StartError(str(error)) from error
        servicer = StorageServicer(
            self.appends,
            self.fetches,
            ReplicationHandler(self.replicas, self.replicas.isr_changes),
            ListOffsetsHandler(self.replicas),
            OffsetForLeaderEpochHandler(self.replicas),
            DeleteRecordsHandler(self.replicas),
            AlterReplicaLogDirsHandler(self.replicas, self._lanes),
            DescribeLogDirsHandler(self.replicas, self._lanes, self._context.environment.files),
            DescribeProducersHandler(self.replicas),
        )
        await server.serve_storage(servicer, self.replicas.counts.streams)
        for collector in (
            StorageCollector(self.replicas, self.appends, self.fetches, self.purgatory),
            StreamCollector("server", self.replicas.counts.streams),
            CleanerCollector(self.cleaning, self._directories, environment.clock),
            DiskCollector(self.disk_usage, self._lanes),
            MovesCollector(self.replicas.moves, self._lanes),
            TransactionsCollector(self.replicas, self.verification, environment.clock),
        ):
            environment.registry.register(collector)
        offered: contextlib.AbstractAsyncContextManager[None] = contextlib.nullcontext()
        if self._offer is not None:
            offered = self._offer(servicer, self.replicas, self.hand_over)
        try:
            async with offered:
                yield self._config.advertised_address or server.address
        finally:
            await server.stop(limits.STOP_GRACE_SECONDS)

    def _registration(self, address: str) -> WatchRequest:
        node = NodeRecord(
            node_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            address=address,
            rack=self._config.broker_rack,
            configs=_without_secrets(self._config.static_settings),
            previous_node_epoch=self._directories.previous_broker_epoch,
            log_directory_ids=self._directories.ids,
            empty_log_directory_ids=sorted(
                each.bytes for each in self._directories.previous.empty_log_directories
            ),
            offline_log_dirs=sorted(self._directories.offline),
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

    async def _raise_epochs(self, subscription: MetadataSubscription) -> None:
        """Tell the controller of newer leader epochs that the logs have seen, until cancelled."""

        async def tell(seen: Sequence[SeenLeaderEpoch]) -> str:
            request = RaiseLeaderEpochsRequest(
                node_id=self._config.node_id, incarnation_id=self._incarnation_id, partitions=seen
            )
            try:
                await subscription.controller.RaiseLeaderEpochs(
                    request, timeout=limits.NEWER_EPOCHS_CALL_SECONDS_MAX
                )
            except LinkError as error:
                return str(error)
            return ""

        await self.replicas.newer_epochs.run(tell)

    async def _change_isr(self, subscription: MetadataSubscription) -> None:
        """Ask the controller for other in-sync replicas, until cancelled."""
        await self.replicas.isr_changes.run(
            lambda request: subscription.controller.AlterPartition(
                request, timeout=limits.ISR_CALL_SECONDS_MAX
            )
        )

    async def _report_replicas(self, subscription: MetadataSubscription) -> None:
        """Tell the controller which replicas cannot be used, and which can be again, until cancelled."""

        async def tell(reports: Sequence[ReplicaReport]) -> str:
            request = ReportReplicasRequest(
                node_id=self._config.node_id, incarnation_id=self._incarnation_id, replicas=reports
            )
            try:
                await subscription.controller.ReportReplicas(request, timeout=limits.REPORT_CALL_SECONDS_MAX)
            except LinkError as error:
                return str(error)
            return ""

        await self.replicas.reports.run(tell)

    async def _watch_lag(self) -> None:
        lag_ms_max = self.replicas.broker_value("replica.lag.time.max.ms")
        assert isinstance(lag_ms_max, int)
        await self.replicas.isr_changes.watch(self.replicas.by_partition.values, lag_ms_max)

    async def hand_over(self) -> None:
        """Have others lead what they can, while this node still serves and follows the metadata.

        First it refuses further records for these partitions, which gateways keep for who leads next, and answers what
        it has taken, where it can be. It may be called again, and has HAND_OVER_SECONDS_MAX since it was called first.
        """
        subscription, replicas = self._subscription, self.replicas.by_partition.values()
        if subscription is None or all(len(replica.record.replicas) <= 1 for replica in replicas):
            return
        request = HandOverRequest(node_id=self._config.node_id, incarnation_id=self._incarnation_id)
        now = asyncio.get_running_loop().time()
        if self._hand_over_until is None:
            self._hand_over_until = now + limits.HAND_OVER_SECONDS_MAX
        elif now >= self._hand_over_until:
            return
        try:
            async with asyncio.timeout_at(self._hand_over_until):
                while await self._leads_for_others(subscription, request):
                    await asyncio.sleep(limits.HAND_OVER_PAUSE_SECONDS)
        except TimeoutError:
            log.warning("this node stops although others do not lead yet what it leads")

    async def _leads_for_others(self, subscription: MetadataSubscription, request: HandOverRequest) -> bool:
        """Ask for it once nothing of clients is under way; returns whether it is to be asked for again."""
        # Also after the hand-over: what nobody else can lead this node goes on leading until it is gone.
        going_on = asyncio.get_running_loop().call_later(
            limits.HAND_OVER_REFUSAL_SECONDS_MAX, self.appends.go_on
        )
        await self.appends.refuse_before_hand_over(limits.HAND_OVER_COPY_SECONDS_MAX)
        try:
            answer = await subscription.controller.HandOver(request, timeout=limits.HAND_OVER_SECONDS_MAX)
        except LinkError as error:
            log.debug("the controller did not have others lead", reason=str(error))
        else:
            if not answer.led_partitions:
                return False
        going_on.cancel()
        self.appends.go_on()
        return True

    def _is_in_touch(self) -> bool:
        return self._subscription is not None and self._subscription.is_in_touch

    def _registered(self) -> NodeRecord | None:
        """This process in the metadata, as far as they are known; None while they name none or another."""
        image = MetadataImage() if self._subscription is None else self._subscription.image
        own = image.nodes.get(self._config.node_id)
        return own if own is not None and own.incarnation_id == self._incarnation_id else None

    def _add_conditions(self, subscription: MetadataSubscription) -> None:
        def is_registered() -> bool:
            own = self._registered()
            return subscription.is_current and own is not None and not own.fenced

        self._context.health.add_condition("registered with the controller", is_registered)
        self._context.health.add_condition("logs are open", lambda: self.replicas.is_settled)
        newer_epochs = self.replicas.newer_epochs
        self._context.health.add_condition(
            "logs have seen no newer leader epochs", lambda: newer_epochs.is_empty
        )
        caught_up = CaughtUp(self._config.node_id, self.replicas.by_partition)

        def is_caught_up() -> bool:
            own = self._registered()
            return own is not None and not own.fenced and caught_up.holds(own.node_epoch)

        self._context.health.add_condition("in sync with the leaders that it follows", is_caught_up)


def _without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with the values of the sensitive ones taken out: nobody but this node has a use for them."""
    return {name: "[hidden]" if broker_setting(name).sensitive else text for name, text in settings.items()}
