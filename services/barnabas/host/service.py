"""A broker: a gateway and a storage node in one process, which meet by function calls.

The two services are those that also run by themselves; this only starts both, hands the gateway a link to the local
node, and ends them in order: others first come to lead what the node leads, then the gateway ends, then the node. Other
gateways, coordinators and nodes reach the storage node over gRPC as they do any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from barnabas.gateway import service as gateway
from barnabas.host.config import BrokerConfig
from barnabas.host.local_node import LocalNode
from barnabas.kernel.service import ServiceContext, StartError
from barnabas.storage import service as storage


async def serve(
    config: BrokerConfig, context: ServiceContext, *, make_node: Callable[[int], LocalNode] = LocalNode
) -> None:
    """Run both until `context.stopping`, or until one of them gives up. Raises StartError.

    A simulation makes the node, of this id, to look at what it has.
    """
    node = make_node(config.storage.node_id)
    # The node stops once the gateway has.
    node_context = context.part()
    serving_node = asyncio.create_task(
        storage.serve(config.storage, node_context, offer=node.serve), name="storage node"
    )
    serving_gateway = asyncio.create_task(gateway.serve(config.gateway, context, local=node), name="gateway")
    tasks: tuple[asyncio.Task[Any], ...] = (serving_gateway, serving_node)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Whoever ended first, and for whatever reason: the other is to end in order.
        context.stopping.set()
        await asyncio.wait((serving_gateway,))
        node_context.stopping.set()
        await asyncio.wait((serving_node,))
    for task in tasks:
        _raise_plainly(task.exception())


def _raise_plainly(error: BaseException | None) -> None:
    """What ended a service: what the user must change comes alone, not in a group."""
    while isinstance(error, BaseExceptionGroup):
        refusals, others = error.split(StartError)
        error = (refusals or others or error).exceptions[0]
    if error is not None:
        raise error
