"""Group requests: what the coordinator is told in every version, what the client hears, and what if nobody answers."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from gateway_harness import (
    Gateway,
    answering,
    coordinator_record,
    request_frame,
    small_cluster,
    topic_id,
    topic_records,
)

from barnabas.gateway import limits
from barnabas.gateway.answers.authorized_operations import GROUP_OPERATIONS, NOT_ASKED_FOR
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb
from barnabas.metadata.image import GROUP_METADATA_TOPIC

OFFSET_COMMIT, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = 8, 11, 12, 13, 14, 15, 16
FIND = 10
UNKNOWN_ID = uuid.UUID(int=5).bytes


@pytest.mark.parametrize("version", range(10))
async def test_join_group(version: int) -> None:
    joined = pb.JoinGroupResponse(
        generation_id=3,
        protocol_type="consumer",
        protocol_name="range",
        leader="m1",
        member_id="m1",
        members=[
            pb.JoinGroupMember(member_id="m1", metadata=b"sub"),
            pb.JoinGroupMember(member_id="m2", group_instance_id="i"),
        ],
    )
    gateway = answering("JoinGroup", joined)
    body = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": "m1",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"sub"}],
        "reason": "because",
    }
    answer = await gateway.ask(JOIN, version, body)
    ((_, message, timeout),) = gateway.coordinator.calls
    rebalance_ms = 60_000 if version >= 1 else 10_000
    assert (message.rebalance_timeout_ms, message.session_timeout_ms) == (rebalance_ms, 10_000)
    assert timeout == rebalance_ms / 1000 + limits.JOIN_GRACE_SECONDS
    assert message.require_known_member_id == (version >= 4)
    assert message.supports_skipping_assignment == (version >= 9)
    assert message.HasField("reason") == (version >= 8)
    assert not message.HasField("group_instance_id")
    assert (message.client.client_id, message.client.client_host) == ("test", "/10.1.2.3")
    assert (answer.generation_id, answer.protocol_name, answer.leader) == (3, "range", "m1")
    assert [member.metadata for member in answer.members] == [b"sub", b""]
    if version >= 5:
        assert [member.group_instance_id for member in answer.members] == [None, "i"]


@pytest.mark.usefixtures("time_jumps")
@pytest.mark.parametrize(("version", "protocol"), [(0, ""), (6, ""), (7, None), (9, None)])
async def test_join_group_without_a_coordinator(version: int, protocol: str | None) -> None:
    body = {"group_id": "g", "session_timeout": 10_000, "member_id": "m"}
    answer = await Gateway().ask(JOIN, version, body)
    assert answer.error_code == ErrorCode.coordinator_not_available
    assert (answer.generation_id, answer.protocol_name, answer.member_id) == (-1, protocol, "m")


@pytest.mark.parametrize("version", range(6))
async def test_sync_group(version: int) -> None:
    gateway = answering(
        "SyncGroup", pb.SyncGroupResponse(assignment=b"mine", protocol_type="consumer", protocol_name="range")
    )
    body = {
        "group_id": "g",
        "generation_id": 3,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "m", "assignment": b"a"}],
    }
    answer = await gateway.ask(SYNC, version, body)
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    ((_, message, timeout),) = gateway.coordinator.calls
    assert (message.generation_id, message.assignments[0].assignment) == (3, b"a")
    assert message.HasField("protocol_name") == (version >= 5)
    assert timeout is not None


@pytest.mark.usefixtures("time_jumps")
@pytest.mark.parametrize(("api_key", "versions"), [(SYNC, 6), (HEARTBEAT, 5), (LEAVE, 6)])
async def test_no_coordinator_in_every_version(api_key: int, versions: int) -> None:
    for version in range(versions):
        body = {"group_id": "g", "member_id": "m", "protocol_type": "consumer", "protocol_name": "range"}
        answer = await Gateway().ask(api_key, version, body)
        assert answer.error_code == ErrorCode.coordinator_not_available


@pytest.mark.usefixtures("time_jumps")
async def test_group_without_an_owner_is_not_available() -> None:
    gateway = Gateway([record for record in small_cluster() if not record.HasField("coordinator")])
    answer = await gateway.ask(HEARTBEAT, 3, {"group_id": "g"})
    assert answer.error_code == ErrorCode.coordinator_not_available


@pytest.mark.parametrize("version", range(5))
async def test_heartbeat(version: int) -> None:
    gateway = answering("Heartbeat", pb.HeartbeatResponse(error_code=ErrorCode.rebalance_in_progress))
    body = {"group_id": "g", "generation_id": 4, "member_id": "m", "group_instance_id": "i"}
    answer = await gateway.ask(HEARTBEAT, version, body)
    assert answer.error_code == ErrorCode.rebalance_in_progress
    ((_, message, _),) = gateway.coordinator.calls
    assert (message.generation_id, message.HasField("group_instance_id")) == (4, version >= 3)


@pytest.mark.parametrize("version", range(6))
async def test_leave_group(version: int) -> None:
    left = pb.LeaveGroupResponse(
        members=[pb.LeftMember(member_id="m", error_code=ErrorCode.unknown_member_id)]
    )
    gateway = answering("LeaveGroup", left)
    member = {"member_id": "m", "group_instance_id": None, "reason": "done"}
    answer = await gateway.ask(LEAVE, version, {"group_id": "g", "member_id": "m", "members": [member]})
    ((_, message, _),) = gateway.coordinator.calls
    assert [member.member_id for member in message.members] == ["m"]
    assert message.members[0].HasField("reason") == (version >= 5)
    if version >= 3:
        assert answer.error_code == 0
        assert [(member.member_id, member.error_code) for member in answer.members] == [("m", 25)]
    else:
        assert answer.error_code == 25


def commit_all(message: Any) -> pb.OffsetCommitResponse:
    return pb.OffsetCommitResponse(
        topics=[
            pb.OffsetCommitTopicResult(
                name=topic.name,
                partitions=[pb.OffsetCommitPartitionResult(partition=p.partition) for p in topic.partitions],
            )
            for topic in message.topics
        ]
    )


def commit_body(version: int) -> dict[str, Any]:
    """Two topics that exist, of which one has a partition that does not, and between them one that does not."""
    partitions = [
        {"partition_index": index, "committed_offset": 10 + index, "committed_metadata": "m"}
        for index in (0, 9, 2)
    ]
    identities: list[dict[str, Any]]
    if version >= 10:
        identities = [
            {"topic_id": topic_id("orders")},
            {"topic_id": UNKNOWN_ID},
            {"topic_id": topic_id("bills")},
        ]
    else:
        identities = [{"name": "orders"}, {"name": "none"}, {"name": "bills"}]
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": 3,
        "member_id": "m",
        "retention_time": 60_000,
        "topics": [{**identity, "partitions": partitions} for identity in identities],
    }


@pytest.mark.parametrize("version", range(2, 11))
async def test_offset_commit_mixes_what_exists_and_what_does_not(version: int) -> None:
    gateway = answering("OffsetCommit", commit_all)
    answer = await gateway.ask(OFFSET_COMMIT, version, commit_body(version))
    ((_, message, _),) = gateway.coordinator.calls
    assert [(topic.name, [p.partition for p in topic.partitions]) for topic in message.topics] == [
        ("orders", [0, 2]),
        ("bills", [0]),
    ]
    assert (message.generation_id, message.retention_time_ms) == (3, 60_000 if version <= 4 else -1)
    assert message.topics[0].partitions[1].committed_offset == 12
    missing = 3 if version < 10 else 100
    codes = [[int(partition.error_code) for partition in topic.partitions] for topic in answer.topics]
    assert codes == [[0, 3, 0], [missing] * 3, [0, 3, 3]]
    if version >= 10:
        assert [topic.topic_id.bytes for topic in answer.topics] == [
            topic_id("orders"),
            UNKNOWN_ID,
            topic_id("bills"),
        ]
    else:
        assert [topic.name for topic in answer.topics] == ["orders", "none", "bills"]


@pytest.mark.usefixtures("time_jumps")
async def test_offset_commit_without_a_coordinator() -> None:
    answer = await Gateway().ask(OFFSET_COMMIT, 9, commit_body(9))
    codes = [[int(partition.error_code) for partition in topic.partitions] for topic in answer.topics]
    assert codes == [[15, 3, 15], [3, 3, 3], [15, 3, 3]]


async def test_offset_commit_of_nothing_that_exists_asks_nobody() -> None:
    gateway = Gateway()
    body = {**commit_body(9), "topics": [{"name": "none", "partitions": [{"partition_index": 0}]}]}
    answer = await gateway.ask(OFFSET_COMMIT, 9, body)
    assert answer.topics[0].partitions[0].error_code == 3
    assert gateway.coordinator.calls == []


def describe_all(message: Any) -> pb.DescribeGroupsResponse:
    member = pb.GroupMemberDescription(
        member_id="m",
        group_instance_id="i",
        client=pb.ClientIdentity(client_id="c", client_host="/10.0.0.1"),
        metadata=b"sub",
        assignment=b"ass",
    )
    groups = {
        "g": pb.GroupDescription(
            group_id="g", state="Stable", protocol_type="consumer", protocol="range", members=[member]
        ),
        "h": pb.GroupDescription(
            group_id="h", state="Dead", error_code=69, error_message="Group h not found."
        ),
    }
    return pb.DescribeGroupsResponse(groups=[groups[group_id] for group_id in message.group_ids])


@pytest.mark.parametrize("version", range(7))
async def test_describe_groups(version: int) -> None:
    gateway = answering("DescribeGroups", describe_all)
    answer = await gateway.ask(DESCRIBE, version, {"groups": ["h", "g", "h"]})
    assert [(group.group_id, group.group_state) for group in answer.groups] == [
        ("h", "Dead"),
        ("g", "Stable"),
        ("h", "Dead"),
    ]
    assert len(gateway.coordinator.calls) == 1
    assert answer.groups[0].error_code == (69 if version >= 6 else 0)
    if version >= 6:
        assert answer.groups[0].error_message == "Group h not found."
    (member,) = answer.groups[1].members
    assert (member.client_id, member.client_host) == ("c", "/10.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"sub", b"ass")
    if version >= 4:
        assert member.group_instance_id == "i"


@pytest.mark.parametrize("version", range(3, 7))
async def test_a_group_that_is_shown_without_an_error_has_operations(version: int) -> None:
    """Up to version 5 an unknown group is Dead, not an error, and has them too."""
    body = {"groups": ["g", "h"], "include_authorized_operations": True}
    known, unknown = (await answering("DescribeGroups", describe_all).ask(DESCRIBE, version, body)).groups
    assert known.authorized_operations == GROUP_OPERATIONS
    assert unknown.authorized_operations == (GROUP_OPERATIONS if version < 6 else NOT_ASKED_FOR)


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (DESCRIBE, 6, {"groups": [f"g{index}" for index in range(1_000)]}),
        (FIND, 4, {"key_type": 0, "coordinator_keys": [f"g{index}" for index in range(1_000)]}),
    ],
)
@pytest.mark.parametrize("is_known", [True, False])
async def test_others_are_served_while_many_groups_are_looked_for(
    api_key: int, version: int, body: dict[str, Any], is_known: bool
) -> None:
    gateway = answering(
        "DescribeGroups",
        lambda message: pb.DescribeGroupsResponse(
            groups=[pb.GroupDescription(group_id=group_id) for group_id in message.group_ids]
        ),
    )
    if not is_known:
        gateway.metadata.apply(*topic_records(GROUP_METADATA_TOPIC, [1], coordinator_id="nobody"))
    asking = asyncio.create_task(gateway.ask(api_key, version, body))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 1_000 // limits.KEYS_AT_A_TIME
    answer = await asking
    rows = answer.groups if api_key == DESCRIBE else answer.coordinators
    names = [row.group_id if api_key == DESCRIBE else row.key for row in rows]
    assert names == [f"g{index}" for index in range(1_000)]
    assert {row.error_code for row in rows} == {0 if is_known else ErrorCode.coordinator_not_available}


async def test_describe_groups_without_a_coordinator() -> None:
    answer = await Gateway().ask(DESCRIBE, 6, {"groups": ["g", "h"]})
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("g", 15), ("h", 15)]


@pytest.mark.parametrize("version", range(6))
async def test_list_groups_asks_all_coordinators(version: int) -> None:
    gateway = Gateway([*small_cluster(), coordinator_record("c2")])
    for address, group_id in (("c1", "g"), ("c2", "f")):
        group = pb.ListedGroup(group_id=group_id, protocol_type="consumer", state="Stable", type="classic")
        link = gateway.links.coordinator_at(address)
        link.answers["ListGroups"] = lambda _, group=group: pb.ListGroupsResponse(groups=[group])
    answer = await gateway.ask(LIST, version, {"states_filter": ["Stable"], "types_filter": ["classic"]})
    assert (answer.error_code, [group.group_id for group in answer.groups]) == (0, ["f", "g"])
    message = gateway.coordinator.calls[0][1]
    assert list(message.states) == (["Stable"] if version >= 4 else [])
    assert list(message.types) == (["classic"] if version >= 5 else [])
    if version >= 5:
        assert answer.groups[0].group_type == "classic"


async def test_list_groups_says_that_some_may_be_missing() -> None:
    gateway = Gateway([*small_cluster(), coordinator_record("c2")])
    group = pb.ListedGroup(group_id="g")
    gateway.coordinator.answers["ListGroups"] = lambda _: pb.ListGroupsResponse(groups=[group])
    answer = await gateway.ask(LIST, 4, {})
    assert (answer.error_code, [group.group_id for group in answer.groups]) == (15, ["g"])


async def test_cancelling_a_join_cancels_its_call() -> None:
    gateway, cancelled = Gateway(), asyncio.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    gateway.coordinator.answers["JoinGroup"] = lambda _: wait_for_ever()
    frame = request_frame(JOIN, 5, {"group_id": "g", "session_timeout": 10_000})
    task = asyncio.create_task(gateway.dispatcher.serve(frame, gateway.client))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()


@pytest.mark.usefixtures("time_jumps")
async def test_a_coordinator_that_is_away_is_one_line_and_not_one_a_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = Gateway()
    for _ in range(100):
        for api_key, version in ((HEARTBEAT, 3), (SYNC, 3), (LIST, 4)):
            await gateway.ask(api_key, version, {})
    assert [record.message for record in caplog.records] == ["no answer from the coordinator"]
