"""Calls to coordinators of transactions on behalf of clients, and what a client is told when there is no answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.gateway.inside.by_coordinator import RowT, gather_rows, not_answered
from barnabas.gateway.inside.gathered import Gathered
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import LinkError, NotSentInTime, Refused, Unreachable
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from barnabas.links.transactions_link import TransactionsLink

ResponseT = TypeVar("ResponseT")

TV0: Final = 0
TV2: Final = 2
"""Versions of transactions from the client's eyes (KIP-890): the request's version tells which one it goes by."""


async def call_transactions_once(
    request: Request,
    transactional_id: str,
    call: Callable[[TransactionsLink], Awaitable[ResponseT]],
    refused: Callable[[ErrorCode], ResponseT],
) -> ResponseT:
    """As `TRANSACTIONS.ask`, without waiting for one that has gone: for requests about many ids."""
    try:
        coordinator = request.parts.links.transactions_for(transactional_id)
        with request.wait:
            return await call(coordinator)
    except KafkaError as error:
        return refused(error.code)
    except LinkError as error:
        return refused(not_answered(request, error))


async def call_all_transactions(
    request: Request,
    gathered: Gathered,
    transactional_ids: Iterable[str],
    call: Callable[[TransactionsLink, list[str], float], Awaitable[Sequence[RowT]]],
    refused: Callable[[str, ErrorCode], RowT],
) -> dict[str, RowT]:
    """A row for each transactional id: what `call(coordinator, ids, timeout)` brings from its coordinator, in the order
    of the ids, or `refused(id, code)`; see `gather_rows`.
    """

    async def ask(ids: list[str], seconds: float) -> list[RowT]:
        return list(
            await call_transactions_once(
                request,
                ids[0],
                lambda coordinator: call(coordinator, ids, seconds),
                lambda code: [refused(transactional_id, code) for transactional_id in ids],
            )
        )

    return await gather_rows(request, gathered, TRANSACTION_STATE_TOPIC, transactional_ids, ask, refused)


async def call_any_transactions(
    request: Request,
    call: Callable[[TransactionsLink], Awaitable[ResponseT]],
    refused: Callable[[], ResponseT],
) -> ResponseT:
    """The answer of some coordinator, whatever it owns; `refused()` when there is none, or the one that was asked may
    have done it and does not say so.
    """
    links = request.parts.links
    for coordinator_id, coordinator in sorted(request.image.coordinators.items()):
        try:
            with request.wait:
                return await call(links.transactions_at(coordinator.address))
        except LinkError as error:
            request.parts.lines.warning(
                "no answer from the coordinator", coordinator=coordinator_id, reason=str(error)
            )
            if not isinstance(error, Unreachable | Refused) or isinstance(error, NotSentInTime):
                break
    return refused()


def fenced_code(code: int, *, knows_fencing: bool) -> int:
    """Clients that do not know PRODUCER_FENCED (KIP-588) are told INVALID_PRODUCER_EPOCH."""
    if code == ErrorCode.producer_fenced and not knows_fencing:
        return ErrorCode.invalid_producer_epoch
    return code
