"""Offsets that groups commit: written, read, deleted."""

from __future__ import annotations

from typing import Any, Final

from golden_session import UNKNOWN_TOPIC, Run, TopicRef, scenario
from scenarios_groups import leave_body, member_of, stable_member, subscription, sync_body

OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS = 8, 9, 47, 13, 14, 15
DELETE_TOPICS: Final = 20


def commit_body(
    group: str,
    topic: TopicRef,
    offsets: dict[int, int],
    *,
    generation: int = -1,
    member: str = "",
    **fields: Any,
) -> dict[str, Any]:
    partitions = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 0,
            "committed_metadata": "m",
        }
        | fields
        for index, offset in offsets.items()
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": [{"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions}],
    }


def fetch_body(
    group: str, *topics: tuple[TopicRef, list[int]], everything: bool = False, **fields: Any
) -> dict[str, Any]:
    rows = [
        {"name": topic.name, "topic_id": topic.topic_id, "partition_indexes": indexes}
        for topic, indexes in topics
    ]
    wanted = None if everything else rows
    return {"group_id": group, "topics": wanted, "groups": [{"group_id": group, "topics": wanted, **fields}]}


@scenario(OFFSET_COMMIT)
def offset_commit(run: Run) -> None:
    run.coordinator()
    topic, group = run.topic(partitions=3), run.name("group")
    everything: dict[str, Any] = {"api": OFFSET_FETCH, "version": 9}
    run.ask("without a group", commit_body(group, topic, {0: 5, 1: 0}))
    run.ask("read back", fetch_body(group, everything=True), **everything)
    run.ask("lower", commit_body(group, topic, {0: 2}))
    run.ask("negative", commit_body(group, topic, {2: -1}))
    run.ask("no metadata", commit_body(group, topic, {1: 7}, committed_metadata=None))
    run.ask("much metadata", commit_body(group, topic, {1: 8}, committed_metadata="m" * 4096))
    run.ask("too much metadata", commit_body(group, topic, {1: 9, 0: 3}, committed_metadata="m" * 4097))
    run.ask("wide metadata", commit_body(group, topic, {1: 10}, committed_metadata="ß" * 4096))
    run.ask("unknown partition", commit_body(group, topic, {9: 1, 0: 4}))
    run.ask("unknown topic", commit_body(group, UNKNOWN_TOPIC, {0: 1}))
    run.ask("invalid name", commit_body(group, TopicRef("not a name", bytes(16)), {0: 1}))
    run.ask("unknown member", commit_body(group, topic, {0: 1}, generation=1, member="nobody"))
    run.ask("member without generation", commit_body(group, topic, {0: 1}, member="nobody"))
    run.ask(
        "generation, unknown group",
        commit_body(run.name("nogroup"), topic, {0: 1}, generation=1, member="nobody"),
    )
    run.ask("empty group id", commit_body("", topic, {0: 1}))
    run.ask("no topics", {**commit_body(group, topic, {}), "topics": []})
    run.ask("no partitions", commit_body(group, topic, {}))
    run.ask("read back at the end", fetch_body(group, everything=True), **everything)


@scenario(OFFSET_COMMIT)
def offset_commit_of_members(run: Run) -> None:
    run.coordinator()
    topic, group = run.topic(partitions=2), run.name("group")
    joined = member_of(run, group)
    member, generation = joined.member_id, joined.generation_id
    run.ask("before the assignment", commit_body(group, topic, {0: 1}, generation=generation, member=member))
    run.quietly(SYNC_GROUP, sync_body(group, member, generation, member))
    run.ask("stable", commit_body(group, topic, {0: 2}, generation=generation, member=member))
    run.ask("old generation", commit_body(group, topic, {0: 3}, generation=generation - 1, member=member))
    run.ask("next generation", commit_body(group, topic, {0: 3}, generation=generation + 1, member=member))
    run.ask("stranger", commit_body(group, topic, {0: 3}, generation=generation, member="nobody"))
    run.ask("from outside", commit_body(group, topic, {0: 3}))
    if run.version >= 7:
        body = commit_body(group, topic, {0: 3}, generation=generation, member=member)
        run.ask("unknown instance", {**body, "group_instance_id": "x"})
    run.quietly(LEAVE_GROUP, leave_body(group, member))
    run.ask("after leaving", commit_body(group, topic, {0: 4}, generation=generation, member=member))
    run.ask("from outside, empty group", commit_body(group, topic, {0: 5}))


