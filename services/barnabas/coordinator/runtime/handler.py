"""How a coordinator handles one kind of request; `answer` is the border where errors become codes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger

log = get_logger("coordinator.handlers")

CoordinatorT = TypeVar("CoordinatorT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True)
class Handler(Generic[CoordinatorT, RequestT, ResponseT]):
    """How one kind of request is handled, and what the caller gets when it cannot be."""

    name: str
    handle: Callable[[CoordinatorT, RequestT], Awaitable[ResponseT]]
    refuse: Callable[[RequestT, KafkaError], ResponseT]


async def answer(
    handler: Handler[CoordinatorT, RequestT, ResponseT], coordinator: CoordinatorT, request: RequestT
) -> ResponseT:
    """The response to `request`, whatever happens: an error nobody foresaw is logged and UNKNOWN_SERVER_ERROR."""
    try:
        return await handler.handle(coordinator, request)
    except KafkaError as error:
        return handler.refuse(request, error)
    except Exception:
        log.exception("request failed", request=handler.name)
        return handler.refuse(request, KafkaError(ErrorCode.unknown_server_error))
