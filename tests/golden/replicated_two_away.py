"""Broker 2 is killed as well; then 3 comes back, then 2; in the end 3 goes for good."""

from __future__ import annotations

from golden_batches import PRODUCE, batch, produce_body
from golden_session import Run
from replicated_all_there import (
    ALTER_REASSIGNMENTS,
    CREATE_TOPICS,
    ELECT_LEADERS,
    FETCH,
    LIST_REASSIGNMENTS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PREFERRED,
    UNCLEAN,
    elect,
    moves,
    reassign,
)
from replicated_one_away import GROUND
from replicated_session import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    FIRST,
    assigned,
    fill,
    forget,
    new_topic,
    replicated,
    settle,
    shared,
    show,
    start,
    stop,
    wait_end,
    wait_for,
    wait_full,
)
from scenarios_fetch import fetch_body, wanted

UNREGISTER_BROKER = 64


@replicated(DESCRIBE_TOPIC_PARTITIONS, newest_only=True)
def the_second_is_killed(run: Run) -> None:
    fill(run, shared(run, "pair"), 0, 2, b"second", b"third")
    stop(run, 2, alive=(1,), kill=True)
    for what in GROUND:
        topic = shared(run, what)
        wait_for(run, topic, lambda parts: all(part.leader_id in (1, -1) for part in parts.values()))
        show(run, what, topic)


@replicated(METADATA)
def metadata_of_one(run: Run) -> None:
    run.ask("two away", {"topics": [{"name": f"shared-{what}"} for what in GROUND]})


@replicated(PRODUCE, newest_only=True)
def produce_to_one(run: Run) -> None:
    spread, pair = shared(run, "spread"), shared(run, "pair")
    for acks in (-1, 1):
        run.ask(f"acks {acks}", produce_body(spread, {0: batch(b"a")}, acks=acks))
        run.ask(f"acks {acks}, nobody leads", produce_body(pair, {0: batch(b"a")}, acks=acks))
    run.ask("fetched", fetch_body(wanted(spread, {0: 0})), api=FETCH)


@replicated(CREATE_TOPICS, newest_only=True)
def create_with_two_away(run: Run) -> None:
    row = {"name": run.name("two"), "num_partitions": -1, "replication_factor": -1, "configs": []}
    run.ask("both away", {"topics": [{**row, "assignments": assigned([2, 3])}], "timeout": 10_000})
    row = {**row, "num_partitions": 1, "replication_factor": 3, "assignments": []}
    run.ask("factor of all", {"topics": [{**row, "name": run.name("three")}], "timeout": 10_000})


@replicated(ELECT_LEADERS)
def elect_with_two_away(run: Run) -> None:
    pair, careful = shared(run, "pair"), shared(run, "careful")
    elect(run, "preferred, nobody there", PREFERRED, (pair, [0]), (careful, [0]))
    if run.version >= 1:
        elect(run, "unclean, nobody there", UNCLEAN, (pair, [0]), (careful, [0]))


@replicated(ALTER_REASSIGNMENTS, newest_only=True)
def reassign_with_two_away(run: Run) -> None:
    topic = new_topic(run, "topic", [1, 2, 3])
    reassign(run, "to those that are away", topic, (0, [2, 3]))
    moves(run, "on the way", (topic, [0]))
    show(run, "on its way", topic)
    reassign(run, "given up", topic, (0, None))
    show(run, "after it was given up", topic)
    given_up = shared(run, "given-up")
    reassign(run, "of nobody's, to one that is there", given_up, (0, [1, 2]))
    show(run, "nobody's", given_up)
    reassign(run, "of nobody's, given up", given_up, (0, None))
    show(run, "nobody's, given up", given_up)
    forget(run, given_up)


@replicated(DESCRIBE_TOPIC_PARTITIONS, newest_only=True)
def the_third_is_back(run: Run) -> None:
    start(run, 3, alive=(1, 3))
    spread = shared(run, "spread")
    wait_for(run, spread, lambda parts: all(set(part.isr_nodes) == {1, 3} for part in parts.values()))
    moving = shared(run, "moving")
    wait_for(run, moving, lambda parts: 3 in parts[0].isr_nodes)
    wait_for(run, shared(run, "careful"), lambda parts: parts[0].leader_id == 3)
    wait_for(run, shared(run, "alone"), lambda parts: parts[2].leader_id == 3)
    wait_for(run, shared(run, "strict"), lambda parts: all(3 in part.isr_nodes for part in parts.values()))
    for what in GROUND:
        show(run, what, shared(run, what))
    moves(run, "the one that waited", (moving, [0]))


