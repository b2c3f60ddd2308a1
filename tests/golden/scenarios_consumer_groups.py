"""Consumer groups of the newer protocol (KIP-848): joining, giving up, leaving; static members; regular expressions."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from golden_session import Run, TopicRef, scenario
from raw_client import CREATE_TOPICS
from scenarios_groups import join_body, leave_body, sync_body

BEAT, DESCRIBE = 68, 69
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE, DELETE_TOPICS = 8, 9, 47, 20
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, ALTER_CONFIGS = 15, 16, 42, 44
GROUP_RESOURCE: Final = 32
STALE_MEMBER_EPOCH: Final = 113
WAIT_SECONDS: Final = 30.0

Owned = Mapping[TopicRef, Iterable[int]]


def owned_rows(owned: Owned) -> list[dict[str, Any]]:
    return [{"topic_id": topic.topic_id, "partitions": list(parts)} for topic, parts in owned.items()]


def beat_body(
    group: str, member: str, epoch: int, *, owned: Owned | None = None, **fields: Any
) -> dict[str, Any]:
    body = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None if owned is None else owned_rows(owned),
    }
    return {**body, **fields}


def entry_body(group: str, member: str, *topics: TopicRef | str, **fields: Any) -> dict[str, Any]:
    """A first heartbeat."""
    names = [topic if isinstance(topic, str) else topic.name for topic in topics]
    more = {"owned": {}, "rebalance_timeout": 60_000, "subscribed_topic_names": names} | fields
    return beat_body(group, member, 0, **more)


def group_of(run: Run, what: str = "group") -> str:
    """The name of a group that makes a target for every change."""
    run.coordinator()
    group = run.name(what)
    config = {"name": "consumer.assignment.interval.ms", "value": "0", "config_operation": 0}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [config]}
    answer = run.quietly(ALTER_CONFIGS, {"resources": [resource]})
    assert answer.responses[0].error_code == 0, answer
    run.settle()
    return group


def until(run: Run, body: Callable[[], Mapping[str, Any]], is_there: Callable[[Any], bool]) -> Any:
    """Send heartbeats quietly until one is answered as wanted."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        answer = run.quietly(BEAT, body())
        if is_there(answer):
            return answer
        assert time.monotonic() < deadline, f"still {answer}"
        time.sleep(0.02)


@scenario(BEAT)
def consumer_group_requests(run: Run) -> None:
    """What is refused before anybody looks at a group."""
    topic = run.topic()
    group = group_of(run)

    def ask(step: str, **fields: Any) -> None:
        run.ask(step, {**entry_body(group, "m", topic), **fields})

    ask("no group", group_id="")
    ask("empty instance", instance_id="")
    ask("empty rack", rack_id="")
    ask("no rebalance timeout", rebalance_timeout=-1)
    ask("no owned partitions", topic_partitions=None)
    ask("owned partitions", topic_partitions=owned_rows({topic: [0]}))
    ask("no subscription", subscribed_topic_names=None)
    ask("unknown assignor", server_assignor="nonsense")
    ask("epoch -3", member_epoch=-3)
    ask("away without an instance", member_epoch=-2)
    ask("no member id", member_id="", member_epoch=1)
    ask("no member id leaves", member_id="", member_epoch=-1)
    ask("group is not there", member_epoch=1)
    ask("leaves what is not there", member_epoch=-1)
    ask("away from what is not there", member_epoch=-2, instance_id="i")
    if run.version >= 1:
        ask("no member id joins", member_id="")
        ask("bad regular expression", subscribed_topic_regex="(")
        ask("look-ahead", subscribed_topic_regex="(?=a)b")
    else:
        answer = run.quietly(BEAT, entry_body(run.name("nameless"), "", topic), version=0)
        run.record("was given a member id", {"error_code": answer.error_code, "has": bool(answer.member_id)})


