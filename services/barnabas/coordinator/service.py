"""The coordinator's process: subscription to the metadata, server, the partitions' tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.lag import LagMeasurement
from barnabas.coordinator.groups.metrics import GroupMetrics
from barnabas.coordinator.groups.partition_ends import StorageEnds
from barnabas.coordinator.groups.servicer import CoordinatorServicer
from barnabas.coordinator.runtime.topic_log import StorageTopicLog
from barnabas.coordinator.transactions.coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.markers.post import LinkPost
from barnabas.coordinator.transactions.metrics import TransactionMetrics
from barnabas.coordinator.transactions.servicer import TransactionsServicer
from barnabas.kernel.environment import Environment
from barnabas.kernel.logs import get_logger
from barnabas.kernel.service import ServiceContext, StartError
from barnabas.links.limits import CONCURRENT_RETRY_MS, CONCURRENT_WAIT_MS
from barnabas.links.network import Network, Server
from barnabas.links.stream_metrics import StreamCollector
from barnabas.links.transaction_questions import TransactionQuestions
from barnabas.messages.controller_pb2 import WatchRequest
from barnabas.messages.metadata_pb2 import CoordinatorRecord
from barnabas.messages.storage_pb2 import CoordinatorIdentity
from barnabas.metadata.coordinators import coordinator_of
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, MetadataImage
from barnabas.metadata.producer_ids import ProducerIds
from barnabas.metadata.subscription import MetadataSubscription, RegistrationRefused
from barnabas.metadata.subscription_metrics import SubscriptionCollector

log = get_logger("coordinator")


MakeGroups = Callable[..., GroupCoordinator]
MakeTransactions = Callable[..., TransactionCoordinator]
"""Take what the classes take: a simulation makes the coordinators, to look at what they know."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the process is made of, apart from its server."""

    subscription: MetadataSubscription
    group_log: StorageTopicLog
    transaction_log: StorageTopicLog
    questions: TransactionQuestions
    groups: GroupCoordinator
    group_calls: CoordinatorServicer
    transactions: TransactionCoordinator
    producer_ids: ProducerIds
    post: LinkPost

    async def close(self) -> None:
        """Once nobody is answered any more."""
        await self.producer_ids.close()
        await self.questions.close()
        await self.post.close()
        await self.transaction_log.close()
        await self.group_log.close()


async def serve(
    config: CoordinatorConfig,
    context: ServiceContext,
    make_coordinator: MakeGroups = GroupCoordinator,
    make_transactions: MakeTransactions = TransactionCoordinator,
) -> None:
    """Run one coordinator until `context.stopping`. Raises StartError when the user must change something."""
    if not config.controllers:
        raise StartError("controllers is empty: give the address of at least one controller")
    environment = context.environment
    try:
        server = environment.network.listen(config.listen_address)
    except OSError as error:
        raise StartError(str(error)) from error
    parts = _assemble(config, environment, server, make_coordinator, make_transactions)
    _measure(parts, context)
    context.health.add_condition("connected to the controller", lambda: parts.subscription.is_current)
    try:
        await server.serve_coordinator(parts.group_calls, TransactionsServicer(parts.transactions))
        if context.stopping.is_set():
            return  # within a broker whose node never came to serve: nobody is to be told of it
        log.info("listening", address=server.address, coordinator_id=config.coordinator_id)
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(parts.subscription.run(), name="metadata"),
                tasks.create_task(parts.groups.partitions.run(), name="coordinator"),
                tasks.create_task(parts.transactions.run(), name="transactions"),
            ]
            await context.stopping.wait()
            await _hand_over(config.coordinator_id, parts.subscription)
            await server.stop(limits.STOP_GRACE_SECONDS)
            for task in background:
                task.cancel()
    except ExceptionGroup as group:  # what `except*` raises comes out in a group, in Python 3.11.2
        refusals, others = group.split(RegistrationRefused)
        if refusals is None or others is not None:
            raise
        raise StartError(f"the controller refuses this coordinator: {refusals.exceptions[0]}") from group
    finally:
        await server.stop(None)
        await parts.close()


