"""Three brokers, all of them there: assignments, elections, reassignments, epochs, log directories."""

from __future__ import annotations

from typing import Any

from golden_batches import PRODUCE, batch, produce_body
from golden_session import UNKNOWN_TOPIC, Run, TopicRef
from replicated_session import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    LATEST,
    assigned,
    fill,
    new_topic,
    replicated,
    show,
    until,
    wait_brokers,
    wait_end,
    wait_for,
    wait_full,
)
from scenarios_fetch import fetch_body, wanted

FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, OFFSET_FOR_LEADER_EPOCH = 1, 2, 3, 19, 23
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, ELECT_LEADERS = 35, 37, 43
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 45, 46
PREFERRED, UNCLEAN = 0, 1


@replicated(METADATA, newest_only=True)
def the_ground(run: Run) -> None:
    """The topics that later scenarios look at, with a record in each partition."""
    wait_brokers(run, (1, 2, 3))
    two = {"min_insync_replicas": "2"}
    one = {"min_insync_replicas": "1"}
    made: list[tuple[str, list[list[int]], dict[str, str]]] = [
        ("spread", [[1, 2, 3], [2, 3, 1], [3, 1, 2]], two),
        ("strict", [[1, 2, 3], [3, 1, 2]], {"min_insync_replicas": "3"}),
        ("alone", [[1], [2], [3]], one),
        ("pair", [[3, 2]], one),
        ("careful", [[2, 3]], two),
        ("moving", [[1, 2]], one),
        ("given-up", [[2, 3]], two),
    ]
    for what, replicas, config in made:
        topic = new_topic(run, what, *replicas, is_shared=True, **config)
        for index, brokers in enumerate(replicas):
            fill(run, topic, index, brokers[0], b"first")
        show(run, what, topic)


@replicated(METADATA)
def metadata_of_three(run: Run) -> None:
    run.ask("all there", {"topics": [{"name": "shared-spread"}, {"name": "shared-alone"}]})


@replicated(DESCRIBE_CLUSTER)
def cluster_of_three(run: Run) -> None:
    run.ask("all there", {"include_fenced_brokers": True} if run.version >= 2 else {})


@replicated(CREATE_TOPICS)
def create_with_replicas(run: Run) -> None:
    def create(step: str, factor: int, *replicas: list[int], partitions: int = -1, **fields: Any) -> None:
        row = {
            "name": run.name(step.replace(" ", "-").replace(",", "")),
            "num_partitions": partitions,
            "replication_factor": factor,
            "assignments": fields.pop("assignments", assigned(*replicas)),
            "configs": [],
        }
        run.ask(step, {"topics": [row], "timeout": 10_000, **fields})

    for factor in (0, -2, 3, 4):
        create(f"factor {factor}", factor, partitions=2)
    create("default factor", -1, partitions=1)
    create("validated only", 3, partitions=2, validate_only=True)
    create("too many, validated only", 4, partitions=2, validate_only=True)
    create("assigned", -1, [1, 2, 3], [3, 2, 1])
    create("assigned with a factor", 3, [1, 2, 3])
    create("assigned with a count", -1, [1, 2, 3], partitions=1)
    create("unequal", -1, [1, 2, 3], [1, 2])
    create("unequal the other way", -1, [1], [1, 2])
    create("broker twice", -1, [1, 2, 1])
    create("unknown broker", -1, [1, 2, 9])
    create("negative broker", -1, [1, -1])
    create("no broker", -1, [1, 2], [])
    create("with a gap", -1, assignments=[*assigned([1, 2]), *assigned([2, 1], first=2)])
    create("partition twice", -1, assignments=[*assigned([1, 2]), *assigned([2, 1])])