@scenario(BEAT)
def consumer_group_of_two(run: Run) -> None:
    """Partitions go from one member to another, step by step."""
    topic = run.topic(partitions=4)
    group = group_of(run)

    def beat(step: str, member: str, epoch: int, **fields: Any) -> Any:
        return run.ask(step, beat_body(group, member, epoch, **fields))

    run.ask("first", entry_body(group, "a", topic))
    beat("nothing new", "a", 2)
    beat("nothing new, said in full", "a", 2, rebalance_timeout=1000, subscribed_topic_names=[topic.name])
    everything = {"rebalance_timeout": 60_000, "subscribed_topic_names": [topic.name]}
    beat("everything", "a", 2, owned={topic: range(4)}, **everything)
    run.ask("described alone", {"group_ids": [group]}, api=DESCRIBE)
    run.ask("second", entry_body(group, "b", topic))
    beat("the second waits", "b", 3)
    beat("the first is to give up", "a", 2)
    run.ask("described while giving up", {"group_ids": [group]}, api=DESCRIBE)
    beat("it says nothing of that", "a", 2)
    beat("it has not", "a", 2, owned={topic: range(4)})
    beat("it has given up some", "a", 2, owned={topic: range(3)})
    beat("the second still waits", "b", 3)
    beat("it has", "a", 2, owned={topic: range(2)})
    beat("the answer was lost", "a", 2, owned={topic: range(2)})
    beat("it was lost, and it says nothing", "a", 2)
    beat("it was lost, and it has more", "a", 2, owned={topic: range(3)})
    beat("older still", "a", 1, owned={}, **everything)
    beat("newer than there is", "a", 10)
    beat("the second gets it", "b", 3)
    run.ask("described at rest", {"group_ids": [group]}, api=DESCRIBE)
    beat("unknown member", "c", 3)
    beat("second leaves", "b", -1)
    beat("second is gone", "b", 3)
    beat("the first gets everything", "a", 3)
    beat("first leaves", "a", -1)
    run.ask("described empty", {"group_ids": [group]}, api=DESCRIBE)
    run.ask("joins the empty group", entry_body(group, "d", topic))
    run.ask("described again", {"group_ids": [group]}, api=DESCRIBE)


@scenario(BEAT)
def consumer_group_subscriptions(run: Run) -> None:
    """Topics that come, grow and go; names that are taken back; assignors."""
    one, two = run.topic("one", partitions=2), run.topic("two", partitions=2)
    group = group_of(run)
    later = run.name("later")

    def beat(step: str, epoch: int, **fields: Any) -> Any:
        return run.ask(step, beat_body(group, "a", epoch, **fields))

    run.ask("three topics, of which two are there", entry_body(group, "a", one, two, later))
    row = {"name": later, "num_partitions": 1, "replication_factor": 1}
    (created,) = run.quietly(CREATE_TOPICS, {"topics": [row], "timeout": 10_000}).topics
    run.know(later, created.topic_id)
    third = TopicRef(later, created.topic_id.bytes)
    until(run, lambda: beat_body(group, "a", 2), lambda answer: answer.member_epoch == 3)
    beat(
        "the third is there",
        3,
        rebalance_timeout=60_000,
        subscribed_topic_names=[one.name, two.name, later],
        owned={},
    )
    beat("one name fewer", 3, subscribed_topic_names=[one.name, later])
    beat("it is given up", 3, owned={one: range(2), third: [0]})
    run.quietly(DELETE_TOPICS, {"topics": [{"name": later}], "topic_names": [later], "timeout": 10_000})
    until(
        run, lambda: beat_body(group, "a", 4, owned={one: range(2)}), lambda answer: answer.member_epoch == 5
    )
    beat("no names at all", 5, subscribed_topic_names=[])
    beat("nothing is left", 5, owned={})
    beat("another assignor", 6, server_assignor="range", subscribed_topic_names=[one.name])
    run.ask("described", {"group_ids": [group]}, api=DESCRIBE)
    run.ask("a member with nothing", entry_body(run.name("idle"), "a"))
    run.ask("described idle", {"group_ids": [run.name("idle")]}, api=DESCRIBE)


