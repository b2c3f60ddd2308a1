"""Calls to group coordinators on behalf of clients, and what a client is told when there is no answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from barnabas.gateway import limits
from barnabas.gateway.inside.gathered import Gathered
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import LinkError
from barnabas.messages.coordinator_pb2 import ClientIdentity
from barnabas.metadata.group_partition import partition_for_group
from barnabas.metadata.image import GROUP_METADATA_TOPIC
from barnabas.metadata.leaders import NOBODY_COORDINATES

if TYPE_CHECKING:
    from barnabas.links.coordinator_link import CoordinatorLink

ResponseT = TypeVar("ResponseT")


class Row(Protocol):
    """A message about one group."""

    def ByteSize(self) -> int: ...  # noqa: N802  # protobuf's name


RowT = TypeVar("RowT", bound=Row)

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
    ids, or `refused(id, code)`. A call that brings rows for the first of the ids alone is made again for the others.

    A request may name tens of thousands of groups: so many at a time are asked for that this service and the
    coordinators serve others in between. Those whose turn does not come in time, or for whose rows there is no room,
    are refused like those of a coordinator that is silent, with the code after which clients ask again.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limits.CALL_TIMEOUT_SECONDS
    rows: dict[str, RowT] = {}

    async def ask(ids: list[str], seconds: float) -> list[str]:
        """Returns those for which there are no rows yet."""
        answered = await call_coordinator(
            request,
            ids[0],
            lambda coordinator: call(coordinator, ids, seconds),
            lambda code: [refused(group_id, code) for group_id in ids],
        )
        got = answered or [refused(group_id, NOBODY_COORDINATES) for group_id in ids]
        gathered.add(sum(row.ByteSize() for row in got))
        rows.update(zip(ids, got, strict=False))
        return ids[len(got) :]

    waiting = deque(dict.fromkeys(group_ids))
    while waiting:
        await gathered.may_go_on()
        some = [waiting.popleft() for _ in range(min(len(waiting), limits.GROUPS_AT_A_TIME))]
        seconds = deadline - loop.time()
        if seconds > 0 and not gathered.is_full:
            asked = await asyncio.gather(*(ask(ids, seconds) for ids in _by_coordinator(request, some)))
            waiting.extendleft(group_id for left in asked for group_id in reversed(left))
        else:
            rows.update({group_id: refused(group_id, NOBODY_COORDINATES) for group_id in some})
        await asyncio.sleep(0)  # where no coordinator is known, nothing was waited for
    return rows


def _by_coordinator(request: Request, group_ids: list[str]) -> Iterable[list[str]]:
    """The groups, those of one coordinator together."""
    topic = request.image.topics.get(GROUP_METADATA_TOPIC)
    if topic is None or not topic.partitions:
        return [group_ids]
    owned: dict[str, list[str]] = {}
    for group_id in group_ids:
        partition = topic.partitions[partition_for_group(group_id, len(topic.partitions))]
        owned.setdefault(partition.coordinator_id, []).append(group_id)
    return owned.values()


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
