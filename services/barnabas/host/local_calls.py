"""Calls to a service in the same process: plain ones, with the outcomes of calls over a network.

Messages are handed over as they are, so neither end may change what it was given.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from barnabas.kernel.logs import get_logger
from barnabas.kernel.tracing import call_span_name, current_traceparent, start_span
from barnabas.links.deadlines import Deadlines
from barnabas.links.errors import DeadlinePassed, LinkError, OutcomeUnknown, Refused, Unreachable
from barnabas.links.under_way import UnderWay

if TYPE_CHECKING:
    from barnabas.links.begun import Begun
    from barnabas.links.transactions_link import TransactionQuestion, TransactionsService

ServiceT = TypeVar("ServiceT")
ResponseT = TypeVar("ResponseT")

log = get_logger("broker.calls")


@contextlib.contextmanager
def failing_as_elsewhere(call: str, time: asyncio.Timeout) -> Iterator[None]:
    """What fails in the block, a call that has this time, fails as one over a network does: with a LinkError."""
    cancelled_before = _cancellations()
    try:
        yield
    except asyncio.CancelledError:
        if _cancellations() > cancelled_before:
            raise
        # Something that the service waited for was, and not its caller, who would take it for its own end.
        raise OutcomeUnknown(f"{call} was given up in this process") from None
    except Refused:
        raise
    except LinkError as error:
        # Of a link of the service's own: what the service did before it failed is not known here.
        raise OutcomeUnknown(str(error)) from error
    except Exception as error:
        if time.expired():
            raise DeadlinePassed(f"{call} was not answered in time in this process") from None
        log.exception("a call failed", method=call)
        raise OutcomeUnknown(f"unexpected {type(error).__name__}") from error


def _cancellations() -> int:
    """How often the running task has been cancelled, by a time that is over or by whoever does not want it."""
    task = asyncio.current_task()
    assert task is not None, "a call has a time"
    return task.cancelling()


class LocalService(Generic[ServiceT]):
    """A service of this process, while it is served."""

    def __init__(self) -> None:
        self.serving: ServiceT | None = None
        self.under_way = UnderWay()

    def take(self) -> ServiceT:
        """For a call that begins now. Raises Unreachable."""
        if self.serving is None:
            raise Unreachable("the coordinator in this process does not serve")
        return self.serving

    async def stop(self, grace_seconds: float | None) -> None:
        """Take no more calls, and return once those under way are over, after `grace_seconds` at the latest."""
        self.serving = None
        await self.under_way.wait_until_none(grace_seconds)


class LocalCalls:
    """Has a method for each call of the service, as a `...Link` of `links/` has. Owner of the times that they have."""

    def __init__(self, contract: ServiceDescriptor, service: LocalService[Any]) -> None:
        self._service = service
        self._times: dict[asyncio.Timeout, None] = {}
        self._begun: dict[int, BegunCall] = {}
        """Those that are not over, by number."""
        self._begun_count = 0
        self._deadlines = Deadlines(self._give_up)
        for method in contract.methods:
            if not method.client_streaming:
                setattr(self, method.name, self._call(method))

    def _call(self, method: MethodDescriptor) -> Callable[..., Awaitable[Any]]:
        name, span = method.name, call_span_name(method.containing_service.name, method.name)

        async def call(request: Any, *, timeout: float | None = None) -> Any:
            service = self._service.take()
            with self._service.under_way:
                time = asyncio.timeout(timeout)
                self._times[time] = None
                try:
                    with failing_as_elsewhere(name, time):
                        async with time:
                            return await _in_span(span, getattr(service, name)(request))
                finally:
                    del self._times[time]

        return call

    def begin(self, call: str, request: Any, timeout: float) -> Begun | None:
        """Begin the call of this name: see `CoordinatorLink.begin`."""
        begun: Begun | None = self._service.take().begin(call, request)
        if begun is None or begun.is_over:
            return begun
        number = self._begun_count = self._begun_count + 1
        tick = self._deadlines.add(number, timeout)
        self._service.under_way.__enter__()
        waiting = self._begun[number] = BegunCall(call, begun, lambda: self._on_begun_over(number, tick))
        return waiting

    def _on_begun_over(self, number: int, tick: int) -> None:
        del self._begun[number]
        self._deadlines.discard(number, tick)
        self._service.under_way.__exit__()

    def _give_up(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number in self._begun:
                self._begun[number].give_up()

    async def close(self) -> None:
        """What waits fails."""
        self._give_up(list(self._begun))
        self._deadlines.clear()
        now = asyncio.get_running_loop().time()
        for time in self._times:
            if not time.expired():
                time.reschedule(now)


class BegunCall:
    """A call that waits in the service until it is over, given up or left: a `links.begun.Begun`."""

    __slots__ = ("_begun", "_call", "_callback", "_is_late", "_on_end", "is_over")

    def __init__(self, call: str, begun: Begun, on_end: Callable[[], None]) -> None:
        """`on_end` is called once it does not wait any more."""
        self._call = call
        self._begun = begun
        self._on_end = on_end
        self._callback: Callable[[], None]
        self._is_late = False
        self.is_over = False

    def response(self) -> Any:
        """Raises DeadlinePassed."""
        if self._is_late:
            raise DeadlinePassed(f"{self._call} was not answered in time in this process")
        return self._begun.response()

    def on_over(self, callback: Callable[[], None]) -> None:
        """See `Begun`."""
        self._callback = callback
        self._begun.on_over(self._on_over)

    def _on_over(self) -> None:
        if not self.is_over:
            self._end()
            self._callback()

    def give_up(self) -> None:
        """Its time is over, or the service has gone from here."""
        if not self.is_over:
            self._is_late = True
            self.leave()
            self._callback()

    def leave(self) -> None:
        """See `Begun`."""
        if not self.is_over:
            self._end()
            self._begun.leave()

    def _end(self) -> None:
        self.is_over = True
        self._on_end()


class LocalTransactions(LocalCalls):
    """The calls of a transaction coordinator in this process, which can say yes without one."""

    def __init__(self, contract: ServiceDescriptor, service: LocalService[TransactionsService]) -> None:
        super().__init__(contract, service)
        self._transactions = service

    def verify_nowait(self, question: TransactionQuestion) -> bool:
        serving = self._transactions.serving
        return serving is not None and serving.verify_nowait(question)


async def _in_span(name: str, answer: Awaitable[ResponseT]) -> ResponseT:
    """The answer; where the caller is traced, as a span of its own."""
    traceparent = current_traceparent()
    if not traceparent:
        return await answer
    with start_span(name, traceparent=traceparent):
        return await answer
