"""One call of `links/coordinator_link.py`, one file; `answer` is the border where errors become codes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.known_producers import EPOCH_MAX
from barnabas.coordinator.runtime.core.producers import Producer
from barnabas.coordinator.runtime.core.record_strings import STRING_BYTES_MAX, fits_record
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger

log = get_logger("coordinator.handlers")

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True)
class Handler(Generic[RequestT, ResponseT]):
    """How one kind of request is handled, and what the caller gets when it cannot be."""

    name: str
    handle: Callable[[GroupCoordinator, RequestT], Awaitable[ResponseT]]
    refuse: Callable[[RequestT, KafkaError], ResponseT]


async def answer(
    handler: Handler[RequestT, ResponseT], coordinator: GroupCoordinator, request: RequestT
) -> ResponseT:
    """The response to `request`, whatever happens: an error nobody foresaw is logged and UNKNOWN_SERVER_ERROR."""
    try:
        return await handler.handle(coordinator, request)
    except KafkaError as error:
        return handler.refuse(request, error)
    except Exception:
        log.exception("request failed", request=handler.name)
        return handler.refuse(request, KafkaError(ErrorCode.unknown_server_error))


def check_group_id(group_id: str) -> None:
    """Raise INVALID_GROUP_ID for the empty id, which no group with members can have, and as `check_group_id_fits`."""
    if not group_id:
        raise KafkaError(ErrorCode.invalid_group_id, "group.id must not be empty")
    check_group_id_fits(group_id)


def producer_of(producer_id: int, producer_epoch: int) -> Producer:
    """The producer of a transaction. Raises INVALID_PRODUCER_ID_MAPPING for numbers that none has."""
    if producer_id < 0 or not 0 <= producer_epoch <= EPOCH_MAX:
        raise KafkaError(
            ErrorCode.invalid_producer_id_mapping, "no producer of a transaction has these numbers"
        )
    return Producer(producer_id, producer_epoch)


def check_group_id_fits(group_id: str) -> None:
    """Raise INVALID_GROUP_ID for an id that no record can have."""
    if not fits_record(group_id):
        raise KafkaError(ErrorCode.invalid_group_id, f"group.id may have {STRING_BYTES_MAX} bytes")