@scenario(OFFSET_FETCH)
def offset_fetch(run: Run) -> None:
    run.coordinator()
    topic, group = run.topic(partitions=3), run.name("group")
    run.quietly(OFFSET_COMMIT, commit_body(group, topic, {0: 5, 1: 0}))
    run.ask("committed", fetch_body(group, (topic, [0, 1])))
    run.ask("committed and not", fetch_body(group, (topic, [1, 2])))
    run.ask("unknown partition", fetch_body(group, (topic, [9, -1])))
    run.ask("unknown topic", fetch_body(group, (UNKNOWN_TOPIC, [0])))
    run.ask("known and unknown topic", fetch_body(group, (topic, [0]), (UNKNOWN_TOPIC, [0])))
    run.ask("unknown group", fetch_body(run.name("nogroup"), (topic, [0])))
    run.ask("empty group id", fetch_body("", (topic, [0])))
    run.ask("no topics", fetch_body(group))
    run.ask("no partitions", fetch_body(group, (topic, [])))
    run.ask("partition twice", fetch_body(group, (topic, [0, 0])))
    if run.version >= 2:
        run.ask("everything", fetch_body(group, everything=True))
        run.ask("everything of an unknown group", fetch_body(run.name("nogroup"), everything=True))
    if run.version >= 7:
        run.ask("stable ones", {**fetch_body(group, (topic, [0])), "require_stable": True})
    if run.version >= 8:
        other = fetch_body(run.name("nogroup"), (topic, [0]))["groups"]
        run.ask("two groups", {"groups": fetch_body(group, (topic, [0]))["groups"] + other})
        run.ask("no groups", {"groups": []})
        run.ask("group twice", {"groups": fetch_body(group, (topic, [0]))["groups"] * 2})
    if run.version >= 9:
        joined = stable_member(run, group)
        for member, epoch in (
            (joined.member_id, joined.generation_id),
            (joined.member_id, 77),
            ("nobody", 1),
            (None, 1),
        ):
            step = f"member {'known' if member == joined.member_id else member}, epoch {epoch}"
            run.ask(step, fetch_body(group, (topic, [0]), member_id=member, member_epoch=epoch))


@scenario(OFFSET_DELETE)
def offset_delete(run: Run) -> None:
    run.coordinator()
    topic, group = run.topic(partitions=3), run.name("group")
    run.quietly(OFFSET_COMMIT, commit_body(group, topic, {0: 5, 1: 0}))

    def delete(step: str, name: str, *partitions: int, of: str = group) -> None:
        rows = [{"partition_index": index} for index in partitions]
        run.ask(step, {"group_id": of, "topics": [{"name": name, "partitions": rows}]})

    delete("committed", topic.name, 0)
    delete("again", topic.name, 0)
    delete("never committed", topic.name, 2)
    delete("unknown partition", topic.name, 9, 1)
    delete("unknown topic", UNKNOWN_TOPIC.name, 0)
    delete("unknown group", topic.name, 0, of=run.name("nogroup"))
    delete("empty group id", topic.name, 0, of="")
    delete("no partitions", topic.name)
    run.ask("no topics", {"group_id": group, "topics": []})
    run.ask("what is left", fetch_body(group, everything=True), api=OFFSET_FETCH)


@scenario(OFFSET_DELETE)
def offset_delete_while_subscribed(run: Run) -> None:
    run.coordinator()
    topic, other, group = run.topic(), run.topic("other"), run.name("group")
    joined = stable_member(run, group, protocols=[{"name": "range", "metadata": subscription(topic.name)}])
    for place in (topic, other):
        run.quietly(
            OFFSET_COMMIT,
            commit_body(group, place, {0: 5}, generation=joined.generation_id, member=joined.member_id),
        )
    row = [{"partition_index": 0}]
    run.ask(
        "deleted",
        {
            "group_id": group,
            "topics": [{"name": topic.name, "partitions": row}, {"name": other.name, "partitions": row}],
        },
    )
    run.ask("what is left", fetch_body(group, everything=True), api=OFFSET_FETCH)
    stable_member(run, run.name("connect"), protocol_type="connect")
    run.ask(
        "of another type",
        {"group_id": run.name("connect"), "topics": [{"name": topic.name, "partitions": row}]},
    )


@scenario(OFFSET_COMMIT, newest_only=True)
def offsets_of_deleted_topics(run: Run) -> None:
    run.coordinator()
    topic, group = run.topic(), run.name("group")
    run.quietly(OFFSET_COMMIT, commit_body(group, topic, {0: 5}))
    run.quietly(DELETE_TOPICS, {"topics": [{"name": topic.name, "topic_id": None}], "timeout": 10_000})
    body = fetch_body(group, everything=True)
    run.wait(OFFSET_FETCH, body, lambda answer: not answer.groups[0].topics)
    run.ask("what is left", body, api=OFFSET_FETCH)
    run.ask("committed to it", commit_body(group, topic, {0: 6}))
    run.ask("described", {"groups": [group]}, api=DESCRIBE_GROUPS)