@replicated(CREATE_PARTITIONS)
def create_partitions_with_replicas(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2])

    def grow(step: str, count: int, *replicas: list[int]) -> None:
        rows = [{"broker_ids": brokers} for brokers in replicas] or None
        row = {"name": topic.name, "count": count, "assignments": rows}
        run.ask(step, {"topics": [row], "timeout": 10_000, "validate_only": False})

    grow("assigned", 2, [2, 3])
    grow("too few replicas", 3, [3])
    grow("too many replicas", 3, [1, 2, 3])
    grow("broker twice", 3, [3, 3])
    grow("unknown broker", 3, [3, 9])
    grow("negative broker", 3, [3, -1])
    grow("too few assigned", 4, [3, 1])
    grow("two, the second bad", 4, [3, 1], [3])
    wait_full(run, topic, [1, 2], [2, 3])
    show(run, "grown", topic)


def elect(run: Run, step: str, kind: int, *topics: tuple[TopicRef, list[int]]) -> None:
    """Ask for elections in the scenario's own API."""
    rows = [{"topic": topic.name, "partitions": indexes} for topic, indexes in topics]
    run.ask(step, {"election_type": kind, "topic_partitions": rows, "timeout": 10_000})


def reassign(
    run: Run, step: str, topic: TopicRef, *moves: tuple[int, list[int] | None], **fields: Any
) -> None:
    """Ask for reassignments; None gives one up."""
    rows = [{"partition_index": index, "replicas": replicas} for index, replicas in moves]
    body = {"timeout": 10_000, "topics": [{"name": topic.name, "partitions": rows}], **fields}
    run.ask(step, body, api=ALTER_REASSIGNMENTS)


def moves(run: Run, step: str, *topics: tuple[TopicRef, list[int]]) -> None:
    """What is on its way of these partitions."""
    rows = [{"name": topic.name, "partition_indexes": indexes} for topic, indexes in topics]
    run.ask(step, {"timeout": 10_000, "topics": rows}, api=LIST_REASSIGNMENTS)


@replicated(ELECT_LEADERS)
def elect_in_sync(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    for index, leader in enumerate((1, 2, 3)):
        fill(run, topic, index, leader, b"a", b"b")
    elect(run, "preferred, not needed", PREFERRED, (topic, [0, 1, 2]))
    reassign(run, "another order", topic, (0, [2, 1, 3]), (1, [3, 2, 1]))
    show(run, "in another order", topic)
    if run.version >= 1:
        elect(run, "unclean, not needed", UNCLEAN, (topic, [0, 1, 2]))
        elect(run, "unknown type", 7, (topic, [0]))
    elect(run, "preferred", PREFERRED, (topic, [0, 2, 9]), (UNKNOWN_TOPIC, [0]))
    wait_for(run, topic, lambda parts: parts[0].leader_id == 2)
    show(run, "one elected", topic)
    elect(run, "preferred, twice", PREFERRED, (topic, [0, 1, 1]))
    wait_for(run, topic, lambda parts: parts[1].leader_id == 3)
    show(run, "both elected", topic)


@replicated(ELECT_LEADERS)
def elect_everything(run: Run) -> None:
    """No topics in the request mean all that there are."""

    def ask(step: str, kind: int, topics: Any) -> None:
        run.ask(step, {"election_type": kind, "topic_partitions": topics, "timeout": 10_000})

    topic = new_topic(run, "topic", [1, 2, 3], [2, 3, 1])
    ask("preferred, not needed by any", PREFERRED, None)
    reassign(run, "another order", topic, (1, [3, 2, 1]))
    ask("preferred, of nothing", PREFERRED, [])
    ask("preferred, of no partition", PREFERRED, [{"topic": topic.name, "partitions": []}])
    ask("preferred, of all", PREFERRED, None)
    wait_for(run, topic, lambda parts: parts[1].leader_id == 3)
    show(run, "elected", topic)
    rows = [{"topic": topic.name, "partitions": [index]} for index in (0, 1, -1)]
    ask("preferred, in several rows", PREFERRED, rows)
    ask("preferred, of no name", PREFERRED, [{"topic": "", "partitions": [0]}])
    if run.version >= 1:
        ask("unclean, not needed by any", UNCLEAN, None)
        ask("unclean, of an unknown topic", UNCLEAN, [{"topic": UNKNOWN_TOPIC.name, "partitions": [0]}])
        ask("of an unknown type, of nothing", 7, [])


@replicated(ALTER_REASSIGNMENTS)
def reassign_in_sync(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2], [2, 3], [1, 3], min_insync_replicas="1")
    for index, leader in enumerate((1, 2, 1)):
        fill(run, topic, index, leader, b"a", b"b")

    def ask(step: str, *wanted_moves: tuple[int, list[int] | None], **fields: Any) -> None:
        rows = [{"partition_index": index, "replicas": replicas} for index, replicas in wanted_moves]
        run.ask(step, {"timeout": 10_000, "topics": [{"name": topic.name, "partitions": rows}], **fields})

    def after(step: str, *replicas: list[int]) -> None:
        wait_full(run, topic, *replicas)
        moves(run, f"on the way {step}", (topic, [0, 1, 2]))
        show(run, step, topic)

    ask("nothing to give up", (0, None))
    ask("no replicas", (0, []))
    ask("unknown broker", (0, [1, 9]))
    ask("negative broker", (0, [1, -5]))
    ask("broker twice", (0, [2, 3, 2]))
    ask("unknown and twice", (0, [9, 9]))
    ask("unknown partition", (7, [1, 2]))
    ask("as it is", (0, [1, 2]))
    after("as they were", [1, 2], [2, 3], [1, 3])
    ask("one more, one less, another order", (0, [1, 2, 3]), (1, [2]), (2, [3, 2, 1]))
    after("grown and shrunk", [1, 2, 3], [2], [3, 2, 1])
    ask("without its leader", (0, [2, 3]))
    after("led by another", [2, 3], [2], [3, 2, 1])
    ask("to a single other", (1, [1]))
    after("moved", [2, 3], [1], [3, 2, 1])
    if run.version >= 1:
        ask("another factor, refused", (0, [1, 2, 3]), (1, [2]), allow_replication_factor_change=False)
        after("one moved", [2, 3], [2], [3, 2, 1])


