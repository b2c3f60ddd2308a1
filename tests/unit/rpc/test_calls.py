"""Calls over gRPC: whatever becomes of one, its caller hears of it as an error of links, and of nothing else."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.service import GRPC_EXPERIMENTS
from barnabas.links.controller_link import ControllerLink, ControllerService
from barnabas.links.errors import (
    ConnectionRefused,
    DeadlinePassed,
    LinkError,
    OutcomeUnknown,
    Refusal,
    Refused,
    Unreachable,
)
from barnabas.messages import controller_pb2 as pb
from barnabas.rpc.network import GrpcNetwork
from barnabas.rpc.status_codes import REFUSED_KEY, error_of
from barnabas.rpc.unary_calls import answer_of


class Controller:
    """Fails with `failure`, or answers CreateTopics once `may_answer` is set; Watch first streams two deltas."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.ended: list[str] = []

    async def CreateTopics(self, request: pb.CreateTopicsRequest) -> pb.CreateTopicsResponse:
        if self.failure is not None:
            raise self.failure
        self.asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.ended.append("CreateTopics")
            raise
        return pb.CreateTopicsResponse(topics=[pb.CreatedTopic(name=topic.name) for topic in request.topics])

    async def Watch(self, request: pb.WatchRequest) -> AsyncGenerator[pb.MetadataDelta]:
        try:
            for revision in (1, 2):
                yield pb.MetadataDelta(revision=revision)
            if self.failure is not None:
                raise self.failure
            await self.may_answer.wait()
        finally:
            self.ended.append("Watch")


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
async def link(controller: Controller, tmp_path: Path) -> AsyncIterator[ControllerLink]:
    network = GrpcNetwork()
    server = network.listen(f"unix:{tmp_path}/c")
    await server.serve_controller(cast(ControllerService, controller))
    connected = network.connect_controller(server.address)
    yield connected
    await connected.close()
    await server.stop(None)


def ask(link: ControllerLink, timeout: float | None = 30) -> asyncio.Task[Any]:
    request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name="orders")])
    return asyncio.create_task(cast(Any, link.CreateTopics(request, timeout=timeout)))


async def until(controller: Controller, ended: str) -> None:
    async with asyncio.timeout(10):
        while ended not in controller.ended:
            await asyncio.sleep(0.001)


async def test_an_answer_comes_back(controller: Controller, link: ControllerLink) -> None:
    controller.may_answer.set()
    assert [topic.name for topic in (await ask(link)).topics] == ["orders"]


@pytest.mark.parametrize("why", Refusal)
async def test_every_refusal_arrives_as_itself(
    controller: Controller, link: ControllerLink, why: Refusal
) -> None:
    controller.failure = Refused(why, "the reason")
    with pytest.raises(Refused, match=r"^the reason$") as refused:
        await ask(link)
    assert (refused.value.why, refused.value.code) == (why, None)


async def test_a_refusal_arrives_with_kafkas_error_code(controller: Controller, link: ControllerLink) -> None:
    controller.failure = Refused(Refusal.NEVER_ACCEPTED, "too large", ErrorCode.policy_violation)
    with pytest.raises(Refused, match=r"^too large$") as refused:
        await ask(link)
    assert (refused.value.why, refused.value.code) == (Refusal.NEVER_ACCEPTED, ErrorCode.policy_violation)
    deltas = link.Watch(pb.WatchRequest())
    with pytest.raises(Refused, match=r"^too large$") as ended:
        async for _ in deltas:
            pass
    assert ended.value.code is ErrorCode.policy_violation


@pytest.mark.parametrize("letter", ["x", "ü", "\N{ELEPHANT}"])
async def test_a_reason_of_any_length_arrives_as_far_as_grpc_carries_it(
    controller: Controller, link: ControllerLink, letter: str
) -> None:
    controller.failure = Refused(Refusal.NEVER_ACCEPTED, letter * 100_000, ErrorCode.invalid_config)
    with pytest.raises(Refused, match=f"^{letter}{{400,}}$") as refused:
        await ask(link)
    assert refused.value.code is ErrorCode.invalid_config


