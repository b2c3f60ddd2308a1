"""The coordinator's process: subscription to the metadata, server, the partitions' tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.lag import LagMeasurement
from barnabas.coordinator.groups.metrics import GroupMetrics
from barnabas.coordinator.groups.partition_ends import StorageEnds
from barnabas.coordinator.groups.servicer import CoordinatorServicer
from barnabas.coordinator.runtime.topic_log import StorageTopicLog
from barnabas.kernel.logs import get_logger
from barnabas.kernel.service import ServiceContext, StartError
from barnabas.links.network import Network
from barnabas.links.stream_metrics import StreamCollector
from barnabas.links.transaction_questions import TransactionQuestions
from barnabas.messages.controller_pb2 import WatchRequest
from barnabas.messages.metadata_pb2 import CoordinatorRecord
from barnabas.metadata.coordinators import coordinator_of
from barnabas.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, MetadataImage
from barnabas.metadata.subscription import MetadataSubscription, RegistrationRefused
from barnabas.metadata.subscription_metrics import SubscriptionCollector

log = get_logger("coordinator")


MakeCoordinator = Callable[..., GroupCoordinator]
"""Takes what GroupCoordinator takes: a simulation makes the coordinator, to look at what it knows."""


async def serve(
    config: CoordinatorConfig, context: ServiceContext, make_coordinator: MakeCoordinator = GroupCoordinator
) -> None:
    """Run one coordinator until `context.stopping`. Raises StartError when the user must change something."""
    if not config.controllers:
        raise StartError("controllers is empty: give the address of at least one controller")
    environment = context.environment
    try:
        server = environment.network.listen(config.listen_address)
    except OSError as error:
        raise StartError(str(error)) from error
    registration = CoordinatorRecord(
        coordinator_id=config.coordinator_id,
        incarnation_id=str(environment.new_id()),
        address=config.advertised_address or server.address,
    )
    subscription = MetadataSubscription(
        environment.network, config.controllers, lambda: _watch_request(registration, subscription)
    )
    topic_log = StorageTopicLog(
        GROUP_METADATA_TOPIC,
        lambda: subscription.image,
        config,
        registration.incarnation_id,
        environment.network,
    )
    questions = _ask_transactions(environment.network, subscription)
    coordinator = make_coordinator(
        config, environment, topic_log, GroupMetrics(environment.registry), questions
    )
    ends = StorageEnds(lambda: subscription.image, topic_log.link_to)
    lag = LagMeasurement(coordinator.partitions.shards, lambda: subscription.image, ends, environment.clock)
    context.measurements.append(lag.measure)
    streams = StreamCollector("client", topic_log.stream_counts)
    for collector in (lag, streams, SubscriptionCollector(subscription)):
        environment.registry.register(collector)
    subscription.on_change(topic_log.on_image)
    subscription.on_change(coordinator.on_image)
    context.health.add_condition("connected to the controller", lambda: subscription.is_current)
    await server.serve_coordinator(CoordinatorServicer(coordinator))
    log.info("listening", address=server.address, coordinator_id=config.coordinator_id)
    try:
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(subscription.run(), name="metadata"),
                tasks.create_task(coordinator.partitions.run(), name="coordinator"),
            ]
            await context.stopping.wait()
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
        await questions.close()
        await topic_log.close()


def _watch_request(registration: CoordinatorRecord, subscription: MetadataSubscription) -> WatchRequest:
    return WatchRequest(coordinator=registration, cluster_id=subscription.image.cluster_id)


def _ask_transactions(network: Network, subscription: MetadataSubscription) -> TransactionQuestions:
    def address_of(transactional_id: str) -> str | None:
        coordinator = coordinator_of(subscription.image, TRANSACTION_STATE_TOPIC, transactional_id)
        return None if coordinator is None else coordinator.address

    def on_image(_: MetadataImage, new: MetadataImage) -> None:
        questions.keep_links_to({coordinator.address for coordinator in new.coordinators.values()})

    questions = TransactionQuestions(network, address_of, limits.TRANSACTION_ANSWER_SECONDS)
    subscription.on_change(on_image)
    return questions
