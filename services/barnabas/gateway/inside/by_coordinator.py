"""Asking the coordinators of many groups or transactional ids at once, so many keys of one request at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from barnabas.gateway import limits
from barnabas.gateway.inside.gathered import Gathered
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.gathering import gather
from barnabas.links.errors import LinkError
from barnabas.metadata.coordinators import owning_partition
from barnabas.metadata.leaders import NOBODY_COORDINATES


class Row(Protocol):
    """A message about one key."""

    def ByteSize(self) -> int: ...  # noqa: N802  # protobuf's name


RowT = TypeVar("RowT", bound=Row)


async def gather_rows(
    request: Request,
    gathered: Gathered,
    topic: str,
    keys: Iterable[str],
    call: Callable[[list[str], float], Awaitable[list[RowT]]],
    refused: Callable[[str, ErrorCode], RowT],
) -> dict[str, RowT]:
    """A row for each key: what `call(keys, timeout)` brings of keys that belong to one coordinator, in their order, or
    `refused(key, code)`. A call that brings rows for the first of the keys alone is made again for the others. The
    internal `topic` says who owns which key.

    A request may name tens of thousands of keys: so many at a time are asked for that this service and the
    coordinators serve others in between. Those whose turn does not come in time, or for whose rows there is no room,
    are refused like those of a coordinator that is silent, with the code after which clients ask again.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limits.CALL_TIMEOUT_SECONDS
    rows: dict[str, RowT] = {}

    async def ask(some: list[str], seconds: float) -> list[str]:
        """Returns those for which there are no rows yet."""
        got = await call(some, seconds) or [refused(key, NOBODY_COORDINATES) for key in some]
        gathered.add(sum(row.ByteSize() for row in got))
        rows.update(zip(some, got, strict=False))
        return some[len(got) :]

    waiting = deque(dict.fromkeys(keys))
    while waiting:
        await gathered.may_go_on()
        some = [waiting.popleft() for _ in range(min(len(waiting), limits.KEYS_AT_A_TIME))]
        seconds = deadline - loop.time()
        if seconds > 0 and not gathered.is_full:
            asked = await gather(ask(each, seconds) for each in by_owner(request, topic, some))
            waiting.extendleft(key for left in asked for key in reversed(left))
        else:
            rows.update({key: refused(key, NOBODY_COORDINATES) for key in some})
        await asyncio.sleep(0)  # where no coordinator is known, nothing was waited for
    return rows


def by_owner(request: Request, topic: str, keys: Iterable[str]) -> Iterable[list[str]]:
    """The keys, those of one coordinator together, and those that nobody owns."""
    image = request.image
    owned: dict[str, list[str]] = {}
    for key in keys:
        partition = owning_partition(image, topic, key)
        owned.setdefault("" if partition is None else partition.coordinator_id, []).append(key)
    return owned.values()


def is_shown_here(request: Request, topic: str, key: str) -> bool:
    """Whether the broker whose port the client uses is the one that FindCoordinator names for the key: for lists that
    tools put together from all brokers.
    """
    if not request.client.listener.port_per_node:
        return True
    image = request.image
    partition = owning_partition(image, topic, key)
    return partition is not None and partition.leader == request.addressed_node(image)


def not_answered(request: Request, error: LinkError) -> ErrorCode:
    """The code for a coordinator that gave no answer; the reason is logged here."""
    request.parts.lines.warning("no answer from the coordinator", reason=str(error))
    return NOBODY_COORDINATES
