"""Transactions over three brokers: their leaders move, and one broker goes while a transaction is open.

What is decided while a partition of it cannot be written to is told to that partition in the end: once fewer replicas
are enough. Kafka's coordinator asks again without a pause until then, so that is not left to later scenarios. It is one
of the brokers, and only that one may be asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from golden_batches import PRODUCE
from golden_session import Run, TopicRef
from golden_transactions import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    Producer,
    init_body,
)
from replicated_session import new_topic, replicated, shared, until, wait_for
from scenarios_fetch import FETCH, LIST_OFFSETS, fetch_body, wanted

COMMITTED: Final = 1
TIMEOUT_MS: Final = 900_000
"""The longest that a transaction may take."""
LATEST: Final = -1
DECIDED: Final = "decided-while-one-was-away"
"""The transactional id whose transaction waits for a partition that lacks a replica, and its topic."""


def coordinator_of(run: Run, transactional_id: str) -> int:
    """The broker that coordinates the id's transactions."""
    body = {"key_type": 1, "coordinator_keys": [transactional_id]}
    (found,) = run.quietly(FIND_COORDINATOR, body).coordinators
    return found.node_id if not found.error_code else 0


def at_coordinator(
    run: Run, transactional_id: str, api: int, body: dict[str, Any], is_there: Callable[[Any], bool]
) -> Any:
    """Ask whoever coordinates the id until the answer is as wanted."""
    answers = []

    def ask() -> bool:
        answers.append(run.quietly(api, body, at=coordinator_of(run, transactional_id)))
        return is_there(answers[-1])

    until(ask, f"the coordinator of {transactional_id}")
    return answers[-1]


def begin(run: Run, transactional_id: str) -> Producer:
    """A producer with the next epoch of the id, whose transactions may last as long as the session."""
    body = init_body(transactional_id, transaction_timeout=TIMEOUT_MS)
    answer = at_coordinator(
        run, transactional_id, INIT_PRODUCER_ID, body, lambda answer: not answer.error_code
    )
    return Producer(run, transactional_id, answer.producer_id, answer.producer_epoch)


def send(run: Run, step: str, mine: Producer, topic: TopicRef, index: int, leader: int) -> None:
    """The next batch for a partition, which has to wait while the transaction before it ends."""
    run.ask(step, mine.produce_body(topic, index), api=PRODUCE, at=leader)


def end(run: Run, step: str, mine: Producer, *, committed: bool) -> None:
    """End the transaction."""
    at = coordinator_of(run, mine.transactional_id)
    answer = run.ask(step, mine.end_body(committed=committed), api=END_TXN, at=at)
    mine.went_on(answer, run.newest(END_TXN))


def wait_complete(run: Run, transactional_id: str) -> None:
    """Until every partition has its marker."""
    at_coordinator(
        run,
        transactional_id,
        DESCRIBE_TRANSACTIONS,
        {"transactional_ids": [transactional_id]},
        lambda answer: answer.transaction_states[0].transaction_state in ("CompleteCommit", "CompleteAbort"),
    )


def wait_until_left(run: Run, transactional_id: str, count: int) -> None:
    """Until all but so many partitions have their markers."""

    def is_left(answer: Any) -> bool:
        topics = answer.transaction_states[0].topics
        return sum(len(topic.partitions) for topic in topics) == count

    at_coordinator(
        run, transactional_id, DESCRIBE_TRANSACTIONS, {"transactional_ids": [transactional_id]}, is_left
    )


def describe(run: Run, step: str, transactional_id: str) -> None:
    """What its coordinator says of the id."""
    at = coordinator_of(run, transactional_id)
    run.ask(step, {"transactional_ids": [transactional_id]}, api=DESCRIBE_TRANSACTIONS, at=at)


def read(
    run: Run, step: str, topic: TopicRef, index: int, leader: int, *, has_coordinator_stayed: bool = True
) -> None:
    """What a reader of committed records is given by the partition's leader, and where it ends for that reader.

    Its producers come with their coordinator's epoch, which is by chance where a broker that went may have been it.
    """
    body = fetch_body(wanted(topic, {index: 0}), isolation_level=COMMITTED)
    run.ask(f"{step}: read", body, api=FETCH, at=leader)
    part = {"partition_index": index, "timestamp": LATEST}
    topics = [{"name": topic.name, "partitions": [part]}]
    asked = {"replica_id": -1, "isolation_level": COMMITTED, "topics": topics}
    run.ask(f"{step}: end", asked, api=LIST_OFFSETS, at=leader)
    if not has_coordinator_stayed:
        return
    named = [{"name": topic.name, "partition_indexes": [index]}]
    run.ask(f"{step}: producers", {"topics": named}, api=DESCRIBE_PRODUCERS, at=leader)


def move(run: Run, topic: TopicRef, replicas: list[int]) -> None:
    """Make the first of `replicas` the leader of the topic's first partition."""
    row = {"name": topic.name, "partitions": [{"partition_index": 0, "replicas": replicas}]}
    run.quietly(45, {"timeout": 10_000, "topics": [row]})
    elected = [{"topic": topic.name, "partitions": [0]}]
    run.quietly(43, {"election_type": 0, "topic_partitions": elected, "timeout": 10_000})
    wait_for(run, topic, lambda parts: parts[0].leader_id == replicas[0])


@replicated(END_TXN, newest_only=True)
def transactions_of_leaders_that_move(run: Run) -> None:
    """All are there: what a leader knows of a transaction, the next one knows."""
    topic = new_topic(run, "topic", [2, 3, 1], [1, 2, 3])
    mine = begin(run, run.name("id"))
    for committed in (True, False):
        name = "committed" if committed else "aborted"
        send(run, f"{name}: to its leader", mine, topic, 0, 2)
        send(run, f"{name}: to another", mine, topic, 1, 1)
        read(run, f"{name}: open", topic, 0, 2)
        move(run, topic, [3, 2, 1])
        read(run, f"{name}: at the next leader", topic, 0, 3)
        send(run, f"{name}: to the next leader", mine, topic, 0, 3)
        describe(run, f"{name}: begun", mine.transactional_id)
        end(run, name, mine, committed=committed)
        wait_complete(run, mine.transactional_id)
        describe(run, f"{name}: complete", mine.transactional_id)
        read(run, f"{name}: ended", topic, 0, 3)
        read(run, f"{name}: ended, the other one", topic, 1, 1)
        move(run, topic, [2, 3, 1])
        read(run, f"{name}: at the first leader again", topic, 0, 2)


@replicated(END_TXN, newest_only=True)
def a_transaction_before_the_third_goes(run: Run) -> None:
    """Two partitions, of which one will have too few replicas to be written to."""
    topic = new_topic(run, DECIDED, [2, 1], [3, 2], is_shared=True, min_insync_replicas="2")
    mine = begin(run, DECIDED)
    run.cluster.producers[DECIDED] = mine.producer_id, mine.epoch
    send(run, "to the first", mine, topic, 0, 2)
    send(run, "to the second", mine, topic, 1, 3)


def decided(run: Run) -> tuple[Producer, TopicRef]:
    """That transaction's producer as an earlier scenario left it, and its topic."""
    return Producer(run, DECIDED, *run.cluster.producers[DECIDED]), shared(run, DECIDED)