@replicated(ELECT_LEADERS)
def elect_one_that_lacks_records(run: Run) -> None:
    """Broker 3 has not what 2 took while it was away."""
    pair = shared(run, "pair")
    elect(run, "preferred, out of sync", PREFERRED, (pair, [0]))
    elect(run, "preferred, back", PREFERRED, (shared(run, "spread"), [2]))
    if run.version == run.newest(ELECT_LEADERS):
        elect(run, "unclean", UNCLEAN, (pair, [0]))
        wait_for(run, pair, lambda parts: parts[0].leader_id == 3)
        show(run, "led by who lacks records", pair)
        run.ask("what is left", fetch_body(wanted(pair, {0: 0})), api=FETCH, at=3)
        elect(run, "unclean, again", UNCLEAN, (pair, [0]))
        fill(run, pair, 0, 3, b"fourth")


@replicated(DESCRIBE_TOPIC_PARTITIONS, newest_only=True)
def the_second_is_back(run: Run) -> None:
    start(run, 2, alive=(1, 2, 3))
    wait_full(run, shared(run, "spread"), [1, 2, 3], [2, 3, 1], [3, 1, 2])
    wait_full(run, shared(run, "strict"), [1, 2, 3], [3, 1, 2])
    wait_full(run, shared(run, "pair"), [3, 2])
    wait_full(run, shared(run, "careful"), [2, 3])
    wait_full(run, shared(run, "alone"), [1], [2], [3])
    for what in GROUND:
        show(run, what, shared(run, what))


@replicated(OFFSET_FOR_LEADER_EPOCH, newest_only=True)
def epochs_after_it_all(run: Run) -> None:
    for what, index, leader in (("pair", 0, 3), ("careful", 0, 3), ("spread", 0, 1)):
        for epoch in range(-1, 7):
            part = {"partition": index, "current_leader_epoch": -1, "leader_epoch": epoch}
            body = {"replica_id": -1, "topics": [{"topic": f"shared-{what}", "partitions": [part]}]}
            run.ask(f"{what}, epoch {epoch}", body, at=leader)


@replicated(FETCH, newest_only=True)
def records_after_it_all(run: Run) -> None:
    wait_end(run, shared(run, "spread"), 0, FIRST, 2)
    for what, index, leader in (("pair", 0, 3), ("careful", 0, 3), ("spread", 0, 1), ("moving", 0, 3)):
        run.ask(what, fetch_body(wanted(shared(run, what), {index: 0})), at=leader)


@replicated(UNREGISTER_BROKER)
def the_third_is_forgotten(run: Run) -> None:
    stop(run, 3, alive=(1, 2))
    run.ask("unknown", {"broker_id": 99})
    run.ask("away", {"broker_id": 3})
    run.ask("again", {"broker_id": 3})
    settle(run)
    for what in GROUND:
        show(run, what, shared(run, what))
    run.ask("cluster", {"include_fenced_brokers": True}, api=DESCRIBE_CLUSTER)
    run.ask("metadata", {"topics": [{"name": "shared-spread"}]}, api=METADATA)
    reassign(run, "to who is forgotten", shared(run, "moving"), (0, [1, 3]))
    reassign(run, "without who is forgotten", shared(run, "spread"), (0, [1, 2]))
    wait_for(run, shared(run, "spread"), lambda parts: list(parts[0].replica_nodes) == [1, 2])
    show(run, "without it", shared(run, "spread"))
    run.ask("on the way", {"timeout": 10_000, "topics": None}, api=LIST_REASSIGNMENTS)
    row = {"name": run.name("new"), "num_partitions": 1, "replication_factor": 3, "configs": []}
    run.ask("factor of three", {"topics": [row], "timeout": 10_000}, api=CREATE_TOPICS)
    row = {**row, "num_partitions": -1, "replication_factor": -1, "assignments": assigned([1, 3])}
    run.ask("assigned to it", {"topics": [row], "timeout": 10_000}, api=CREATE_TOPICS)


@replicated(UNREGISTER_BROKER)
def a_living_one_is_forgotten(run: Run) -> None:
    """The session's last question, as Kafka's broker stays away then."""
    run.ask("that is there", {"broker_id": 2})