@scenario(BEAT)
def consumer_group_static_members(run: Run) -> None:
    topic = run.topic(partitions=4)
    group = group_of(run)

    def beat(step: str, member: str, epoch: int, instance: str | None = "i", **fields: Any) -> Any:
        return run.ask(step, beat_body(group, member, epoch, instance_id=instance, **fields))

    run.ask("static", entry_body(group, "a", topic, instance_id="i"))
    run.ask("the same instance", entry_body(group, "b", topic, instance_id="i"))
    run.ask("the same member", entry_body(group, "a", topic, instance_id="i"))
    beat("beat", "a", 2)
    beat("beat without the instance", "a", 2, None)
    beat("beat of another member", "b", 2)
    beat("unknown instance", "a", 2, "j")
    beat("unknown instance leaves", "a", -1, "j")
    beat("another member leaves", "b", -1)
    beat("away", "a", -2)
    beat("away again", "a", -2)
    run.ask("described away", {"group_ids": [group]}, api=DESCRIBE)
    run.ask("a second one", entry_body(group, "c", topic))
    run.ask("back as another member", entry_body(group, "b", topic, instance_id="i"))
    beat("the old id", "a", 2)
    run.ask("described back", {"group_ids": [group]}, api=DESCRIBE)
    beat("leaves for good", "b", -1)
    beat("leaves once more", "b", -1)


@scenario(BEAT)
def consumer_group_regular_expressions(run: Run) -> None:
    if run.version < 1:
        return
    topic = run.topic("found", partitions=2)
    named = run.topic("named")
    group = group_of(run)
    regex = run.name("fou.*")

    def enter(member: str) -> dict[str, Any]:
        return entry_body(group, member, subscribed_topic_names=None, subscribed_topic_regex=regex)

    run.ask("joins", enter("a"))
    until(run, lambda: enter("a"), lambda answer: answer.member_epoch == 2)
    run.ask("found", enter("a"))
    run.ask("a second one finds it known", enter("b"))
    run.ask(
        "names as well", beat_body(group, "a", 2, subscribed_topic_names=[named.name], owned={topic: [0]})
    )
    run.ask("described", {"group_ids": [group]}, api=DESCRIBE)
    run.ask(
        "no regular expression any more",
        beat_body(group, "a", 2, subscribed_topic_regex="", owned={topic: [0]}),
    )
    run.ask("the last one leaves", beat_body(group, "b", -1))
    run.ask("bad later", beat_body(group, "a", 2, subscribed_topic_regex="["))


@scenario(DESCRIBE)
def consumer_group_describe(run: Run) -> None:
    topic = run.topic()
    group = group_of(run)
    run.quietly(BEAT, entry_body(group, "a", topic, rack_id="r", instance_id="i", server_assignor="range"))
    classic = run.name("classic")
    joined = run.quietly(JOIN_GROUP, join_body(classic))
    assert joined.member_id
    run.ask("one", {"group_ids": [group]})
    run.ask(
        "with operations", {"group_ids": [group, run.name("none")], "include_authorized_operations": True}
    )
    run.ask("twice", {"group_ids": [group, group]})
    run.ask("none", {"group_ids": []})
    run.ask("empty id", {"group_ids": [""]})
    run.ask("of another type", {"group_ids": [classic]})


@scenario(BEAT, newest_only=True)
def groups_of_the_other_type(run: Run) -> None:
    """Requests of one protocol and of administrators meet groups of the other."""
    topic = run.topic(partitions=2)
    group = group_of(run)
    run.quietly(BEAT, entry_body(group, "a", topic))
    for version in (5, 6):
        run.ask(
            f"described as classic, v{version}", {"groups": [group]}, api=DESCRIBE_GROUPS, version=version
        )
    for what, fields in (
        ("all", {}),
        ("by type", {"types_filter": ["CoNsUmEr"]}),
        ("by another type", {"types_filter": ["classic", "nonsense"]}),
        ("by state", {"states_filter": ["STABLE"], "types_filter": ["consumer"]}),
        ("by another state", {"states_filter": ["empty", "Assigning", "nonsense"]}),
    ):
        answer = run.quietly(LIST_GROUPS, fields)
        run.record(f"listed {what}", [row for row in answer.groups if row.group_id == group], LIST_GROUPS)
    run.ask("deleted with members", {"groups_names": [group]}, api=DELETE_GROUPS)
    partitions = [{"partition_index": 0}]
    deleted = {"group_id": group, "topics": [{"name": topic.name, "partitions": partitions}]}
    run.ask("offsets deleted of a subscribed topic", deleted, api=OFFSET_DELETE)
    deleted["topics"] = [{"name": run.name("other"), "partitions": partitions}]
    run.ask("offsets deleted of another", deleted, api=OFFSET_DELETE)
    run.ask("classic sync", sync_body(group, "a", 1, "a"), api=SYNC_GROUP)
    run.ask("classic heartbeat", {"group_id": group, "generation_id": 1, "member_id": "a"}, api=HEARTBEAT)
    run.ask("classic leave, unknown", leave_body(group, "b"), api=LEAVE_GROUP)
    run.quietly(BEAT, beat_body(group, "a", -1))
    run.ask("classic member joins what is empty", join_body(group), api=JOIN_GROUP)
    # Kafka has answered before what it did is committed, and shows what is.
    run.wait(DESCRIBE_GROUPS, {"groups": [group]}, lambda answer: answer.groups[0].group_state == "Empty")
    run.ask("described as classic now", {"groups": [group]}, api=DESCRIBE_GROUPS)
    run.ask("described as the other now", {"group_ids": [group]}, api=DESCRIBE)
    run.ask("joins what is classic and empty", entry_body(group, "c", topic))
    run.quietly(BEAT, beat_body(group, "c", -1))
    run.ask("deleted", {"groups_names": [group]}, api=DELETE_GROUPS)
    run.ask("deleted again", {"groups_names": [group]}, api=DELETE_GROUPS)