async def _hand_over(coordinator_id: str, subscription: MetadataSubscription) -> None:
    """Have others own what this coordinator owns, while it still answers. Where there are no others, or no controller
    hears of it, it goes as it is: the controller gives it the same again when it comes back soon.
    """

    def is_done(image: MetadataImage) -> bool:
        return coordinator_id not in image.coordinators or len(image.coordinators) == 1

    await subscription.leave(is_done, limits.HAND_OVER_SECONDS_MAX)


def _assemble(
    config: CoordinatorConfig,
    environment: Environment,
    server: Server,
    make_groups: MakeGroups,
    make_transactions: MakeTransactions,
) -> _Parts:
    registration = CoordinatorRecord(
        coordinator_id=config.coordinator_id,
        incarnation_id=str(environment.new_id()),
        address=config.advertised_address or server.address,
    )
    network, registry = environment.network, environment.registry
    subscription = MetadataSubscription(
        network, config.controllers, lambda: _watch_request(registration, subscription)
    )

    def image() -> MetadataImage:
        return subscription.image

    identity = CoordinatorIdentity(
        coordinator_id=config.coordinator_id, incarnation_id=registration.incarnation_id
    )
    group_log = StorageTopicLog(GROUP_METADATA_TOPIC, image, config, identity.incarnation_id, network)
    group_metrics = GroupMetrics(registry)
    questions = _ask_transactions(network, subscription)
    groups = make_groups(config, environment, group_log, group_metrics, questions)
    group_calls = CoordinatorServicer(groups)
    transaction_log = StorageTopicLog(
        TRANSACTION_STATE_TOPIC,
        image,
        config,
        identity.incarnation_id,
        network,
        group_log.stream_counts,
        config.transaction_state_log_load_buffer_size,
    )
    # Its streams are those of the transactions' own log: loading and committing offsets does not wait for markers.
    link_to, complete_here = transaction_log.link_to, group_calls.CompleteTransaction
    post = LinkPost(image, environment.clock, identity, link_to, network, complete_here)
    metrics = TransactionMetrics(registry, group_metrics.partitions)
    producer_ids = ProducerIds(subscription)
    transactions = make_transactions(config, environment, transaction_log, metrics, image, producer_ids, post)
    for follower in (group_log, transaction_log, post, groups, transactions):
        subscription.on_change(follower.on_image)
    return _Parts(
        subscription,
        group_log,
        transaction_log,
        questions,
        groups,
        group_calls,
        transactions,
        producer_ids,
        post,
    )


def _measure(parts: _Parts, context: ServiceContext) -> None:
    def image() -> MetadataImage:
        return parts.subscription.image

    ends = StorageEnds(image, parts.group_log.link_to)
    lag = LagMeasurement(parts.groups.partitions.shards, image, ends, context.environment.clock)
    context.measurements.append(lag.measure)
    streams = StreamCollector("client", parts.group_log.stream_counts)
    for collector in (lag, streams, SubscriptionCollector(parts.subscription)):
        context.environment.registry.register(collector)


def _watch_request(registration: CoordinatorRecord, subscription: MetadataSubscription) -> WatchRequest:
    return WatchRequest(coordinator=registration, cluster_id=subscription.image.cluster_id)


def _ask_transactions(network: Network, subscription: MetadataSubscription) -> TransactionQuestions:
    questions = TransactionQuestions(
        network,
        lambda transactional_id: coordinator_of(
            subscription.image, TRANSACTION_STATE_TOPIC, transactional_id
        ),
        retry_ms=CONCURRENT_RETRY_MS,
        retry_ms_max=CONCURRENT_WAIT_MS,
    )
    subscription.on_change(lambda _, new: questions.keep_links_to(new.coordinators))
    return questions
