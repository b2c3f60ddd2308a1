"""Consumer groups of the classic protocol: joining, synchronising, beating, leaving; one member, two, static ones."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from golden_session import Run, scenario
from golden_transactions import coordinators
from raw_client import RawConnection

FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 10, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS = 15, 16, 42
GROUP_REQUESTS: Final = (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS = 79, 27
STATIC_FROM: Final = {JOIN_GROUP: 5, SYNC_GROUP: 3, HEARTBEAT: 3, LEAVE_GROUP: 3}


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """A consumer's subscription, version 0 of its format: Kafka never answers a consumer that sends anything else."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", len(user_data)) + user_data


RANGE: Final = {"name": "range", "metadata": subscription()}
ROUND_ROBIN: Final = {"name": "roundrobin", "metadata": subscription(user_data=b"roundrobin's")}
CHANGED: Final = {"name": "range", "metadata": subscription(user_data=b"changed")}


def join_body(group: str, member: str = "", **fields: Any) -> dict[str, Any]:
    body = {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [RANGE],
    }
    return {**body, **fields}


def sync_body(group: str, member: str, generation: int, *assigned: str, **fields: Any) -> dict[str, Any]:
    assignments = [
        {"member_id": name, "assignment": f"part {place}".encode()} for place, name in enumerate(assigned)
    ]
    body = {
        "group_id": group,
        "member_id": member,
        "generation_id": generation,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": assignments,
    }
    return {**body, **fields}


def beat_body(group: str, member: str, generation: int, **fields: Any) -> dict[str, Any]:
    return {"group_id": group, "member_id": member, "generation_id": generation, **fields}


def leave_body(group: str, *members: str, **fields: Any) -> dict[str, Any]:
    rows = [{"member_id": member, "group_instance_id": None, **fields} for member in members]
    return {"group_id": group, "member_id": members[0] if members else "", "members": rows}


def member_of(run: Run, group: str, *, version: int | None = None, **fields: Any) -> Any:
    """Join quietly as the only member, with the id that is asked for; the answer."""
    joined = run.quietly(JOIN_GROUP, join_body(group, **fields), version=version)
    if joined.error_code == MEMBER_ID_REQUIRED:
        joined = run.quietly(JOIN_GROUP, join_body(group, joined.member_id, **fields), version=version)
    assert joined.error_code == 0, joined
    return joined


def stable_member(run: Run, group: str, **fields: Any) -> Any:
    """The same, with its assignment."""
    joined = member_of(run, group, **fields)
    kind = {"protocol_type": fields["protocol_type"]} if "protocol_type" in fields else {}
    synced = run.quietly(
        SYNC_GROUP, sync_body(group, joined.member_id, joined.generation_id, joined.member_id, **kind)
    )
    assert synced.error_code == 0, synced
    return joined


@scenario(FIND_COORDINATOR)
def find_coordinator(run: Run) -> None:
    coordinators(run)

    def find(step: str, *keys: str, key_type: int = 0) -> None:
        run.ask(step, {"key": keys[0] if keys else "", "key_type": key_type, "coordinator_keys": keys})

    find("group", "some-group")
    find("empty group", "")
    if run.version >= 1:
        for key_type in (2, 3, -1):
            find(f"key type {key_type}", "key", key_type=key_type)
        find("transaction", "some-transaction", key_type=1)
    if run.version >= 4:
        find("several", "a", "b", "c")
        find("none")
        find("twice", "a", "a")


