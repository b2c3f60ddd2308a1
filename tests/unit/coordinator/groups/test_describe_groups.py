"""DescribeGroups at the coordinator: as many groups as the caller takes at a time."""

from __future__ import annotations

import pytest
from coordinator_node import Node, running
from log_in_memory import LogInMemory

from barnabas.messages import coordinator_pb2 as pb

IDS = ["a", "b", "c", "d"]


@pytest.mark.parametrize(("room", "described"), [(0.0, 4), (0.1, 1), (1.0, 1), (2.5, 3), (100.0, 4)])
async def test_an_answer_ends_with_the_group_with_which_it_is_large_enough(
    room: float, described: int
) -> None:
    node = Node("a", LogInMemory())
    node.see("a")
    async with running(node):
        for group_id in IDS:
            joined = await node.join(group=group_id)
            await node.sync(group_id, joined.member_id)
        one = await node.calls.DescribeGroups(pb.DescribeGroupsRequest(group_ids=IDS[:1]))
        bytes_max = int(room * one.groups[0].ByteSize())
        request = pb.DescribeGroupsRequest(group_ids=IDS, bytes_max=bytes_max)
        response = await node.calls.DescribeGroups(request)
        assert [group.group_id for group in response.groups] == IDS[:described]
        assert {group.state for group in response.groups} == {"Stable"}
