"""Topics: created, grown, deleted, and their records deleted."""

from __future__ import annotations

from typing import Any

from golden_batches import batch, produce
from golden_session import UNKNOWN_TOPIC, Run, scenario

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, CREATE_PARTITIONS, METADATA = 19, 20, 21, 37, 3
ELECT_LEADERS, ALTER_REASSIGNMENTS = 43, 45


def new_topic(name: str, partitions: int = 1, replication_factor: int = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replication_factor, **fields}


def assigned(*replicas: list[int], indexes: list[int] | None = None) -> list[dict[str, Any]]:
    places = range(len(replicas)) if indexes is None else indexes
    return [
        {"partition_index": index, "broker_ids": ids} for index, ids in zip(places, replicas, strict=True)
    ]


def create(run: Run, step: str, *topics: dict[str, Any], validate_only: bool = False) -> None:
    answer = run.quietly(
        CREATE_TOPICS,
        {"topics": topics, "timeout": 10_000, "validate_only": validate_only},
        version=run.version,
    )
    for topic in answer.topics:
        if getattr(topic, "topic_id", None):
            run.know(topic.name, topic.topic_id)
    run.record(step, answer)


@scenario(CREATE_TOPICS)
def create_topics(run: Run) -> None:
    create(run, "new", new_topic(run.name("new"), 3))
    create(run, "exists", new_topic(run.name("new"), 3))
    create(run, "exists, validated only", new_topic(run.name("new"), 3), validate_only=True)
    create(run, "validated only", new_topic(run.name("validated"), 3), validate_only=True)
    create(
        run,
        "with settings",
        new_topic(
            run.name("set"),
            configs=[
                {"name": "retention.ms", "value": "1234"},
                {"name": "cleanup.policy", "value": "compact"},
            ],
        ),
    )
    create(
        run, "null setting", new_topic(run.name("null"), configs=[{"name": "retention.ms", "value": None}])
    )
    create(
        run,
        "unknown setting",
        new_topic(run.name("bad1"), configs=[{"name": "no.such.setting", "value": "1"}]),
    )
    create(run, "bad value", new_topic(run.name("bad2"), configs=[{"name": "retention.ms", "value": "soon"}]))
    create(
        run,
        "value out of range",
        new_topic(run.name("bad3"), configs=[{"name": "retention.ms", "value": "-2"}]),
    )
    create(
        run,
        "setting twice",
        new_topic(
            run.name("twice"),
            configs=[{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}],
        ),
    )
    create(
        run,
        "settings at odds",
        new_topic(
            run.name("odds"),
            configs=[
                {"name": "min.compaction.lag.ms", "value": "9"},
                {"name": "max.compaction.lag.ms", "value": "2"},
            ],
        ),
    )
    create(run, "no topics")
    create(run, "named twice", new_topic(run.name("dup")), new_topic(run.name("dup"), 2))
    create(run, "good and bad", new_topic(run.name("good")), new_topic("not a name"))
    create(run, "colliding", new_topic(run.name("new").replace("_", ".")))


@scenario(CREATE_TOPICS)
def create_topics_by_number(run: Run) -> None:
    for partitions in (0, -2):
        create(run, f"{partitions} partitions", new_topic(run.name(f"p{partitions}"), partitions))
    for factor in (0, -2, 2, 4):
        create(run, f"replication factor {factor}", new_topic(run.name(f"r{factor}"), 1, factor))
    create(run, "default partitions", new_topic(run.name("defaults-p"), -1, 1))
    create(run, "default replication factor", new_topic(run.name("defaults-r"), 1, -1))
    create(run, "both defaults", new_topic(run.name("defaults"), -1, -1))


@scenario(CREATE_TOPICS)
def create_topics_by_assignment(run: Run) -> None:
    def create_assigned(
        step: str, assignments: list[dict[str, Any]], partitions: int = -1, factor: int = -1
    ) -> None:
        create(
            run,
            step,
            new_topic(
                run.name(step.replace(" ", "-").replace(",", "")), partitions, factor, assignments=assignments
            ),
        )

    create_assigned("assigned", assigned([1], [1]))
    create_assigned("assigned and counted", assigned([1]), 1)
    create_assigned("assigned and replicated", assigned([1]), -1, 1)
    create_assigned("unknown broker", assigned([9]))
    create_assigned("one unknown broker", assigned([1, 9]))
    create_assigned("broker twice", assigned([1, 1]))
    create_assigned("no broker", assigned([]))
    create_assigned("negative broker", assigned([-1]))
    create_assigned("not from zero", assigned([1], indexes=[1]))
    create_assigned("with a gap", assigned([1], [1], indexes=[0, 2]))
    create_assigned("partition twice", assigned([1], [1], indexes=[0, 0]))
    create_assigned("unequal", assigned([1], [1, 9]))


