"""Calls to group coordinators on behalf of clients, and what a client is told when there is no answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.gateway import limits
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import LinkError
from barnabas.messages.coordinator_pb2 import ClientIdentity
from barnabas.metadata.leaders import NOBODY_COORDINATES

if TYPE_CHECKING:
    from barnabas.links.coordinator_link import CoordinatorLink

ResponseT = TypeVar("ResponseT")

LONGEST_REBALANCE_SECONDS: Final = 2**31 / 1000
"""The longest rebalance timeout that the protocol can express (an int32 of milliseconds): for requests that wait for
a rebalance without naming its timeout. The coordinator ends their wait at the group's own timeout."""


async def call_coordinator(
    request: Request,
    group_id: str,
    call: Callable[[CoordinatorLink], Awaitable[ResponseT]],
    refused: Callable[[ErrorCode], ResponseT],
) -> ResponseT:
    """The answer of the coordinator that owns the group, or `refused(code)` when it gives none.

    The code makes clients look up the coordinator again and retry: COORDINATOR_NOT_AVAILABLE.
    """
    try:
        coordinator = request.parts.links.coordinator_for_group(group_id)
        return await call(coordinator)
    except KafkaError as error:
        return refused(error.code)
    except LinkError as error:
        return refused(not_answered(request, error))


def not_answered(request: Request, error: LinkError) -> ErrorCode:
    """The code for a coordinator that gave no answer; the reason is logged here."""
    request.parts.lines.warning("no answer from the coordinator", reason=str(error))
    return NOBODY_COORDINATES


def client_identity(request: Request) -> ClientIdentity:
    """Who is asking, in the form in which Kafka shows it."""
    return ClientIdentity(client_id=request.header.client_id or "", client_host=f"/{request.client.host}")


def rebalance_deadline_seconds(rebalance_timeout_ms: int) -> float:
    """How long a call may take that waits for a rebalance to complete."""
    return max(0, rebalance_timeout_ms) / 1000 + limits.JOIN_GRACE_SECONDS
