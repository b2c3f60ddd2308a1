"""A broker: a gateway, a storage node and, where the settings say so, a coordinator in one process, which meet by
function calls.

The services are those that also run by themselves; this only starts them, has them reach one another (`local_network`,
and for the gateway `local_node`), and ends them in order: others first come to lead what the node leads, then the
gateway ends, then the coordinator, then the node. Others reach them over gRPC as they do any, all at one address.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.gateway import service as gateway
from barnabas.host.config import BrokerConfig
from barnabas.host.local_network import CoordinatorNetwork, LocalNetwork
from barnabas.host.local_node import LocalNode
from barnabas.kernel.service import ServiceContext, StartError
from barnabas.storage import service as storage

if TYPE_CHECKING:
    from barnabas.coordinator.config import CoordinatorConfig
    from barnabas.storage.replica.replicas import Replicas
    from barnabas.storage.servicer import StorageServicer

ServeCoordinator = Callable[["CoordinatorConfig", ServiceContext], Coroutine[Any, Any, None]]


class _Part(NamedTuple):
    """One service of the process."""

    context: ServiceContext
    serving: asyncio.Task[None]


async def serve_coordinator(config: CoordinatorConfig, context: ServiceContext) -> None:
    """The coordinator's own `serve`, imported where it is needed."""
    from barnabas.coordinator import service as coordinator

    await coordinator.serve(config, context)


async def serve(
    config: BrokerConfig,
    context: ServiceContext,
    *,
    make_node: Callable[[int], LocalNode] = LocalNode,
    serve_coordinator: ServeCoordinator = serve_coordinator,
) -> None:
    """Run all until `context.stopping`, or until one of them gives up. Raises StartError.

    A simulation makes the node, of this id, and serves the coordinator, to look at what they have.
    """
    own = config.storage
    network = LocalNetwork(context.environment.network, own.listen_address, own.advertised_address)
    context = replace(context, environment=replace(context.environment, network=network))
    nodes = [make_node(own.node_id)]
    parts, coordinator = [], None
    if config.coordinator is not None:
        # Before the node, which serves it from its own first moment on.
        nodes.append(LocalNode(own.node_id, reads_for_clients=False))
        part = context.part(CoordinatorNetwork(network, nodes[-1]))
        coordinator = _start("coordinator", part, serve_coordinator(config.coordinator, part))
        parts.append(coordinator)
    part = context.part()
    parts.append(_start("storage node", part, storage.serve(own, part, offer=_offer_to(nodes))))
    serving_clients = gateway.serve(config.gateway, context, local=nodes[0])
    parts.insert(0, _start("gateway", context, serving_clients))
    try:
        await asyncio.wait([each.serving for each in parts], return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Whoever ended first, and for whatever reason: the others are to end in order.
        for each in parts:
            each.context.stopping.set()
            if each is coordinator:
                network.coordinator.go_on()
            await asyncio.wait((each.serving,))
    for each in parts:
        _raise_plainly(each.serving.exception())


def _start(name: str, context: ServiceContext, serving: Coroutine[Any, Any, None]) -> _Part:
    return _Part(context, asyncio.create_task(serving, name=name))


def _offer_to(nodes: Sequence[LocalNode]) -> storage.Offer:
    """The node serves all who have a link to it in this process."""

    @asynccontextmanager
    async def serve(
        servicer: StorageServicer, replicas: Replicas, hand_over: storage.HandOver
    ) -> AsyncIterator[None]:
        first, *others = nodes
        async with first.serve(servicer, replicas, hand_over):
            if not others:
                yield
                return
            async with _offer_to(others)(servicer, replicas, hand_over):
                yield

    return serve


def _raise_plainly(error: BaseException | None) -> None:
    """What ended a service: what the user must change comes alone, not in a group."""
    while isinstance(error, BaseExceptionGroup):
        refusals, others = error.split(StartError)
        error = (refusals or others or error).exceptions[0]
    if error is not None:
        raise error