@scenario(CREATE_TOPICS)
def create_topics_by_name(run: Run) -> None:
    for step, name in (
        ("empty", ""),
        ("dot", "."),
        ("dots", ".."),
        ("space", "a b"),
        ("slash", "a/b"),
        ("umlaut", "ä"),
        ("too long", "n" * 250),
        ("internal", "__consumer_offsets"),
        ("metadata log", "__cluster_metadata"),
    ):
        create(run, step, new_topic(name), validate_only=step == "internal")


@scenario(DELETE_TOPICS)
def delete_topics(run: Run) -> None:
    def delete(step: str, *topics: dict[str, Any]) -> None:
        if run.version >= 6:
            run.ask(step, {"topics": topics, "timeout": 10_000})
        else:
            run.ask(step, {"topic_names": [topic["name"] for topic in topics], "timeout": 10_000})

    first, second, third = run.topic("first"), run.topic("second"), run.topic("third")
    delete("known", {"name": first.name})
    delete("again", {"name": first.name})
    delete("unknown", {"name": UNKNOWN_TOPIC.name})
    delete("invalid name", {"name": "not a name"})
    delete("empty name", {"name": ""})
    delete("named twice", {"name": second.name}, {"name": second.name})
    delete("known and unknown", {"name": third.name}, {"name": UNKNOWN_TOPIC.name})
    delete("no topics")


@scenario(DELETE_TOPICS)
def delete_topics_by_id(run: Run) -> None:
    if run.version < 6:
        return

    def delete(step: str, *topics: dict[str, Any]) -> None:
        run.ask(step, {"topics": topics, "timeout": 10_000})

    first, second, third = run.topic("first"), run.topic("second"), run.topic("third")
    delete("known", {"name": None, "topic_id": first.topic_id})
    delete("again", {"name": None, "topic_id": first.topic_id})
    delete("unknown", {"name": None, "topic_id": UNKNOWN_TOPIC.topic_id})
    delete("neither name nor id", {"name": None, "topic_id": None})
    delete("name and id", {"name": second.name, "topic_id": second.topic_id})
    delete("name and unknown id", {"name": second.name, "topic_id": UNKNOWN_TOPIC.topic_id})
    delete(
        "id twice", {"name": None, "topic_id": second.topic_id}, {"name": None, "topic_id": second.topic_id}
    )
    delete("by name and by id", {"name": third.name}, {"name": None, "topic_id": third.topic_id})


@scenario(CREATE_PARTITIONS)
def create_partitions(run: Run) -> None:
    topic, other = run.topic("topic", partitions=2), run.topic("other", partitions=2)

    def grow(step: str, name: str, count: int, *assignments: list[int], **fields: Any) -> None:
        listed = [{"broker_ids": ids} for ids in assignments] or None
        row = {"name": name, "count": count, "assignments": listed}
        run.ask(step, {"topics": [row], "timeout": 10_000, "validate_only": False, **fields})

    grow("validated only", topic.name, 4, validate_only=True)
    for count in (2, 1, 0, -1):
        grow(f"to {count}", topic.name, count)
    grow("to 3", topic.name, 3)
    grow("unknown", UNKNOWN_TOPIC.name, 3)
    grow("invalid name", "not a name", 3)
    grow("assigned", topic.name, 4, [1])
    grow("too few assigned", topic.name, 6, [1])
    grow("too many assigned", topic.name, 5, [1], [1])
    grow("unknown broker", topic.name, 5, [9])
    grow("broker twice", topic.name, 5, [1, 1])
    grow("no broker", topic.name, 5, [])
    row = {"name": other.name, "count": 3, "assignments": None}
    run.ask("twice", {"topics": [row, {**row, "count": 4}], "timeout": 10_000})
    run.ask("none", {"topics": [], "timeout": 10_000})
    run.settle()
    run.ask("grown", {"topics": [{"name": topic.name}, {"name": other.name}]}, api=METADATA)