@replicated(ALTER_REASSIGNMENTS)
def reassign_named_otherwise(run: Run) -> None:
    """What is named twice, not at all, or not there."""
    topic = new_topic(run, "topic", [1, 2], [2, 3])

    def ask(step: str, *topics: tuple[str, list[tuple[int, list[int] | None]]]) -> None:
        rows = [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "replicas": replicas} for index, replicas in wanted_moves
                ],
            }
            for name, wanted_moves in topics
        ]
        run.ask(step, {"timeout": 10_000, "topics": rows})

    ask("nothing")
    ask("no partitions", (topic.name, []))
    ask("unknown topic", (UNKNOWN_TOPIC.name, [(0, [1, 2])]))
    ask("unknown topic, given up", (UNKNOWN_TOPIC.name, [(0, None)]))
    ask("no name", ("", [(0, [1, 2])]))
    ask("unknown partition, given up", (topic.name, [(7, None)]))
    ask("negative partition", (topic.name, [(-1, [1, 2])]))
    ask("more replicas than brokers", (topic.name, [(0, [1, 2, 3, 4])]))
    ask("one good, one bad", (topic.name, [(0, [2, 1]), (1, [2, 9])]))
    wait_full(run, topic, [2, 1], [2, 3])
    show(run, "the good one", topic)
    ask("topic twice", (topic.name, [(0, [1, 2])]), (topic.name, [(1, [3, 2])]))
    wait_full(run, topic, [1, 2], [3, 2])
    ask("partition twice, the same", (topic.name, [(0, [2, 1]), (0, [2, 1])]))
    wait_full(run, topic, [2, 1], [3, 2])
    ask("moved and given up at once", (topic.name, [(0, [1, 2]), (0, None)]))
    moves(run, "on the way", (topic, [0, 1]))
    show(run, "in the end", topic)


@replicated(ALTER_REASSIGNMENTS, newest_only=True)
def reassign_below_the_minimum(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2], min_insync_replicas="2")
    fill(run, topic, 0, 1, b"a")
    reassign(run, "to fewer", topic, (0, [2]))
    wait_full(run, topic, [2])
    # Without the eligible leader replicas: Kafka names the one that went until the partition changes once more.
    run.ask("fewer", {"topics": [{"name": topic.name}]}, api=METADATA)


