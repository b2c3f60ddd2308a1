"""Calls to the coordinator in the same process have the outcomes of calls over a network."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

import pytest

from barnabas.host.local_calls import LocalCalls, LocalService
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.coordinator_link import CoordinatorLink
from barnabas.links.errors import (
    ConnectionRefused,
    DeadlinePassed,
    LinkError,
    OutcomeUnknown,
    Refusal,
    Refused,
    Unreachable,
)
from barnabas.messages import coordinator_pb2 as pb

CONTRACT = pb.DESCRIPTOR.services_by_name["GroupCoordinator"]
BEAT = pb.HeartbeatRequest(group_id="g", generation_id=3)


class Groups:
    """Answers once it may, or fails."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.may_answer = asyncio.Event()
        self.cancelled = 0
        self.may_clean_up = asyncio.Event()
        self.may_clean_up.set()
        self.failure: BaseException | None = None

    async def Heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        self.asked.append(request)
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await self.may_clean_up.wait()
            raise
        if self.failure is not None:
            raise self.failure
        return pb.HeartbeatResponse(error_code=request.generation_id)


class Served:
    def __init__(self) -> None:
        self.groups = Groups()
        self.service: LocalService[Any] = LocalService()
        self.service.serving = self.groups
        self.link = cast(CoordinatorLink, LocalCalls(CONTRACT, self.service))

    def beat(self, timeout: float | None = 30) -> asyncio.Task[Any]:
        return asyncio.create_task(cast(Any, self.link.Heartbeat(BEAT, timeout=timeout)))

    async def begun(self, timeout: float | None = 30) -> asyncio.Task[Any]:
        beating = self.beat(timeout)
        while not self.groups.asked:
            await asyncio.sleep(0)
        return beating


@pytest.fixture
async def served() -> Served:
    return Served()


def test_there_is_a_method_for_each_call_of_the_contract() -> None:
    link = LocalCalls(CONTRACT, cast(Any, None))
    calls = {each.name for each in CONTRACT.methods if not each.client_streaming}
    assert calls == {name for name in vars(link) if not name.startswith("_")}
    assert calls >= {name for name in vars(CoordinatorLink) if name[0].isupper()}


async def test_a_call_is_answered_with_what_the_service_returns(served: Served) -> None:
    served.groups.may_answer.set()
    assert (await served.beat()).error_code == 3
    assert served.groups.asked[0] is BEAT


async def test_a_service_that_does_not_serve_cannot_be_reached(served: Served) -> None:
    served.service.serving = None
    with pytest.raises(Unreachable):
        await served.beat()
    served.service.serving = served.groups  # the link finds one that serves later
    served.groups.may_answer.set()
    assert (await served.beat()).error_code == 3


@pytest.mark.parametrize(
    ("failure", "known"),
    [
        (Refused(Refusal.TOO_BUSY, "later"), Refused),
        (Unreachable("a link of its own"), OutcomeUnknown),
        (ConnectionRefused("a link of its own"), OutcomeUnknown),
        (KeyError("a fault of ours"), OutcomeUnknown),
        (TimeoutError("of something inside"), OutcomeUnknown),
        (KafkaError(ErrorCode.not_coordinator), OutcomeUnknown),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
async def test_what_is_known_of_a_call_that_failed(
    served: Served, failure: BaseException, known: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    served.groups.failure = failure
    served.groups.may_answer.set()
    with pytest.raises(known) as raised:
        await served.beat()
    assert type(raised.value) is known
    is_ours = not isinstance(failure, LinkError)
    assert ("a call failed" in caplog.text) == is_ours, "nobody else says what it was"


async def test_a_call_is_over_when_its_time_is(served: Served) -> None:
    with pytest.raises(DeadlinePassed):
        await served.beat(timeout=0)
    assert served.groups.cancelled == len(served.groups.asked) == 1


async def test_a_call_that_is_cancelled_ends_at_the_service(served: Served) -> None:
    beating = await served.begun()
    beating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beating
    assert served.groups.cancelled == 1
    await served.service.stop(30)  # nothing is under way


async def test_a_call_that_the_service_gives_up_is_not_its_callers_end(served: Served) -> None:
    """A client would lose its connection for it, and who asks for many would ask no more."""
    served.groups.failure = asyncio.CancelledError()
    served.groups.may_answer.set()
    beating = served.beat()
    with pytest.raises(OutcomeUnknown):
        await beating
    assert not beating.cancelled()


async def test_what_waits_fails_with_its_link_and_nothing_else_does(served: Served) -> None:
    other = Served()
    other.service = served.service
    other.link = cast(CoordinatorLink, LocalCalls(CONTRACT, served.service))
    beating, beside = await served.begun(timeout=None), other.beat()
    await served.link.close()
    with pytest.raises(OutcomeUnknown):
        await beating
    served.groups.may_answer.set()
    assert (await beside).error_code == 3


async def test_a_call_of_a_traced_caller_is_a_span(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[tuple[str, str]] = []

    def start_span(name: str, *, traceparent: str) -> contextlib.AbstractContextManager[None]:
        spans.append((name, traceparent))
        return contextlib.nullcontext()

    monkeypatch.setattr("barnabas.host.local_calls.start_span", start_span)
    served.groups.may_answer.set()
    await served.beat()
    assert spans == []
    monkeypatch.setattr("barnabas.host.local_calls.current_traceparent", lambda: "00-1-2-01")
    assert (await served.beat()).error_code == 3
    assert spans == [("coordinator.heartbeat", "00-1-2-01")]


async def test_a_link_is_closed_while_one_of_its_calls_is_given_up(served: Served) -> None:
    """Which may take the service a moment."""
    served.groups.may_clean_up.clear()
    beating = await served.begun(timeout=0)
    other = served.beat(timeout=None)
    while not served.groups.cancelled:
        await asyncio.sleep(0)
    try:
        await served.link.close()
    finally:
        served.groups.may_clean_up.set()
    with pytest.raises(DeadlinePassed):
        await beating
    with pytest.raises(OutcomeUnknown):
        await other


async def test_a_service_that_stops_takes_nothing_and_answers_what_it_has_begun(served: Served) -> None:
    beating = await served.begun()
    stopping = asyncio.create_task(served.service.stop(30))
    await asyncio.sleep(0)
    with pytest.raises(Unreachable):
        await served.beat()
    assert not stopping.done()
    served.groups.may_answer.set()
    async with asyncio.timeout(10):  # not the whole time that it may
        await stopping
    assert (await beating).error_code == 3


async def test_a_service_waits_no_longer_than_it_may(served: Served) -> None:
    beating = await served.begun()
    await served.service.stop(0.01)
    await served.service.stop(None)
    assert not beating.done()
    served.groups.may_answer.set()
    assert (await beating).error_code == 3