@scenario(DELETE_RECORDS)
def delete_records(run: Run) -> None:
    topic = run.topic(partitions=2)
    produce(run, topic, {0: batch(b"a", b"b", b"c", b"d")})

    def delete(step: str, name: str, *pairs: tuple[int, int]) -> None:
        rows = [{"partition_index": partition, "offset": offset} for partition, offset in pairs]
        run.ask(step, {"topics": [{"name": name, "partitions": rows}], "timeout": 10_000})

    delete("to 1", topic.name, (0, 1))
    delete("to 1 again", topic.name, (0, 1))
    delete("back to 0", topic.name, (0, 0))
    delete("beyond the end", topic.name, (0, 5))
    delete("negative", topic.name, (0, -2))
    delete("to the end", topic.name, (0, -1))
    delete("empty partition to the end", topic.name, (1, -1))
    delete("unknown partition", topic.name, (9, 0))
    delete("unknown topic", UNKNOWN_TOPIC.name, (0, 0))
    delete("good and bad", topic.name, (0, 4), (1, 7))
    delete("no partitions", topic.name)
    compacted = run.topic("compacted", cleanup_policy="compact")
    delete("compacted", compacted.name, (0, 0))
    run.ask("no topics", {"topics": [], "timeout": 10_000})


@scenario(ELECT_LEADERS)
def elect_leaders(run: Run) -> None:
    topic = run.topic(partitions=2)
    for election_type in (0, 1, 2, -1) if run.version >= 1 else (0,):

        def elect(step: str, *topics: tuple[str, list[int]], kind: int = election_type) -> None:
            rows = [{"topic": name, "partitions": partitions} for name, partitions in topics]
            body = {"election_type": kind, "topic_partitions": rows, "timeout": 10_000}
            run.ask(f"type {kind}: {step}", body)

        elect("known", (topic.name, [0, 1]))
        elect("unknown partition", (topic.name, [9, -1, 0]))
        elect("unknown topic", (UNKNOWN_TOPIC.name, [0]))
        elect("invalid name", ("not a name", [0]))
        elect("no partitions", (topic.name, []))
        elect("partition twice", (topic.name, [0, 0]))
        elect("no topics")
        everything = {"election_type": election_type, "topic_partitions": None, "timeout": 10_000}
        answer = run.quietly(ELECT_LEADERS, everything, version=run.version)
        # Topics of other runs are there too.
        own = [row for row in answer.replica_election_results if row.topic == topic.name]
        run.record(f"type {election_type}: everything", [getattr(answer, "error_code", 0), own])


@scenario(ALTER_REASSIGNMENTS)
def alter_partition_reassignments(run: Run) -> None:
    topic = run.topic(partitions=2)

    def reassign(step: str, name: str, *moves: tuple[int, list[int] | None], **fields: Any) -> None:
        rows = [{"partition_index": index, "replicas": replicas} for index, replicas in moves]
        run.ask(step, {"timeout": 10_000, "topics": [{"name": name, "partitions": rows}], **fields})

    reassign("where it is", topic.name, (0, [1]), (1, [1]))
    reassign("unknown broker", topic.name, (0, [9]))
    reassign("one unknown broker", topic.name, (0, [1, 9]))
    reassign("broker twice", topic.name, (0, [1, 1]))
    reassign("no broker", topic.name, (0, []))
    reassign("negative broker", topic.name, (0, [-1]))
    reassign("given up", topic.name, (0, None))
    reassign("unknown partition", topic.name, (9, [1]), (-1, [1]))
    reassign("unknown topic", UNKNOWN_TOPIC.name, (0, [1]))
    reassign("invalid name", "not a name", (0, [1]))
    reassign("good and bad", topic.name, (0, [1]), (1, [9]))
    reassign("no partitions", topic.name)
    reassign("partition twice", topic.name, (0, [1]), (0, [1]))
    run.ask("no topics", {"timeout": 10_000, "topics": []})
    if run.version >= 1:
        reassign("same factor", topic.name, (0, [1]), allow_replication_factor_change=False)
        reassign("another factor", topic.name, (0, [1, 9]), allow_replication_factor_change=False)