@scenario(BEAT, newest_only=True)
def offsets_with_member_epochs(run: Run) -> None:
    topic = run.topic(partitions=4)
    group = group_of(run)

    def commit(step: str, member: str, epoch: int, *partitions: int, version: int = 9) -> None:
        rows = [
            {"partition_index": index, "committed_offset": 5, "committed_metadata": "m"}
            for index in partitions
        ]
        body = {
            "group_id": group,
            "member_id": member,
            "generation_id_or_member_epoch": epoch,
            "topics": [{"name": topic.name, "topic_id": topic.topic_id, "partitions": rows}],
        }
        run.ask(step, body, api=OFFSET_COMMIT, version=version)

    def fetch(step: str, member: str | None, epoch: int, version: int = 9) -> None:
        asked = [{"name": topic.name, "topic_id": topic.topic_id, "partition_indexes": [0, 1]}]
        row = {"group_id": group, "member_id": member, "member_epoch": epoch, "topics": asked}
        run.ask(step, {"groups": [row]}, api=OFFSET_FETCH, version=version)

    commit("a group that is not there", "a", 2, 0)
    commit("a group that is not there, older", "a", 2, 0, version=8)
    fetch("of a group that is not there", "a", 2)
    run.quietly(BEAT, entry_body(group, "a", topic))
    for version in (8, 9, 10):
        commit(f"by its epoch, v{version}", "a", 2, 0, version=version)
        if version >= 9:
            fetch(f"fetched by its epoch, v{version}", "a", 2, version)
    commit("newer", "a", 3, 0)
    commit("older", "a", 1, 0)
    commit("without a member", "", -1, 0)
    commit("unknown member", "b", 2, 0)
    fetch("without a member", None, -1)
    fetch("newer", "a", 3)
    fetch("unknown member", "b", 2)
    fetch("a name without an epoch", "a", -1)
    run.quietly(BEAT, entry_body(group, "b", topic))
    run.quietly(BEAT, beat_body(group, "a", 2, owned={topic: range(4)}))
    run.quietly(BEAT, beat_body(group, "a", 2, owned={topic: range(2)}))
    run.quietly(BEAT, beat_body(group, "b", 3))
    commit("an older epoch, what it still has", "a", 2, 0, 1)
    commit("an older epoch, and what it has not", "a", 2, 0, 3)
    commit("an older epoch than it was given", "b", 2, 2)
    fetch("an older epoch", "a", 2)
    for member in "ab":
        run.quietly(BEAT, beat_body(group, member, -1))
    commit("an administrator, empty", "", -1, 0)
    commit("one that left", "a", 3, 0)
    fetch("an administrator", None, -1)