@scenario(JOIN_GROUP)
def join_group(run: Run) -> None:
    run.coordinator()
    group = run.name("group")
    first = run.ask("new", join_body(group))
    member = first.member_id
    if run.version >= 4:
        first = run.ask("with the id", join_body(group, member))
    run.ask("again, before the assignment", join_body(group, member))
    run.quietly(SYNC_GROUP, sync_body(group, member, first.generation_id, member))
    run.ask("again, the leader", join_body(group, member))
    run.ask("other metadata", join_body(group, member, protocols=[CHANGED]))
    run.ask("unknown member", join_body(group, "nobody"))
    run.ask("other protocol", join_body(group, protocols=[ROUND_ROBIN]))
    run.ask("other protocol type", join_body(group, protocol_type="connect"))
    run.ask("no protocols", join_body(group, protocols=[]))
    run.ask("no protocol type", join_body(group, protocol_type=""))
    run.ask("no protocols, new group", join_body(run.name("none"), protocols=[]))
    run.ask("no protocol type, new group", join_body(run.name("typeless"), protocol_type=""))
    run.ask("session too short", join_body(run.name("short"), session_timeout=5_999))
    run.ask("session too long", join_body(run.name("long"), session_timeout=1_800_001))
    run.ask("empty group id", join_body(""))
    run.ask("unknown member, new group", join_body(run.name("unknown"), "nobody"))
    both = run.ask("two protocols", join_body(run.name("both"), protocols=[ROUND_ROBIN, RANGE]))
    if run.version >= 4:
        run.ask(
            "two protocols, with the id",
            join_body(run.name("both"), both.member_id, protocols=[ROUND_ROBIN, RANGE]),
        )
    if run.version >= 8:
        run.ask("with a reason", join_body(run.name("reason"), reason="because"))


@scenario(SYNC_GROUP)
def sync_group(run: Run) -> None:
    run.coordinator()
    group = run.name("group")
    joined = member_of(run, group)
    member, generation = joined.member_id, joined.generation_id
    run.ask("unknown group", sync_body(run.name("nogroup"), "nobody", 1))
    run.ask("unknown member", sync_body(group, "nobody", generation))
    run.ask("old generation", sync_body(group, member, generation - 1))
    run.ask("next generation", sync_body(group, member, generation + 1))
    run.ask("empty group id", sync_body("", member, generation))
    if run.version >= 5:
        run.ask("other protocol type", sync_body(group, member, generation, protocol_type="connect"))
        run.ask("other protocol", sync_body(group, member, generation, protocol_name="roundrobin"))
        run.ask("no protocol", sync_body(group, member, generation, protocol_type=None, protocol_name=None))
    run.ask("assigned", sync_body(group, member, generation, member))
    run.ask("again", sync_body(group, member, generation, member))
    run.ask("follower's form", sync_body(group, member, generation))
    second = run.name("second")
    other = member_of(run, second)
    run.ask("assigned to nobody", sync_body(second, other.member_id, other.generation_id))
    third = run.name("third")
    other = member_of(run, third)
    run.ask("assigned to a stranger", sync_body(third, other.member_id, other.generation_id, "nobody"))


@scenario(HEARTBEAT)
def heartbeat(run: Run) -> None:
    run.coordinator()
    group = run.name("group")
    joined = member_of(run, group)
    member, generation = joined.member_id, joined.generation_id
    run.ask("before the assignment", beat_body(group, member, generation))
    run.quietly(SYNC_GROUP, sync_body(group, member, generation, member))
    run.ask("stable", beat_body(group, member, generation))
    run.ask("old generation", beat_body(group, member, generation - 1))
    run.ask("next generation", beat_body(group, member, generation + 1))
    run.ask("unknown member", beat_body(group, "nobody", generation))
    run.ask("no member", beat_body(group, "", generation))
    run.ask("unknown group", beat_body(run.name("nogroup"), member, generation))
    run.ask("empty group id", beat_body("", member, generation))


@scenario(LEAVE_GROUP)
def leave_group(run: Run) -> None:
    run.coordinator()
    group = run.name("group")
    joined = stable_member(run, group)
    run.ask("unknown member", leave_body(group, "nobody"))
    run.ask("unknown group", leave_body(run.name("nogroup"), "nobody"))
    run.ask("empty group id", leave_body("", joined.member_id))
    run.ask("no member", leave_body(group, ""))
    if run.version >= 3:
        run.ask("no members", leave_body(group))
        run.ask("member and stranger", leave_body(group, joined.member_id, "nobody"))
        run.ask("unknown instance", leave_body(group, "", group_instance_id="no-instance"))
    else:
        run.ask("left", leave_body(group, joined.member_id))
    run.ask("left again", leave_body(group, joined.member_id))
    run.ask("empty group", {"groups": [group]}, api=DESCRIBE_GROUPS)
    waiting = run.quietly(JOIN_GROUP, join_body(group))
    run.ask("promised member", leave_body(group, waiting.member_id))


