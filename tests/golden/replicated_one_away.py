"""Broker 3 was stopped in order: what is still promised, and what is refused with which code."""

from __future__ import annotations

from typing import Any

from golden_batches import PRODUCE, batch, produce_body
from golden_session import Run
from golden_transactions import END_TXN, INIT_PRODUCER_ID, init_body
from replicated_all_there import (
    ALTER_REASSIGNMENTS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    ELECT_LEADERS,
    FETCH,
    LIST_OFFSETS,
    LIST_REASSIGNMENTS,
    METADATA,
    PREFERRED,
    UNCLEAN,
    elect,
    moves,
    reassign,
)
from replicated_session import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    LATEST,
    assigned,
    described,
    fill,
    forget,
    new_topic,
    replicated,
    shared,
    show,
    stop,
    until,
    wait_for,
)
from replicated_transactions import (
    DECIDED,
    begin,
    coordinator_of,
    decided,
    describe,
    end,
    read,
    send,
    wait_complete,
    wait_until_left,
)
from scenarios_fetch import fetch_body, wanted

DELETE_RECORDS = 21
GROUND = ("spread", "strict", "alone", "pair", "careful", "moving")


@replicated(DESCRIBE_TOPIC_PARTITIONS, newest_only=True)
def the_third_goes(run: Run) -> None:
    stop(run, 3, alive=(1, 2))
    for what in GROUND:
        topic = shared(run, what)
        wait_for(run, topic, lambda parts: all(part.leader_id != 3 for part in parts.values()))
        show(run, what, topic)


@replicated(METADATA)
def metadata_of_two(run: Run) -> None:
    run.ask("one away", {"topics": [{"name": f"shared-{what}"} for what in GROUND]})
    run.ask("one away, at another", {"topics": [{"name": "shared-spread"}]}, at=2)


@replicated(DESCRIBE_CLUSTER)
def cluster_of_two(run: Run) -> None:
    run.ask("one away", {})
    if run.version >= 2:
        run.ask("one away, fenced ones too", {"include_fenced_brokers": True})


@replicated(PRODUCE)
def produce_to_two(run: Run) -> None:
    enough = new_topic(run, "enough", [1, 2, 3], min_insync_replicas="2")
    strict = new_topic(run, "strict", [1, 2, 3], min_insync_replicas="3")
    three = new_topic(run, "three", [3, 1], min_insync_replicas="2")
    for acks in (-1, 1):
        run.ask(f"acks {acks}, enough", produce_body(enough, {0: batch(b"a")}, acks=acks))
        run.ask(f"acks {acks}, too few", produce_body(strict, {0: batch(b"a")}, acks=acks))
        run.ask(f"acks {acks}, one of two", produce_body(three, {0: batch(b"a")}, acks=acks))
    run.ask(
        "enough and too few",
        _both(produce_body(enough, {0: batch(b"b")}), produce_body(strict, {0: batch(b"b")})),
    )
    alone = shared(run, "alone")
    run.ask("nobody leads", produce_body(alone, {2: batch(b"a")}))
    show(run, "enough", enough)
    show(run, "too few", strict)
    show(run, "one of two", three)
    for step, topic in (("enough", enough), ("too few", strict), ("one of two", three)):
        part = {"partition_index": 0, "timestamp": LATEST}
        body = {"replica_id": -1, "topics": [{"name": topic.name, "partitions": [part]}]}
        run.ask(f"end, {step}", body, api=LIST_OFFSETS)
        run.ask(f"fetched, {step}", fetch_body(wanted(topic, {0: 0})), api=FETCH)


def _both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {**first, "topic_data": [*first["topic_data"], *second["topic_data"]]}


@replicated(FETCH)
def fetch_from_nobody(run: Run) -> None:
    run.ask("nobody leads", fetch_body(wanted(shared(run, "alone"), {2: 0, 0: 0})))


@replicated(LIST_OFFSETS)
def offsets_of_nobody(run: Run) -> None:
    parts = [{"partition_index": index, "timestamp": LATEST} for index in (2, 0)]
    run.ask("nobody leads", {"replica_id": -1, "topics": [{"name": "shared-alone", "partitions": parts}]})


@replicated(CREATE_TOPICS)
def create_with_one_away(run: Run) -> None:
    def create(step: str, factor: int, *replicas: list[int], partitions: int = -1) -> None:
        name = run.name(step.replace(" ", "-"))
        row = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": factor,
            "assignments": assigned(*replicas),
            "configs": [],
        }
        run.ask(step, {"topics": [row], "timeout": 10_000})

    create("factor of all", 3, partitions=2)
    create("factor of too many", 4, partitions=2)
    create("assigned to the fenced one", -1, [3])
    create("one partition on the fenced one alone", -1, [1], [3])
    create("the fenced one first", -1, [3, 1, 2])
    topic = new_topic(run, "watched", [3, 1, 2], [1, 3, 2])
    show(run, "with a fenced replica", topic)


@replicated(CREATE_PARTITIONS)
def create_partitions_with_one_away(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2])
    for step, brokers in (("fenced first", [3, 1]), ("fenced only", [3, 9]), ("living", [2, 1])):
        row = {
            "name": topic.name,
            "count": 2 if step != "living" else 3,
            "assignments": [{"broker_ids": brokers}],
        }
        run.ask(step, {"topics": [row], "timeout": 10_000, "validate_only": False})
    single = new_topic(run, "single", [1])
    row = {"name": single.name, "count": 2, "assignments": [{"broker_ids": [3]}]}
    run.ask("fenced alone", {"topics": [row], "timeout": 10_000, "validate_only": False})
    wait_for(run, topic, lambda parts: len(parts) == 3)
    show(run, "grown", topic)


