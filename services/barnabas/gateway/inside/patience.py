"""A coordinator that has gone is waited for on behalf of its clients, as it is back or replaced within a second or so.

A client that is sent to look for the coordinator finds this gateway again. Meanwhile librdkafka closes the connection,
looks behind whatever fetch its broker holds, and starts over when a commit fails on the connection that it closed: for
seconds, in which it sends no heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from barnabas.gateway import limits
from barnabas.gateway.request import Request
from barnabas.kernel.errors import KafkaError
from barnabas.links.errors import DeadlinePassed, LinkError, NotSentInTime, OutcomeUnknown, Unreachable
from barnabas.metadata.coordinators import owning_partition

LinkT = TypeVar("LinkT")
ResponseT = TypeVar("ResponseT")


async def ask_patiently(
    request: Request,
    topic: str,
    key: str,
    owner: Callable[[], LinkT],
    call: Callable[[LinkT], Awaitable[ResponseT]],
    *,
    may_repeat: bool,
) -> ResponseT:
    """What `owner()`, the coordinator that `key` of the internal `topic` belongs to, answers to `call`.

    A call that certainly was not carried out is made again for COORDINATOR_AWAITED_SECONDS; with `may_repeat` also one
    of which nobody knows. Raises KafkaError (nobody owns the key) or LinkError (who owns it gives no answer) after
    that, and at once in a gateway that is about to stop: its clients are to go elsewhere.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + limits.COORDINATOR_AWAITED_SECONDS

    def is_over() -> bool:
        return loop.time() >= until or request.parts.sending_away.has_begun

    with request.wait:
        while True:
            try:
                return await call(owner())
            except KafkaError:
                if is_over() or owning_partition(request.image, topic, key) is None:
                    raise
            except LinkError as error:
                if is_over() or not _is_worth_repeating(error, may_repeat=may_repeat):
                    raise
            await asyncio.sleep(limits.COORDINATOR_PAUSE_SECONDS)


def _is_worth_repeating(error: LinkError, *, may_repeat: bool) -> bool:
    if isinstance(error, DeadlinePassed | NotSentInTime):
        return False  # it has been waited for
    return isinstance(error, Unreachable) or (may_repeat and isinstance(error, OutcomeUnknown))