def two_members(run: Run, other: RawConnection, versions: Mapping[int, int]) -> None:
    """A member, a second one that joins it, both assigned, the leader leaves."""
    group = run.name("group")

    def ask(step: str, api: int, body: Mapping[str, Any]) -> Any:
        return run.ask(step, body, api=api, version=versions[api])

    first = member_of(run, group, version=versions[JOIN_GROUP])
    run.record("first has joined", first, JOIN_GROUP)
    assigned = sync_body(group, first.member_id, first.generation_id, first.member_id)
    run.quietly(SYNC_GROUP, assigned, version=versions[SYNC_GROUP])
    version, member = versions[JOIN_GROUP], ""
    if version >= 4:
        member = run.ask("second is given an id", join_body(group), api=JOIN_GROUP, version=version).member_id
    waiting = other.post(JOIN_GROUP, version, join_body(group, member))
    beat = beat_body(group, first.member_id, first.generation_id)
    run.wait(HEARTBEAT, beat, lambda answer: answer.error_code == REBALANCE_IN_PROGRESS)
    ask("beat while joining", HEARTBEAT, beat)
    ask("synchronised while joining", SYNC_GROUP, sync_body(group, first.member_id, first.generation_id))
    run.ask("described while joining", {"groups": [group]}, api=DESCRIBE_GROUPS)
    leader = ask("first joins again", JOIN_GROUP, join_body(group, first.member_id))
    follower = other.answer(JOIN_GROUP, version, waiting)
    run.record("second has joined", follower, JOIN_GROUP)
    generation = leader.generation_id
    ask("beat before the assignment", HEARTBEAT, beat_body(group, follower.member_id, generation))
    waiting = other.post(SYNC_GROUP, versions[SYNC_GROUP], sync_body(group, follower.member_id, generation))
    ask(
        "leader assigns",
        SYNC_GROUP,
        sync_body(group, leader.member_id, generation, leader.member_id, follower.member_id),
    )
    run.record("follower is assigned", other.answer(SYNC_GROUP, versions[SYNC_GROUP], waiting), SYNC_GROUP)
    run.ask("described", {"groups": [group]}, api=DESCRIBE_GROUPS)
    ask("beat of the follower", HEARTBEAT, beat_body(group, follower.member_id, generation))
    ask("follower joins again, unchanged", JOIN_GROUP, join_body(group, follower.member_id))
    ask("leader leaves", LEAVE_GROUP, leave_body(group, leader.member_id))
    ask("beat after it", HEARTBEAT, beat_body(group, follower.member_id, generation))
    alone = ask("follower joins anew", JOIN_GROUP, join_body(group, follower.member_id))
    ask("follower leaves", LEAVE_GROUP, leave_body(group, follower.member_id))
    ask("beat of one that left", HEARTBEAT, beat_body(group, follower.member_id, alone.generation_id))
    run.ask("described at the end", {"groups": [group]}, api=DESCRIBE_GROUPS)


def each_in(run: Run) -> dict[int, int]:
    """This version of each group request, or the newest that it has."""
    return {api: min(run.version, run.newest(api)) for api in GROUP_REQUESTS}


@scenario(JOIN_GROUP)
def group_of_two(run: Run) -> None:
    run.coordinator()
    with run.connect() as other:
        two_members(run, other, each_in(run))