async def test_what_grpc_refuses_itself_may_have_been_done(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer over the limit of messages ends with the status of TOO_BUSY, and was carried out."""
    monkeypatch.setattr("barnabas.rpc.connections.OPTIONS", (("grpc.max_receive_message_length", 1000),))
    network = GrpcNetwork()
    server = network.listen(f"unix:{tmp_path}/c")
    await server.serve_controller(cast(ControllerService, controller))
    link = network.connect_controller(server.address)
    controller.may_answer.set()
    with pytest.raises(OutcomeUnknown, match="larger than max"):
        await link.CreateTopics(pb.CreateTopicsRequest(topics=[pb.NewTopic(name="n" * 2000)]))
    assert controller.asked.is_set()
    await link.close()
    await server.stop(None)


def test_a_status_of_an_earlier_version_or_grpc_itself() -> None:
    def told(status: grpc.StatusCode, *marks: tuple[str, str]) -> LinkError:
        metadata = grpc.aio.Metadata(*marks)
        return error_of(grpc.aio.AioRpcError(status, grpc.aio.Metadata(), metadata, "the reason"))

    never = told(grpc.StatusCode.INVALID_ARGUMENT)
    assert isinstance(never, Refused)
    assert (never.why, never.code) == (Refusal.NEVER_ACCEPTED, None)
    assert isinstance(told(grpc.StatusCode.RESOURCE_EXHAUSTED), OutcomeUnknown)
    later = told(grpc.StatusCode.INVALID_ARGUMENT, (REFUSED_KEY, "9999"))
    assert isinstance(later, Refused)
    assert later.code is ErrorCode.unknown_server_error


@pytest.mark.parametrize("failure", [OutcomeUnknown("lost the leadership"), ZeroDivisionError("a mistake")])
async def test_what_the_service_does_not_know_nobody_knows(
    controller: Controller, link: ControllerLink, failure: Exception
) -> None:
    controller.failure = failure
    with pytest.raises(OutcomeUnknown, match=str(failure)) as unknown:
        await ask(link)
    assert not isinstance(unknown.value, DeadlinePassed)


async def test_a_call_that_the_service_lacks(link: ControllerLink) -> None:
    with pytest.raises(Refused) as refused:
        await link.DescribeQuorum(pb.DescribeQuorumRequest())
    assert refused.value.why is Refusal.UNKNOWN_CALL


async def test_a_call_ends_when_its_time_is_over(controller: Controller, link: ControllerLink) -> None:
    with pytest.raises(DeadlinePassed):
        await ask(link, timeout=0.05)


async def outcomes_at(address: str) -> tuple[LinkError, LinkError]:
    """What becomes of the first call to an address where none can succeed, and of a stream after it."""
    link = GrpcNetwork().connect_controller(address)
    with pytest.raises(LinkError) as first:
        await link.CreateTopics(pb.CreateTopicsRequest(), timeout=10)
    with pytest.raises(LinkError) as second:
        await anext(link.Watch(pb.WatchRequest()))
    await link.close()
    return first.value, second.value


async def refuses(address: str) -> bool:
    outcomes = [isinstance(outcome, ConnectionRefused) for outcome in await outcomes_at(address)]
    assert len(set(outcomes)) == 1
    return outcomes[0]


async def test_nobody_at_a_tcp_address_is_a_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert await refuses(f"127.0.0.1:{port}")
    assert await refuses(f"localhost:{port}")


async def test_nobody_at_a_socket_is_a_refused_connection_whether_its_file_is_there_or_not(
    tmp_path: Path,
) -> None:
    assert await refuses(f"unix:{tmp_path}/nobody")
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(f"{tmp_path}/ended")
    assert (tmp_path / "ended").exists()
    assert await refuses(f"unix:{tmp_path}/ended")


REFUSED_BY = """
import asyncio, sys
from barnabas.links.errors import LinkError
from barnabas.messages.controller_pb2 import CreateTopicsRequest
from barnabas.rpc.network import GrpcNetwork

async def main():
    for address in sys.argv[1:]:
        link = GrpcNetwork().connect_controller(address)
        try:
            await link.CreateTopics(CreateTopicsRequest(), timeout=10)
        except LinkError as error:
            print(type(error).__name__, error)
        await link.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("experiments", ["", GRPC_EXPERIMENTS])
def test_a_refused_connection_is_known_by_whichever_part_of_grpc_connects(
    experiments: str, tmp_path: Path
) -> None:
    """gRPC has two, with words of their own, and services have it take another than it does by itself."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    addresses = [f"127.0.0.1:{port}", f"unix:{tmp_path}/nobody"]
    command = [sys.executable, "-c", REFUSED_BY, *addresses]
    told = {**os.environ, "GRPC_EXPERIMENTS": experiments}
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=60, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ConnectionRefused"] * 2, done.stdout


@pytest.mark.parametrize("address", ["nobody.invalid:9", "255.255.255.255:9"])
async def test_a_name_or_a_machine_that_is_not_found_refuses_nothing(address: str) -> None:
    assert not await refuses(address)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_who_takes_a_connection_and_ends_it_refuses_nothing(said: bytes) -> None:
    """So a process does that is about to end, and so does what has its address afterwards."""

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert not await refuses(f"127.0.0.1:{port}")


async def test_a_service_that_tells_of_a_refused_connection_is_there(
    controller: Controller, link: ControllerLink, tmp_path: Path
) -> None:
    """Its reason is the very text that gRPC has for a connection of its own."""
    refused, _ = await outcomes_at(f"unix:{tmp_path}/nobody")
    controller.failure = OutcomeUnknown(str(refused))
    with pytest.raises(OutcomeUnknown) as unknown:
        await ask(link)
    assert str(unknown.value) == str(refused)


async def test_services_are_reached_directly_whatever_proxy_the_machine_has(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy's refusal, or its word of a peer that it does not reach, would be taken for the peer's own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("grpc_proxy", f"http://127.0.0.1:{taken.getsockname()[1]}")
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    network = GrpcNetwork()
    server = network.listen("127.0.0.1:0")
    await server.serve_controller(cast(ControllerService, controller))
    link = network.connect_controller(server.address)
    controller.may_answer.set()
    assert (await ask(link)).topics
    await link.close()
    await server.stop(None)


async def test_a_cancelled_caller_ends_its_call_at_the_service(
    controller: Controller, link: ControllerLink
) -> None:
    call = ask(link)
    await controller.asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(controller, "CreateTopics")


async def test_a_link_that_is_closed_fails_what_waits_and_takes_no_more(
    controller: Controller, link: ControllerLink
) -> None:
    call = ask(link)
    await controller.asked.wait()
    await link.close()
    with pytest.raises(OutcomeUnknown):
        await call
    with pytest.raises(Unreachable):
        await ask(link)
    with pytest.raises(Unreachable):
        await anext(link.Watch(pb.WatchRequest()))


async def test_a_call_that_grpc_cancels_is_lost_and_a_cancelled_caller_is_cancelled() -> None:
    """gRPC ends calls on a closing channel with CancelledError, though nobody cancelled the task."""

    async def closed() -> None:
        raise asyncio.CancelledError

    with pytest.raises(grpc.aio.AioRpcError) as lost:
        await answer_of(closed())
    assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
    task = asyncio.create_task(answer_of(asyncio.sleep(3600)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stream_is_read_to_its_end(controller: Controller, link: ControllerLink) -> None:
    controller.may_answer.set()
    assert [delta.revision async for delta in link.Watch(pb.WatchRequest())] == [1, 2]


async def test_a_stream_is_refused_after_what_it_brought(
    controller: Controller, link: ControllerLink
) -> None:
    controller.failure = Refused(Refusal.OTHER_HISTORY, "another past")
    deltas = link.Watch(pb.WatchRequest())
    assert [(await anext(deltas)).revision, (await anext(deltas)).revision] == [1, 2]
    with pytest.raises(Refused, match="another past"):
        await anext(deltas)


async def test_a_stream_that_its_reader_closes_ends_at_the_service(
    controller: Controller, link: ControllerLink
) -> None:
    deltas = link.Watch(pb.WatchRequest())
    assert (await anext(deltas)).revision == 1
    await deltas.aclose()
    await until(controller, "Watch")


async def test_an_address_that_is_taken_cannot_be_had(tmp_path: Path) -> None:
    network = GrpcNetwork()
    server = network.listen("127.0.0.1:0")
    assert not server.address.endswith(":0")
    with pytest.raises(OSError, match="cannot listen at"):
        network.listen(server.address)
    await server.stop(None)
    await server.stop(None)  # twice is no error
