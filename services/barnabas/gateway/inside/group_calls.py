"""Calls to group coordinators on behalf of clients, and what a client is told when there is no answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.gateway import limits
from barnabas.gateway.inside.by_coordinator import RowT, gather_rows, not_answered
from barnabas.gateway.inside.gathered import Gathered
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import LinkError
from barnabas.messages.coordinator_pb2 import ClientIdentity
from barnabas.metadata.features import GROUP_VERSION
from barnabas.metadata.image import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from barnabas.links.coordinator_link import CoordinatorLink

ResponseT = TypeVar("ResponseT")

LONGEST_REBALANCE_SECONDS: Final = 2**31 / 1000
"""The longest rebalance timeout that the protocol can express (an int32 of milliseconds): for requests that wait for
a rebalance without naming its timeout. The coordinator ends their wait at the group's own timeout."""


async def call_coordinator_once(
    request: Request,
    group_id: str,
    call: Callable[[CoordinatorLink], Awaitable[ResponseT]],
    refused: Callable[[ErrorCode], ResponseT],
) -> ResponseT:
    """As `GROUPS.ask`, without waiting for one that has gone: for requests about many groups, and for those after whose
    refusal clients ask here again, without looking for the coordinator first."""
    try:
        coordinator = request.parts.links.coordinator_for_group(group_id)
        with request.wait:
            return await call(coordinator)
    except KafkaError as error:
        return refused(error.code)
    except LinkError as error:
        return refused(not_answered(request, error))


async def call_coordinators(
    request: Request,
    gathered: Gathered,
    group_ids: Iterable[str],
    call: Callable[[CoordinatorLink, list[str], float], Awaitable[Sequence[RowT]]],
    refused: Callable[[str, ErrorCode], RowT],
) -> dict[str, RowT]:
    """A row for each group: what `call(coordinator, ids, timeout)` brings from its coordinator, in the order of the
    ids, or `refused(id, code)`; see `gather_rows`.
    """

    async def ask(ids: list[str], seconds: float) -> list[RowT]:
        return list(
            await call_coordinator_once(
                request,
                ids[0],
                lambda coordinator: call(coordinator, ids, seconds),
                lambda code: [refused(group_id, code) for group_id in ids],
            )
        )

    return await gather_rows(request, gathered, GROUP_METADATA_TOPIC, group_ids, ask, refused)


def check_consumer_protocol(request: Request) -> None:
    """Raise UNSUPPORTED_VERSION where the cluster has no groups of the newer protocol (KIP-848)."""
    if request.image.features.get(GROUP_VERSION, 0) < 1:
        raise KafkaError(
            ErrorCode.unsupported_version, f"{GROUP_VERSION} is 0: the cluster has classic groups only."
        )


def client_identity(request: Request) -> ClientIdentity:
    """Who is asking, in the form in which Kafka shows it."""
    return ClientIdentity(client_id=request.header.client_id or "", client_host=f"/{request.client.host}")


def rebalance_deadline_seconds(rebalance_timeout_ms: int) -> float:
    """How long a call may take that waits for a rebalance to complete."""
    return max(0, rebalance_timeout_ms) / 1000 + limits.JOIN_GRACE_SECONDS
