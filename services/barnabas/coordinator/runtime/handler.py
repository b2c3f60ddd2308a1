"""How a coordinator handles one kind of request; `answer` is the border where errors become codes.

Most requests ask one partition for one decision, and for nothing else: a `Submission`. Who cannot wait as a task begins
such a request (`begin`), and is told when its answer is there; `BegunRequest` is the border then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger

if TYPE_CHECKING:
    from barnabas.coordinator.runtime.core.decision import Waiter
    from barnabas.coordinator.runtime.partition_runtime import PartitionRuntime

log = get_logger("coordinator.handlers")

CoordinatorT = TypeVar("CoordinatorT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Submission(NamedTuple):
    """What a partition is asked to decide: see `PartitionRuntime.submit`."""

    runtime: PartitionRuntime[Any, Any, Any]
    decide: Callable[[Any, Waiter, Any], None]
    writes: bool = True
    is_brief: bool = False


@dataclass(frozen=True)
class Handler(Generic[CoordinatorT, RequestT, ResponseT]):
    """How one kind of request is handled, and what the caller gets when it cannot be."""

    name: str
    handle: Callable[[CoordinatorT, RequestT], Awaitable[ResponseT]]
    refuse: Callable[[RequestT, KafkaError], ResponseT]
    submission: Callable[[CoordinatorT, RequestT], Submission] | None = None
    """What the request submits, where that is all that handling it is. Raises KafkaError."""


def submitting(
    name: str,
    submission: Callable[[CoordinatorT, RequestT], Submission],
    refuse: Callable[[RequestT, KafkaError], ResponseT],
) -> Handler[CoordinatorT, RequestT, ResponseT]:
    """The handler of requests that are one submission each."""

    async def handle(coordinator: CoordinatorT, request: RequestT) -> ResponseT:
        runtime, decide, writes, is_brief = submission(coordinator, request)
        response: ResponseT = await runtime.submit(decide, writes=writes, is_brief=is_brief)
        return response

    return Handler(name, handle, refuse, submission)


async def answer(
    handler: Handler[CoordinatorT, RequestT, ResponseT], coordinator: CoordinatorT, request: RequestT
) -> ResponseT:
    """The response to `request`, whatever happens: an error nobody foresaw is logged and UNKNOWN_SERVER_ERROR."""
    try:
        return await handler.handle(coordinator, request)
    except Exception as error:
        return _refused(handler, request, error)


def begin(
    handler: Handler[CoordinatorT, RequestT, ResponseT], coordinator: CoordinatorT, request: RequestT
) -> BegunRequest[ResponseT] | None:
    """Have what `request` submits decided now. None, with nothing changed, where it submits more than that, or its
    partition is not loaded yet.
    """
    if handler.submission is None:
        return None
    try:
        runtime, decide, writes, is_brief = handler.submission(coordinator, request)
        if runtime.load_times.is_first_awaited:
            return None
        asked = runtime.begin(decide, writes=writes, is_brief=is_brief)
    except Exception as error:
        asked = asyncio.get_running_loop().create_future()
        asked.set_exception(error)
    return BegunRequest(handler, request, asked)


class BegunRequest(Generic[ResponseT]):
    """A request that was decided about, with its answer, or waiting for it: a `links.begun.Begun`."""

    __slots__ = ("_asked", "_handler", "_request")

    def __init__(
        self, handler: Handler[Any, Any, ResponseT], request: object, asked: asyncio.Future[ResponseT]
    ) -> None:
        self._handler = handler
        self._request = request
        self._asked = asked

    @property
    def is_over(self) -> bool:
        return self._asked.done()

    def response(self) -> ResponseT:
        """As `answer` returns it."""
        try:
            return self._asked.result()
        except Exception as error:
            return _refused(self._handler, self._request, error)

    def on_over(self, callback: Callable[[], None]) -> None:
        """See `Begun`."""
        self._asked.add_done_callback(lambda asked: None if asked.cancelled() else callback())

    def leave(self) -> None:
        """See `Begun`."""
        if not self._asked.cancel():
            self._asked.exception()  # it is over, and nobody is to miss that


def _refused(handler: Handler[Any, RequestT, ResponseT], request: RequestT, error: Exception) -> ResponseT:
    if not isinstance(error, KafkaError):
        log.error("request failed", request=handler.name, exc_info=error)
        error = KafkaError(ErrorCode.unknown_server_error)
    return handler.refuse(request, error)