@replicated(LIST_REASSIGNMENTS)
def list_reassignments_in_sync(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2])
    run.ask("all", {"timeout": 10_000, "topics": None})
    run.ask("none", {"timeout": 10_000, "topics": []})
    run.ask("one", {"timeout": 10_000, "topics": [{"name": topic.name, "partition_indexes": [0, 5]}]})


@replicated(PRODUCE)
def produce_to_three(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2, 3], min_insync_replicas="3")
    more = new_topic(run, "more", [1, 2], min_insync_replicas="3")
    for acks in (-1, 1):
        run.ask(f"acks {acks}", produce_body(topic, {0: batch(b"a")}, acks=acks))
        run.ask(f"acks {acks}, fewer replicas than wanted", produce_body(more, {0: batch(b"a")}, acks=acks))
    for acks in (2, 3, -2):
        run.ask(f"acks {acks}, which cannot be", produce_body(topic, {0: batch(b"c")}, acks=acks))
    run.ask("at a follower", produce_body(topic, {0: batch(b"b")}), at=2)
    run.ask("where no replica is", produce_body(more, {0: batch(b"b")}), at=3)


@replicated(PRODUCE, newest_only=True)
def produce_beside_a_frozen_follower(run: Run) -> None:
    """What acks=all waits for in vain is there all the same, and is acknowledged to nobody."""
    topic = new_topic(run, "topic", [1, 2, 3], min_insync_replicas="2")
    fill(run, topic, 0, 1, b"a")
    wait_full(run, topic, [1, 2, 3])
    assert run.cluster.brokers is not None
    with run.cluster.brokers.paused(3):
        run.ask("acks -1", {**produce_body(topic, {0: batch(b"b")}), "timeout": 500})
        run.ask("acks 1", produce_body(topic, {0: batch(b"c")}, acks=1))
        run.ask("not yet for consumers", fetch_body(wanted(topic, {0: 1})), api=FETCH)
    wait_end(run, topic, 0, 1, 3)
    wait_full(run, topic, [1, 2, 3])
    run.ask("for consumers", fetch_body(wanted(topic, {0: 1})), api=FETCH)


@replicated(FETCH)
def fetch_nearby(run: Run) -> None:
    """A consumer that tells its rack is sent to the replica there (KIP-392)."""
    if run.version < 11:
        return
    topic = new_topic(run, "topic", [1, 2])
    fill(run, topic, 0, 1, b"a", b"b")
    # The follower may be read from once it knows itself what all have.
    body = fetch_body(wanted(topic, {0: 0}), rack_id="east")
    until(lambda: _records_of(run.quietly(FETCH, body, at=2)), "records of the follower")
    for step, rack in (("no rack", ""), ("leader", "north"), ("follower", "east"), ("no replica", "west")):
        run.ask(f"in the rack of the {step}", fetch_body(wanted(topic, {0: 0}), rack_id=rack))
    run.ask("in no broker's rack", fetch_body(wanted(topic, {0: 0}), rack_id="south"))
    run.ask("at the end", fetch_body(wanted(topic, {0: 2}), rack_id="east"))
    run.ask("beyond the end", fetch_body(wanted(topic, {0: 3}), rack_id="east"))
    run.ask("sent there", fetch_body(wanted(topic, {0: 0}), rack_id="east"), at=2)
    run.ask("sent there, at the end", fetch_body(wanted(topic, {0: 2}), rack_id="east"), at=2)
    run.ask(
        "sent there, in the epoch",
        fetch_body(wanted(topic, {0: 0}, current_leader_epoch=0), rack_id="east"),
        at=2,
    )
    run.ask(
        "sent there, in a later epoch",
        fetch_body(wanted(topic, {0: 0}, current_leader_epoch=1), rack_id="east"),
        at=2,
    )
    run.ask("sent where no replica is", fetch_body(wanted(topic, {0: 0}), rack_id="west"), at=3)
    opened = run.ask("session", fetch_body(wanted(topic, {0: 0}), rack_id="east", session_epoch=0))
    session = {"session_id": opened.session_id, "session_epoch": 1}
    run.ask("session, nothing new", fetch_body(rack_id="east", **session))


