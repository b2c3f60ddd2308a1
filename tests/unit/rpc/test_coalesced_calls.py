"""A coordinator's calls on one stream: what becomes of each is what would become of it alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from barnabas.kernel.errors import ErrorCode
from barnabas.links.coordinator_link import CoordinatorLink, CoordinatorService
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
from barnabas.messages.calls_pb2 import CallFrame
from barnabas.rpc import limits
from barnabas.rpc.connections import OPTIONS
from barnabas.rpc.network import GrpcNetwork
from barnabas.rpc.server import RpcServer, make_server


class Groups:
    """JoinGroup fails with `failure`, or answers once `may_answer` is set; the others at once."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.may_answer = asyncio.Event()
        self.asked: list[str] = []
        self.cancelled: list[str] = []

    async def JoinGroup(self, request: pb.JoinGroupRequest) -> pb.JoinGroupResponse:
        self.asked.append(request.group_id)
        if self.failure is not None:
            raise self.failure
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled.append(request.group_id)
            raise
        return pb.JoinGroupResponse(member_id=f"member of {request.group_id}")

    async def Heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        self.asked.append(request.group_id)
        return pb.HeartbeatResponse(error_code=request.generation_id)

    async def SyncGroup(self, request: pb.SyncGroupRequest) -> pb.SyncGroupResponse:
        return pb.SyncGroupResponse(assignment=request.assignments[0].assignment)

    async def OffsetFetch(self, request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
        topics = [pb.OffsetFetchTopicResult(name="all")] if request.all_topics else []
        return pb.OffsetFetchResponse(topics=topics)

    async def ListGroups(self, _: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        return pb.ListGroupsResponse()


class Frames:
    """Counts the messages that a server takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[int] = []
        monkeypatch.setattr("barnabas.rpc.call_handlers.CallFrame", self)

    def FromString(self, data: bytes) -> CallFrame:
        frame = CallFrame.FromString(data)
        self.calls.append(len(frame.calls))
        return frame


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Frames:
    return Frames(monkeypatch)


@pytest.fixture
async def server(groups: Groups, frames: Frames, tmp_path: Path) -> AsyncIterator[RpcServer]:
    listening = RpcServer(f"unix:{tmp_path}/c", make_server())
    await listening.serve_coordinator(cast(CoordinatorService, groups))
    yield listening
    await listening.stop(None)


@pytest.fixture
async def link(server: RpcServer) -> AsyncIterator[CoordinatorLink]:
    connected = GrpcNetwork().connect_coordinator(server.address)
    yield connected
    await connected.close()


def join(link: CoordinatorLink, group_id: str = "g", timeout: float | None = 30) -> asyncio.Task[Any]:
    return asyncio.create_task(
        cast(Any, link.JoinGroup(pb.JoinGroupRequest(group_id=group_id), timeout=timeout))
    )


async def beat(link: CoordinatorLink, number: int = 0) -> int:
    request = pb.HeartbeatRequest(group_id="g", generation_id=number)
    return int((await link.Heartbeat(request, timeout=30)).error_code)


async def sync(link: CoordinatorLink, assignment: bytes) -> bytes:
    request = pb.SyncGroupRequest(group_id="g", assignments=[pb.SyncGroupAssignment(assignment=assignment)])
    return (await link.SyncGroup(request, timeout=30)).assignment


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_many_calls_travel_together_and_each_has_its_own_answer(
    link: CoordinatorLink, frames: Frames
) -> None:
    assert await asyncio.gather(*(beat(link, number) for number in range(100))) == list(range(100))
    assert sum(frames.calls) == 100
    assert len(frames.calls) < 10


async def test_a_call_that_waits_holds_up_no_other(link: CoordinatorLink, groups: Groups) -> None:
    waiting = join(link)
    await until(lambda: groups.asked == ["g"])
    assert await beat(link, 7) == 7
    assert not waiting.done()
    groups.may_answer.set()
    assert (await waiting).member_id == "member of g"


async def test_calls_that_wait_for_one_another_are_all_sent_however_large_they_are(
    link: CoordinatorLink, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_IN_FLIGHT_BYTES_MAX", 1)
    waiting = [join(link, name) for name in ("first", "second")]
    assert await beat(link, 7) == 7
    await until(lambda: len(groups.asked) == 3)
    groups.may_answer.set()
    assert [each.member_id for each in await asyncio.gather(*waiting)] == [
        "member of first",
        "member of second",
    ]


@pytest.mark.parametrize("why", Refusal)
async def test_every_refusal_arrives_as_itself(link: CoordinatorLink, groups: Groups, why: Refusal) -> None:
    groups.failure = Refused(why, "the reason", ErrorCode.policy_violation)
    with pytest.raises(Refused, match=r"^the reason$") as refused:
        await join(link)
    assert (refused.value.why, refused.value.code) == (why, ErrorCode.policy_violation)
    groups.failure = Refused(why, "the reason")
    with pytest.raises(Refused) as refused:
        await join(link)
    assert refused.value.code is None


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (OutcomeUnknown("lost the leadership"), OutcomeUnknown),
        (Unreachable("nobody there, half way"), OutcomeUnknown),
        (ZeroDivisionError("a mistake"), OutcomeUnknown),
    ],
)
async def test_other_failures_arrive_as_what_they_mean(
    link: CoordinatorLink, groups: Groups, failure: Exception, told: type[LinkError]
) -> None:
    groups.failure = failure
    with pytest.raises(told) as failed:
        await join(link)
    assert type(failed.value) is told
    assert await beat(link, 3) == 3, "the others go on"


async def test_a_call_that_the_service_lacks(link: CoordinatorLink) -> None:
    with pytest.raises(Refused) as refused:
        await link.DeleteGroups(pb.DeleteGroupsRequest())
    assert refused.value.why is Refusal.UNKNOWN_CALL


async def test_a_cancelled_caller_ends_its_call_at_the_service(link: CoordinatorLink, groups: Groups) -> None:
    calls = [join(link, "kept"), join(link, "dropped")]
    await until(lambda: len(groups.asked) == 2)
    calls[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls[1]
    await until(lambda: groups.cancelled == ["dropped"])
    groups.may_answer.set()
    assert (await calls[0]).member_id == "member of kept"


async def test_a_call_ends_at_the_service_when_its_time_is_over(
    link: CoordinatorLink, groups: Groups
) -> None:
    assert await beat(link) == 0
    with pytest.raises(DeadlinePassed):
        await join(link, timeout=0.05)
    await until(lambda: groups.cancelled == ["g"])


async def test_a_peer_that_goes_away_ends_its_calls(link: CoordinatorLink, groups: Groups) -> None:
    call = join(link)
    await until(lambda: groups.asked == ["g"])
    await link.close()
    with pytest.raises(OutcomeUnknown):
        await call
    await until(lambda: groups.cancelled == ["g"])
    with pytest.raises(Unreachable):
        await join(link)


async def test_a_link_that_is_closed_before_its_stream_has_begun_leaves_no_call_waiting(
    link: CoordinatorLink, groups: Groups
) -> None:
    call = join(link, timeout=None)
    # Its turn comes before that of the stream's first step.
    closing = asyncio.create_task(cast(Any, link.close()))
    async with asyncio.timeout(10):
        with pytest.raises(Unreachable):
            await call
    await closing
    assert groups.asked == []


async def test_an_answer_that_no_message_can_hold_fails_its_call_alone(
    groups: Groups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 1_000
    monkeypatch.setattr(limits, "MESSAGE_BYTES_MAX", most)
    options = (*OPTIONS, ("grpc.max_send_message_length", most))
    server = RpcServer(f"unix:{tmp_path}/c", grpc.aio.server(options=options))
    await server.serve_coordinator(cast(CoordinatorService, groups))
    link = GrpcNetwork().connect_coordinator(server.address)
    waiting = join(link)
    await until(lambda: groups.asked == ["g"])
    with pytest.raises(OutcomeUnknown):
        await sync(link, b"a" * most)
    largest = b"a" * (most - limits.CALL_BYTES - 3)
    assert await sync(link, largest) == largest
    groups.may_answer.set()
    assert (await waiting).member_id == "member of g"
    await link.close()
    await server.stop(None)


async def test_nobody_at_the_address_is_a_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    link = GrpcNetwork().connect_coordinator(f"127.0.0.1:{port}")
    with pytest.raises(ConnectionRefused):
        await join(link)
    await link.close()


async def test_a_service_that_is_stopped_answers_what_it_has_begun_and_begins_nothing(
    link: CoordinatorLink, server: RpcServer, groups: Groups
) -> None:
    begun = join(link)
    await until(lambda: groups.asked == ["g"])
    stopping = asyncio.create_task(server.stop(30))
    await asyncio.sleep(0)
    with pytest.raises(Unreachable, match="being stopped"):
        await join(link, "late")
    groups.may_answer.set()
    assert (await begun).member_id == "member of g"
    await stopping
    assert groups.asked == ["g"]


async def test_a_call_whose_service_is_ended_has_an_unknown_outcome(
    link: CoordinatorLink, server: RpcServer, groups: Groups
) -> None:
    begun = join(link)
    await until(lambda: groups.asked == ["g"])
    await server.stop(0.01)
    with pytest.raises(OutcomeUnknown):
        await begun
    await until(lambda: groups.cancelled == ["g"])


async def test_a_large_request_travels_alone(link: CoordinatorLink, groups: Groups, frames: Frames) -> None:
    groups.may_answer.set()
    large = "g" * (limits.CALL_BYTES_MAX + 1)
    assert (await join(link, large)).member_id.endswith(large)
    assert frames.calls == []


async def test_what_may_have_a_large_answer_travels_alone(link: CoordinatorLink, frames: Frames) -> None:
    all_offsets = pb.OffsetFetchRequest(group_id="g", all_topics=True)
    assert (await link.OffsetFetch(all_offsets, timeout=30)).topics[0].name == "all"
    assert not (await link.ListGroups(pb.ListGroupsRequest(), timeout=30)).groups
    assert frames.calls == []
    assert not (await link.OffsetFetch(pb.OffsetFetchRequest(group_id="g"), timeout=30)).topics
    assert frames.calls == [1]


async def test_a_peer_of_an_earlier_version_is_asked_call_by_call(
    groups: Groups, frames: Frames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_stream(*_: object) -> grpc.RpcMethodHandler[Any, Any] | None:
        return None

    monkeypatch.setattr("barnabas.rpc.call_handlers.calls_handler", without_stream)
    server = RpcServer(f"unix:{tmp_path}/earlier", make_server())
    await server.serve_coordinator(cast(CoordinatorService, groups))
    link = GrpcNetwork().connect_coordinator(server.address)
    # gRPC's client may come upon the stream's end while it writes, and then says no more of it than that.
    with contextlib.suppress(OutcomeUnknown):
        assert await beat(link, 5) == 5
    assert await beat(link, 5) == 5
    assert await asyncio.gather(*(beat(link, number) for number in range(3))) == [0, 1, 2]
    with pytest.raises(Refused) as refused:
        await link.DeleteGroups(pb.DeleteGroupsRequest())
    assert refused.value.why is Refusal.UNKNOWN_CALL
    groups.failure = Refused(Refusal.TOO_BUSY, "later")
    with pytest.raises(Refused, match="later"):
        await join(link)
    assert frames.calls == []
    await link.close()
    await server.stop(None)
