"""Several services at one address: they are found there together, and each ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from barnabas.links.coordinator_link import CoordinatorLink, CoordinatorService
from barnabas.links.errors import LinkError, OutcomeUnknown, Unreachable
from barnabas.links.storage_link import StorageLink, StorageService
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.messages import coordinator_pb2 as pb
from barnabas.messages.storage_pb2 import (
    AppendRequest,
    AppendResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from barnabas.rpc.network import GrpcNetwork
from barnabas.rpc.server import RpcServer, make_server


class Groups:
    """A coordinator that answers joins when it may."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def JoinGroup(self, _: pb.JoinGroupRequest) -> pb.JoinGroupResponse:
        self.asked.set()
        await self.may_answer.wait()
        return pb.JoinGroupResponse(member_id="m")

    async def DeleteGroups(self, _: pb.DeleteGroupsRequest) -> pb.DeleteGroupsResponse:
        return pb.DeleteGroupsResponse()

    async def ListGroups(self, _: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        """A call that travels alone."""
        self.asked.set()
        await self.may_answer.wait()
        return pb.ListGroupsResponse()


class Node:
    """A storage node that knows one offset, and answers one append when it is told to."""

    def __init__(self) -> None:
        self.appends = self
        self.answer: Callable[[], None] | None = None

    async def ListOffsets(self, _: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(results=[ListOffsetsResult(offset=7)])

    def handle(self, request: AppendRequest, answer: Callable[[AppendResult], None]) -> None:
        self.answer = lambda: answer(AppendResult(correlation_id=request.correlation_id))


class Address:
    """A storage node and a coordinator beside it, and a link to each."""

    def __init__(self, path: Path) -> None:
        self.groups, self.node = Groups(), Node()
        self.of_node = RpcServer(f"unix:{path}/s", make_server())
        self.of_groups = self.of_node.another()
        self.node_link: StorageLink = GrpcNetwork().connect_storage(self.of_node.address)
        self.groups_link: CoordinatorLink = GrpcNetwork().connect_coordinator(self.of_groups.address)

    async def serve_groups(self) -> None:
        await self.of_groups.serve_coordinator(cast(CoordinatorService, self.groups))

    async def serve_node(self) -> None:
        await self.of_node.serve_storage(cast(StorageService, self.node), StorageStreamCounts())

    async def offset(self) -> int:
        return (await self.node_link.ListOffsets(ListOffsetsRequest(), timeout=30)).results[0].offset

    async def join(self) -> str:
        return (await self.groups_link.JoinGroup(pb.JoinGroupRequest(group_id="g"), timeout=30)).member_id


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[Address]:
    made = Address(tmp_path)
    await made.serve_groups()
    await made.serve_node()
    yield made
    await made.of_groups.stop(None)
    await made.of_node.stop(None)
    await made.node_link.close()
    await made.groups_link.close()


async def test_both_are_found_at_the_address(address: Address) -> None:
    address.groups.may_answer.set()
    assert (await address.offset(), await address.join()) == (7, "m")


async def test_nobody_is_answered_before_the_first_is_served(tmp_path: Path) -> None:
    """Who found the one and not the other would take it for one of an earlier version."""
    made = Address(tmp_path)
    await made.serve_groups()
    made.groups.may_answer.set()
    joining = asyncio.create_task(made.join())
    await asyncio.sleep(0.05)
    assert not made.groups.asked.is_set()
    await made.serve_node()
    assert await joining == "m"
    await made.of_groups.stop(None)
    await made.of_node.stop(None)
    await made.node_link.close()
    await made.groups_link.close()


async def test_one_that_is_stopped_answers_what_it_has_begun_and_the_other_goes_on(address: Address) -> None:
    begun = asyncio.create_task(address.join())
    await address.groups.asked.wait()
    stopping = asyncio.create_task(address.of_groups.stop(30))
    await asyncio.sleep(0)
    with pytest.raises(Unreachable):
        await address.groups_link.DeleteGroups(pb.DeleteGroupsRequest(), timeout=30)
    with pytest.raises(OutcomeUnknown, match="has stopped"):  # a call that travels alone says no more
        await address.groups_link.ListGroups(pb.ListGroupsRequest(), timeout=30)
    assert not stopping.done()
    address.groups.may_answer.set()
    async with asyncio.timeout(10):  # not the whole time that it may
        assert await begun == "m"
        await stopping
    assert await address.offset() == 7


async def test_one_that_is_stopped_answers_a_call_that_travels_alone(address: Address) -> None:
    begun = asyncio.ensure_future(address.groups_link.ListGroups(pb.ListGroupsRequest(), timeout=30))
    await address.groups.asked.wait()
    stopping = asyncio.create_task(address.of_groups.stop(30))
    await address.offset()
    assert not stopping.done()
    address.groups.may_answer.set()
    async with asyncio.timeout(10):
        await stopping
    assert await begun == pb.ListGroupsResponse()


async def test_a_node_that_is_stopped_first_answers_the_appends_that_it_has(address: Address) -> None:
    result = address.node_link.appends.send(AppendRequest())
    while address.node.answer is None:
        await asyncio.sleep(0.001)
    stopping = asyncio.create_task(address.of_node.stop(30))
    address.groups.may_answer.set()
    assert await address.join() == "m"
    assert not stopping.done()
    address.node.answer()
    async with asyncio.timeout(10):
        await stopping
        assert (await result).correlation_id == 1
    assert await address.join() == "m"


async def test_one_that_is_stopped_waits_for_its_calls_no_longer_than_it_may(address: Address) -> None:
    begun = asyncio.create_task(address.join())
    await address.groups.asked.wait()
    await address.of_groups.stop(0.01)
    await address.of_groups.stop(None)  # a second time
    assert not begun.done(), "who ends the coordinator ends what waits in it"
    address.groups.may_answer.set()
    assert await begun == "m"


async def test_whoever_ends_last_gives_the_address_back(address: Address, tmp_path: Path) -> None:
    await address.of_node.stop(None)
    address.groups.may_answer.set()
    assert await address.join() == "m"
    await address.of_groups.stop(None)
    with pytest.raises(LinkError):
        await address.join()
    again = RpcServer(f"unix:{tmp_path}/s", make_server())
    await again.stop(None)