def assigned_bytes(topic: TopicRef, *partitions: int) -> bytes:
    """What a leader hands out: ConsumerProtocolAssignment, version 0."""
    name = topic.name.encode()
    row = struct.pack(f">h{len(name)}si{len(partitions)}i", len(name), name, len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + row + struct.pack(">i", -1)


def owning(topic: TopicRef, *partitions: int) -> list[dict[str, Any]]:
    """A cooperative member's protocols: ConsumerProtocolSubscription, version 1, which says what it has."""
    name = topic.name.encode()
    named = struct.pack(f">h{len(name)}s", len(name), name)
    data = struct.pack(">hi", 1, 1) + named + struct.pack(">i", -1)
    data += struct.pack(">i", 1) + named + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return [{"name": "range", "metadata": data}]


def meet_a_group_of_both(run: Run, topic: TopicRef, group: str, old: str, generation: int) -> None:
    """Classic newcomers that do not get in, and commits of the classic member."""
    newcomer = run.quietly(JOIN_GROUP, join_body(group, protocols=owning(topic)))
    run.record("a newcomer without an id", (newcomer.error_code, bool(newcomer.member_id)), JOIN_GROUP)
    run.ask(
        "a newcomer of another assignor", join_body(group, "x", protocols=[{"name": "y"}]), api=JOIN_GROUP
    )
    run.ask("a newcomer of another type", join_body(group, "x", protocol_type="connect"), api=JOIN_GROUP)
    rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    commit = {
        "group_id": group,
        "member_id": old,
        "generation_id_or_member_epoch": generation,
        "topics": [{"name": topic.name, "topic_id": topic.topic_id, "partitions": rows}],
    }
    run.ask("it commits as ever", commit, api=OFFSET_COMMIT, version=8)
    commit["generation_id_or_member_epoch"] = generation + 6
    run.ask("in a generation that is none", commit, api=OFFSET_COMMIT, version=8)


@scenario(BEAT, newest_only=True)
def consumer_group_migration(run: Run) -> None:
    """A classic group becomes one of the newer protocol, goes on with members of both, and becomes classic again."""
    topic = run.topic(partitions=4)
    group = group_of(run)

    def beat(step: str, epoch: int, **fields: Any) -> Any:
        return run.ask(step, beat_body(group, "new", epoch, **fields))

    def classic_beat(step: str, generation: int) -> None:
        body = {"group_id": group, "generation_id": generation, "member_id": old}
        run.ask(step, body, api=HEARTBEAT)

    def join(step: str, *partitions: int) -> Any:
        body = join_body(group, old, protocols=owning(topic, *partitions))
        return run.ask(step, body, api=JOIN_GROUP)

    def sync(step: str, generation: int, **fields: Any) -> None:
        run.ask(step, sync_body(group, old, generation, **fields), api=SYNC_GROUP)

    old = run.quietly(JOIN_GROUP, join_body(group)).member_id
    joined = run.quietly(JOIN_GROUP, join_body(group, old, protocols=owning(topic)))
    generation = joined.generation_id
    body = sync_body(group, old, generation)
    body["assignments"] = [{"member_id": old, "assignment": assigned_bytes(topic, 0, 1, 2, 3)}]
    run.quietly(SYNC_GROUP, body)
    run.ask("the first of the newer protocol", entry_body(group, "new", topic))
    run.ask("described", {"group_ids": [group]}, api=DESCRIBE)
    classic_beat("the old one is to join", generation)
    sync("or it asks for its assignment", generation)
    join("it joins and has everything", 0, 1, 2, 3)
    sync("it is told what is left to it", generation)
    classic_beat("it is to join again", generation)
    join("it has given up", 0, 1)
    sync("it has the same", generation + 1)
    sync("in the generation before", generation)
    sync("with another protocol", generation + 1, protocol_name="other")
    classic_beat("nothing to do", generation + 1)
    beat("the new one has the rest", generation + 1)
    run.ask("described with both", {"group_ids": [group]}, api=DESCRIBE)
    run.ask("described as classic", {"groups": [group]}, api=DESCRIBE_GROUPS)
    meet_a_group_of_both(run, topic, group, old, generation + 1)
    beat("the new one leaves", -1)
    run.ask("described as classic again", {"groups": [group]}, api=DESCRIBE_GROUPS)
    classic_beat("and there is a rebalance", generation + 1)
    run.ask("described as the other", {"group_ids": [group]}, api=DESCRIBE)
    run.ask("it leaves", leave_body(group, old), api=LEAVE_GROUP)