def _records_of(answer: Any) -> bool:
    (part,) = (part for topic in answer.responses for part in topic.partitions)
    return bool(part.records)


@replicated(FETCH)
def fetch_with_epochs(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2, 3])
    fill(run, topic, 0, 1, b"a", b"b")
    _lead_anew(run, topic)
    fill(run, topic, 0, 2, b"c")
    wait_end(run, topic, 0, 2, 3)
    for epoch in (-1, 0, 1, 2) if run.version >= 9 else (-1,):
        run.ask(f"epoch {epoch}", fetch_body(wanted(topic, {0: 0}, current_leader_epoch=epoch)), at=2)
    if run.version < 11:  # later ones read from followers as well (KIP-392)
        run.ask("at a follower", fetch_body(wanted(topic, {0: 0})), at=1)
    if run.version >= 12:
        for epoch, offset in ((0, 2), (0, 3), (1, 3), (2, 3), (-1, 3)):
            body = fetch_body(wanted(topic, {0: offset}, last_fetched_epoch=epoch))
            run.ask(f"{offset} after epoch {epoch}", body, at=2)


def _lead_anew(run: Run, topic: TopicRef) -> None:
    """Partition 0 of replicas 1, 2, 3 is led by 2 in epoch 1."""
    rows = [{"partition_index": 0, "replicas": [2, 1, 3]}]
    run.quietly(
        ALTER_REASSIGNMENTS, {"timeout": 10_000, "topics": [{"name": topic.name, "partitions": rows}]}
    )
    wanted_ones = [{"topic": topic.name, "partitions": [0]}]
    run.quietly(ELECT_LEADERS, {"election_type": 0, "topic_partitions": wanted_ones, "timeout": 10_000})
    wait_for(run, topic, lambda parts: parts[0].leader_id == 2)


@replicated(OFFSET_FOR_LEADER_EPOCH)
def epochs_after_an_election(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2, 3])
    fill(run, topic, 0, 1, b"a", b"b")
    _lead_anew(run, topic)

    def ask(step: str, epoch: int, current: int = -1, at: int = 2) -> None:
        part = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        body = {"replica_id": -1, "topics": [{"topic": topic.name, "partitions": [part]}]}
        run.ask(step, body, at=at)

    for epoch in (-1, 0, 1, 2):
        ask(f"epoch {epoch}, nothing new", epoch)
    fill(run, topic, 0, 2, b"c")
    for epoch in (0, 1):
        ask(f"epoch {epoch}, a record more", epoch)
    for current in (0, 1, 2):
        ask(f"asked in epoch {current}", 0, current)
    ask("at a follower", 0, at=1)
    ask("at a follower in a former epoch", 0, 0, at=1)


@replicated(LIST_OFFSETS)
def offsets_after_an_election(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2, 3])
    fill(run, topic, 0, 1, b"a", b"b")
    _lead_anew(run, topic)
    fill(run, topic, 0, 2, b"c")
    for timestamp in (LATEST, -2):
        for current in (-1, 0, 1, 2) if run.version >= 4 else (-1,):
            part = {"partition_index": 0, "current_leader_epoch": current, "timestamp": timestamp}
            body = {"replica_id": -1, "topics": [{"name": topic.name, "partitions": [part]}]}
            run.ask(f"{timestamp} in epoch {current}", body, at=2)
        run.ask(f"{timestamp} at a follower", body, at=1)


@replicated(DESCRIBE_TOPIC_PARTITIONS)
def partitions_of_three(run: Run) -> None:
    names = [{"name": f"shared-{what}"} for what in ("spread", "strict", "alone")]
    run.ask("all there", {"topics": names, "response_partition_limit": 2000})
