"""How long the stages of one request took, under Kafka's names for them.

A request waits its turn (queue), is worked on here (local), waits for another service (remote), waits for the answers
before it (response queue), and is handed to the socket (send). What is local and what remote needs no marks in the
handlers: `run_measured` drives a handler's coroutine and adds up the time between its resumptions and its awaits.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from time import perf_counter
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class RequestTimes:
    """Plain numbers of one request; times are those of time.perf_counter, in seconds, but for `left_at`."""

    __slots__ = (
        "answered",
        "api_key",
        "api_version",
        "errors",
        "is_resent",
        "left_at",
        "local_seconds",
        "received",
        "request_bytes",
        "started",
        "waited_ms",
    )

    def __init__(self, received: float = 0.0, request_bytes: int = 0) -> None:
        self.received = received
        self.started = 0.0
        self.answered = 0.0
        """0 until the request has an answer, or is done and gets none."""
        self.left_at: float | None = None
        """When the answer was handed to the socket, after those of the requests before, or would have been where there
        is none to send; by the event loop's time."""
        self.local_seconds = 0.0
        self.waited_ms = 0
        """What a request has waited already of the time that its client allows, when it takes the general way late."""
        self.request_bytes = request_bytes
        self.api_key = -1
        self.api_version = -1
        self.errors: list[int] | None = None
        self.is_resent = False
        """Whether a leader refused part of it, which went to another one instead."""

    def count_error(self, error_code: int) -> None:
        """The answer holds one of Kafka's error codes; 0 is none."""
        if error_code:
            if self.errors is None:
                self.errors = []
            self.errors.append(error_code)


@types.coroutine
def run_measured(
    work: Coroutine[Any, Any, ResultT], request_times: RequestTimes
) -> Generator[Any, None, ResultT]:
    """Await `work`, noting when it started and ended, and how much of that it ran rather than waited."""
    error: BaseException | None = None
    awaited: Any = None
    resumed = request_times.started = perf_counter()
    try:
        while True:
            try:
                awaited = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                request_times.answered = now = perf_counter()
                request_times.local_seconds += now - resumed
                result: ResultT = end.value
                return result
            request_times.local_seconds += perf_counter() - resumed
            error = None
            try:
                yield awaited
            except BaseException as thrown:  # a cancellation, say: it belongs to the work
                error = thrown
            resumed = perf_counter()
    finally:
        # An error's traceback knows this frame: in a circle they would keep all that the request holds.
        error = awaited = None