@scenario(JOIN_GROUP)
def static_members(run: Run) -> None:
    """Static membership and its fencing (KIP-345)."""
    if run.version < STATIC_FROM[JOIN_GROUP]:
        return
    run.coordinator()
    group = run.name("group")
    versions = {api: max(version, STATIC_FROM[api]) for api, version in each_in(run).items()}
    static = {"group_instance_id": "instance"}

    def ask(step: str, api: int, body: Mapping[str, Any]) -> Any:
        return run.ask(step, body, api=api, version=versions[api])

    first = ask("joined", JOIN_GROUP, join_body(group, **static))
    ask(
        "assigned",
        SYNC_GROUP,
        sync_body(group, first.member_id, first.generation_id, first.member_id, **static),
    )
    run.ask("described", {"groups": [group]}, api=DESCRIBE_GROUPS)
    ask("beat", HEARTBEAT, beat_body(group, first.member_id, first.generation_id, **static))
    ask("beat without the instance", HEARTBEAT, beat_body(group, first.member_id, first.generation_id))
    second = ask("started again", JOIN_GROUP, join_body(group, **static))
    ask("beat of the one before", HEARTBEAT, beat_body(group, first.member_id, first.generation_id, **static))
    ask(
        "synchronised by the one before",
        SYNC_GROUP,
        sync_body(group, first.member_id, first.generation_id, **static),
    )
    ask("joined by the one before", JOIN_GROUP, join_body(group, first.member_id, **static))
    ask("assigned again", SYNC_GROUP, sync_body(group, second.member_id, second.generation_id, **static))
    ask(
        "unknown instance beats",
        HEARTBEAT,
        beat_body(group, second.member_id, second.generation_id, group_instance_id="x"),
    )
    ask("unknown instance joins with an id", JOIN_GROUP, join_body(group, "nobody", group_instance_id="x"))
    changed = join_body(group, protocols=[CHANGED], **static)
    third = ask("started with another subscription", JOIN_GROUP, changed)
    ask(
        "assigned once more",
        SYNC_GROUP,
        sync_body(group, third.member_id, third.generation_id, third.member_id, **static),
    )
    ask("left by the one before", LEAVE_GROUP, leave_body(group, first.member_id, **static))
    ask("left by instance", LEAVE_GROUP, leave_body(group, "", **static))
    ask("left by instance again", LEAVE_GROUP, leave_body(group, "", **static))


@scenario(DESCRIBE_GROUPS)
def describe_groups(run: Run) -> None:
    run.coordinator()
    group = run.name("group")
    stable_member(run, group)
    run.ask("stable", {"groups": [group]})
    run.ask("unknown", {"groups": [run.name("nogroup")]})
    run.ask("known and unknown", {"groups": [group, run.name("nogroup")]})
    run.ask("empty id", {"groups": [""]})
    run.ask("none", {"groups": []})
    run.ask("twice", {"groups": [group, group]})
    if run.version >= 3:
        groups = [group, run.name("nogroup"), ""]
        run.ask("with authorized operations", {"groups": groups, "include_authorized_operations": True})


@scenario(LIST_GROUPS)
def list_groups(run: Run) -> None:
    run.coordinator()

    def show(step: str, **fields: Any) -> None:
        """Only the groups of this run: others come and go."""
        answer = run.quietly(LIST_GROUPS, fields, version=run.version)
        mine = [row for row in answer.groups if row.group_id.startswith(run.name(""))]
        run.record(step, {"error_code": answer.error_code, "groups": mine})

    stable_member(run, run.name("stable"))
    left = stable_member(run, run.name("empty"))
    run.quietly(LEAVE_GROUP, leave_body(run.name("empty"), left.member_id))
    stable_member(run, run.name("connect"), protocol_type="connect")
    member_of(run, run.name("unassigned"))
    show("all")
    if run.version >= 4:
        for states in (
            ["Stable"],
            ["Empty"],
            ["stable"],
            ["Empty", "CompletingRebalance"],
            ["Dead"],
            ["NoSuchState"],
            [""],
        ):
            show(f"states {states}", states_filter=states)
    if run.version >= 5:
        for types in (["classic"], ["Classic"], ["consumer"], ["share"], ["nosuchtype"]):
            show(f"types {types}", types_filter=types)
        show("state and type", states_filter=["Stable"], types_filter=["classic"])


@scenario(DELETE_GROUPS)
def delete_groups(run: Run) -> None:
    run.coordinator()
    busy, empty = run.name("busy"), run.name("empty")
    stable_member(run, busy)
    left = stable_member(run, empty)
    run.quietly(LEAVE_GROUP, leave_body(empty, left.member_id))
    run.ask("busy", {"groups_names": [busy]})
    run.ask("unknown", {"groups_names": [run.name("nogroup")]})
    run.ask("empty id", {"groups_names": [""]})
    run.ask("none", {"groups_names": []})
    run.ask("empty and busy", {"groups_names": [empty, busy]})
    run.ask("again", {"groups_names": [empty]})
    run.ask("twice", {"groups_names": [busy, busy]})
    run.ask("described", {"groups": [empty]}, api=DESCRIBE_GROUPS)
