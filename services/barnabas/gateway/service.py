"""The gateway as a whole: its parts, its listeners, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget, node_share_bytes
from barnabas.gateway.clients.fetch_sessions import FetchSessions
from barnabas.gateway.clients.listeners import Listener, parse_listeners
from barnabas.gateway.clients.sockets import Sockets
from barnabas.gateway.clients.unread_answers import UnreadAnswers, answer_share_bytes
from barnabas.gateway.config import GatewayConfig
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.faults.rule import FaultRefused
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.inside.links import Links
from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.telemetry.client_telemetry import ClientTelemetry
from barnabas.gateway.telemetry.service import client_telemetry
from barnabas.kernel.environment import Environment
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.kernel.service import ServiceContext, StartError
from barnabas.links.local_storage import LocalStorage
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.links.stream_metrics import StreamCollector
from barnabas.messages.controller_pb2 import WatchRequest
from barnabas.messages.metadata_pb2 import GatewayRecord
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.producer_ids import ProducerIds
from barnabas.metadata.subscription import MetadataSubscription, RegistrationRefused
from barnabas.metadata.subscription_metrics import SubscriptionCollector

log = get_logger("gateway")


async def serve(config: GatewayConfig, context: ServiceContext, *, local: LocalStorage | None = None) -> None:
    """Run the gateway until `context.stopping` is set. `local` is the storage node in this process, if any."""
    async with client_telemetry(config.telemetry_max_bytes, context.environment) as telemetry:
        await _serve(config, context, telemetry, local)


async def _serve(
    config: GatewayConfig, context: ServiceContext, telemetry: ClientTelemetry, local: LocalStorage | None
) -> None:
    if not config.controllers:
        raise StartError("controllers is not set: give the address of the controller")
    listeners = parse_listeners(config.listeners, config.advertised_listeners, config.advertise)
    environment, stream_counts = context.environment, StorageStreamCounts()
    registration = _registration(config, listeners, local, environment)
    network, share_bytes = environment.network, node_share_bytes(config.queued_max_request_bytes)
    unread_answers = UnreadAnswers(answer_share_bytes(config.queued_max_request_bytes))
    metadata = MetadataSubscription(network, config.controllers, lambda: WatchRequest(gateway=registration))
    parts = GatewayParts(
        config=config,
        handlers=HANDLERS,
        clock=environment.clock,
        metadata=metadata,
        links=Links(metadata, network, stream_counts, local, share_bytes, unread_answers),
        fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, environment.random),
        producer_ids=ProducerIds(metadata),
        telemetry=telemetry,
        lines=RareLines(log, environment.clock.monotonic),
        budget=ByteBudget(config.queued_max_request_bytes),
        unread_answers=unread_answers,
    )
    metadata.on_change(parts.lately_fenced.on_metadata)
    metadata.on_change(parts.own_gateways.on_metadata)
    sockets = Sockets(parts, listeners, _injected_faults(config, context), environment.registry, local)
    environment.registry.register(StreamCollector("client", stream_counts))
    environment.registry.register(SubscriptionCollector(metadata))
    # Whether a controller answers now does not count: the image serves on without, and a gateway that is not ready
    # loses its clients to nobody, since all gateways miss the controller together.
    context.health.add_condition("metadata received", lambda: metadata.image.revision > 0)
    context.health.add_condition("shown to clients", _has_been_shown(metadata, registration))
    context.health.add_condition("listening", lambda: sockets.is_serving)
    try:
        await sockets.open(metadata.image)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(_follow_metadata(metadata), name="metadata")
            at_the_door = [
                tasks.create_task(sockets.close_idle_forever(), name="idle connections"),
                tasks.create_task(sockets.follow(metadata), name="listeners"),
            ]
            await context.stopping.wait()
            if local is not None:
                await local.hand_over()
            else:
                await _leave_metadata(config.gateway_id, metadata)
            for task in at_the_door:
                task.cancel()
            await sockets.send_away()
            await sockets.close()
            following.cancel()  # not before: what is under way may wait for the metadata
    finally:
        await sockets.close()
        await parts.producer_ids.close()
        await parts.links.close()


def _registration(
    config: GatewayConfig,
    listeners: Iterable[Listener],
    local: LocalStorage | None,
    environment: Environment,
) -> GatewayRecord:
    return GatewayRecord(
        gateway_id=config.gateway_id,
        rack=config.broker_rack,
        listeners=[listener.record() for listener in listeners],
        node_id=local.node_id if local is not None else None,
        incarnation_id=str(environment.new_id()),
    )


def _has_been_shown(metadata: MetadataSubscription, registration: GatewayRecord) -> Callable[[], bool]:
    """A condition: the metadata have shown this gateway, so that others can send their clients to it. Before that it is
    not ready: a rolling restart would stop the next one, whose clients have nowhere to go then.
    """
    shown = asyncio.Event()

    def on_metadata(_: MetadataImage, image: MetadataImage) -> None:
        known = image.gateways.get(registration.gateway_id)
        if known is not None and known.incarnation_id == registration.incarnation_id:
            shown.set()

    metadata.on_change(on_metadata)
    return shown.is_set


async def _leave_metadata(gateway_id: str, metadata: MetadataSubscription) -> None:
    """Have clients be told of the other gateways, by this one too, before they lose their connections: who is told of
    this one still comes back here, and is refused until somebody notices that it is gone.
    """

    def is_done(image: MetadataImage) -> bool:
        return gateway_id not in image.gateways or len(image.gateways) == 1

    await metadata.leave(is_done, limits.LEAVING_SECONDS_MAX)


def _injected_faults(config: GatewayConfig, context: ServiceContext) -> Faults:
    """No faults, for good unless the settings allow them."""
    faults = Faults()
    if config.fault_injection_enable:
        try:
            faults.load(config.fault_injection_file)
        except (FaultRefused, OSError) as error:
            raise StartError(f"cannot use the faults in {config.fault_injection_file}: {error}") from error
        context.add_endpoint("/faults", faults.answer_http)
    return faults


async def _follow_metadata(metadata: MetadataSubscription) -> None:
    try:
        await metadata.run()
    except RegistrationRefused as error:
        raise StartError(str(error)) from error