@replicated(ELECT_LEADERS)
def elect_with_one_away(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2, 3], [3, 1, 2])
    spread, alone = shared(run, "spread"), shared(run, "alone")
    elect(run, "preferred is away", PREFERRED, (topic, [0, 1]), (spread, [2]), (alone, [0, 2]))
    if run.version >= 1:
        elect(run, "unclean, nobody there", UNCLEAN, (alone, [2, 0]), (topic, [1]))
    show(run, "as before", topic)
    show(run, "alone as before", alone)


@replicated(ALTER_REASSIGNMENTS)
def reassign_with_one_away(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2], [3, 1], [2, 1], min_insync_replicas="1")
    for index, leader in enumerate((1, 1, 2)):
        fill(run, topic, index, leader, b"a", b"b")

    def ask(step: str, *wanted_moves: tuple[int, list[int] | None], **fields: Any) -> None:
        rows = [{"partition_index": index, "replicas": replicas} for index, replicas in wanted_moves]
        run.ask(step, {"timeout": 10_000, "topics": [{"name": topic.name, "partitions": rows}], **fields})
        moves(run, f"{step}: on the way", (topic, [0, 1, 2]))
        show(run, f"{step}: after", topic)

    ask("to the fenced one too", (0, [1, 2, 3]))
    ask("the same again", (0, [1, 2, 3]))
    ask("to the fenced one alone", (2, [3]))
    ask("given up", (0, None))
    ask("given up again", (0, None))
    ask("both given up, one in vain", (0, None), (2, None))
    ask("from one to the fenced one", (0, [3, 2]))
    ask("replaced by another order", (0, [2, 3]))
    ask("replaced by where it was", (0, [1, 2]))
    reassign(run, "without the fenced one", topic, (1, [2, 1]))
    wait_for(run, topic, lambda parts: parts[1].replica_nodes == (2, 1))
    moves(run, "without the fenced one: on the way", (topic, [1]))
    show(run, "without the fenced one: after", topic)
    forget(run, topic)


@replicated(LIST_REASSIGNMENTS, newest_only=True)
def a_reassignment_waits(run: Run) -> None:
    """It goes on once the broker is back."""
    moving = shared(run, "moving")
    rows = [{"partition_index": 0, "replicas": [3, 1]}]
    body = {"timeout": 10_000, "topics": [{"name": moving.name, "partitions": rows}]}
    run.ask("begun", body, api=ALTER_REASSIGNMENTS)
    run.ask("all", {"timeout": 10_000, "topics": None})
    asked = {"name": moving.name, "partition_indexes": [0, 1]}
    run.ask("one", {"timeout": 10_000, "topics": [asked]})
    show(run, "on its way", moving)
    fill(run, moving, 0, 1, b"second")


@replicated(DELETE_RECORDS)
def delete_with_one_away(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2, 3], min_insync_replicas="2")
    fill(run, topic, 0, 1, b"a", b"b", b"c")
    for offset in (1, -1, 4):
        part = {"partition_index": 0, "offset": offset}
        run.ask(f"to {offset}", {"topics": [{"name": topic.name, "partitions": [part]}], "timeout": 10_000})
    part = {"partition_index": 0, "offset": 3}
    asked = {"topics": [{"name": topic.name, "partitions": [part]}], "timeout": 10_000}
    run.ask("at a follower", asked, at=2)
    part = {"partition_index": 2, "offset": 0}
    run.ask("nobody leads", {"topics": [{"name": "shared-alone", "partitions": [part]}], "timeout": 500})


@replicated(DELETE_RECORDS, newest_only=True)
def delete_with_an_eligible_one_away(run: Run) -> None:
    """Of shared-strict the broker that is away is an eligible leader replica."""
    part = {"partition_index": 0, "offset": 1}
    run.ask("to 1", {"topics": [{"name": "shared-strict", "partitions": [part]}], "timeout": 1_000})


@replicated(END_TXN, newest_only=True)
def a_transaction_is_decided_with_one_away(run: Run) -> None:
    """One of its partitions cannot be told: it waits, and the other one's readers do not."""
    mine, topic = decided(run)
    # Not until its leader answers where it ends: with too few replicas it does not.
    until(lambda: described(run, topic)[1].leader_id == 2, f"the leader of {topic.name}")
    mine.sequences = {(topic.name, 0): 1, (topic.name, 1): 1}
    send(run, "to the one", mine, topic, 0, 2)
    send(run, "to the one that lacks a replica", mine, topic, 1, 2)
    end(run, "committed", mine, committed=True)
    wait_until_left(run, DECIDED, 1)
    describe(run, "decided", DECIDED)
    read(run, "told", topic, 0, 2, has_coordinator_stayed=False)
    # Nothing of the one that is not told: how much of it its new leader may show is by chance.
    asked = init_body(DECIDED)
    run.ask("a second instance", asked, api=INIT_PRODUCER_ID, at=coordinator_of(run, DECIDED))
    other = begin(run, run.name("other"))
    send(run, "another to the one", other, topic, 0, 2)
    end(run, "another aborted", other, committed=False)
    wait_complete(run, other.transactional_id)
    describe(run, "another complete", other.transactional_id)
    read(run, "another ended", topic, 0, 2, has_coordinator_stayed=False)
    row = {"name": "min.insync.replicas", "value": "1", "config_operation": 0}
    resource = {"resource_type": 2, "resource_name": topic.name, "configs": [row]}
    run.quietly(44, {"resources": [resource], "validate_only": False})
    wait_complete(run, DECIDED)
    describe(run, "complete", DECIDED)
    read(run, "told now", topic, 1, 2, has_coordinator_stayed=False)
