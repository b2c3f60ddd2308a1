"""A registered service says that it is alive, and notices by the same call that the controller is not.

The stream of the metadata cannot tell either: the kernel keeps it open while one end is frozen, and a controller that
has nothing to say is silent anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from barnabas.links.errors import DeadlinePassed, LinkError, OutcomeUnknown, Refusal, Refused
from barnabas.messages.controller_pb2 import ServiceHeartbeatRequest, WatchRequest

if TYPE_CHECKING:
    from barnabas.links.controller_link import ControllerLink

HEARTBEAT_SECONDS: Final = 0.75
"""How often a service sends a heartbeat: four in the shortest time after which one is given up as silent."""

HEARTBEAT_TIMEOUT_SECONDS: Final = 2.25
"""A controller that has not answered a heartbeat within this is frozen or cut off: 3 s after it was heard of last."""

IN_TOUCH_SECONDS_MAX: Final = 2.25
"""How long ago a heartbeat may have been sent, of those that were answered, where it counts that the controller cannot
have given up its sender meanwhile: shorter than the shortest time after which it does."""

GOODBYE_SECONDS_MAX: Final = 0.5
"""How long a service that is being stopped waits for the controller to hear of it."""

GOODBYE_AGAIN_SECONDS: Final = 0.1
"""After which it says so again to a controller that did nothing about it: its word may have been lost, or come while
nobody was there who goes on with what it did."""


def heartbeat_of(registration: WatchRequest) -> ServiceHeartbeatRequest | None:
    """The heartbeat of who registers so; None for an observer, whom nobody would miss."""
    match registration.WhichOneof("registration"):
        case "node":
            node = registration.node
            return ServiceHeartbeatRequest(node_id=node.node_id, incarnation_id=node.incarnation_id)
        case "gateway":
            # A controller of an earlier version does not know that gateways have incarnations.
            return ServiceHeartbeatRequest(gateway_id=registration.gateway.gateway_id)
        case "coordinator":
            coordinator = registration.coordinator
            return ServiceHeartbeatRequest(
                coordinator_id=coordinator.coordinator_id, incarnation_id=coordinator.incarnation_id
            )
        case None:
            return None


async def say_goodbye(controller: ControllerLink, registration: WatchRequest) -> None:
    """Tell the controller that this service is being stopped; whether it hears of it is not known. Of whom nobody would
    miss it is not said.
    """
    last = heartbeat_of(registration)
    if last is None:
        return
    if registration.HasField("gateway"):
        last.incarnation_id = registration.gateway.incarnation_id
    last.leaving = True
    with contextlib.suppress(LinkError):
        await controller.ServiceHeartbeat(last, timeout=GOODBYE_SECONDS_MAX)


async def send_heartbeats(
    controller: ControllerLink,
    heartbeat: ServiceHeartbeatRequest,
    on_answered: Callable[[float], None] = lambda _: None,
) -> NoReturn:
    """Send heartbeats until one is not answered as it should be. Raises OutcomeUnknown, which says why.

    `on_answered` hears of each that is when it was sent, by the event loop's time; infinity where none are wanted.
    """
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(HEARTBEAT_SECONDS)
        sent_at = loop.time()
        try:
            await controller.ServiceHeartbeat(heartbeat, timeout=HEARTBEAT_TIMEOUT_SECONDS)
        except DeadlinePassed:
            raise OutcomeUnknown("the controller does not answer heartbeats") from None
        except LinkError as error:
            if not isinstance(error, Refused) or error.why is not Refusal.UNKNOWN_CALL:
                raise OutcomeUnknown(str(error)) from error
            on_answered(math.inf)
            await asyncio.Event().wait()  # a controller of an earlier version, which goes by the stream alone
        on_answered(sent_at)
