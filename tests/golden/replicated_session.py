"""What the scenarios with three brokers have in common: topics by manual assignment, and waiting for all brokers.

The brokers are 1, 2 and 3; the first is never stopped. Scenarios are played in their order, and what one stops stays
down for the next ones.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from golden_batches import PRODUCE, batch, produce_body
from golden_session import REPLICATED, Run, TopicRef, scenario
from raw_client import CREATE_TOPICS, LIST_OFFSETS, METADATA

DELETE_TOPICS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 20, 60, 75
FIRST: Final = 1
"""The broker that is always there."""

WAIT_SECONDS: Final = 30.0
LATEST: Final = -1

replicated = functools.partial(scenario, script=REPLICATED)
"""Puts a scenario on the list of the session with three brokers."""

Described = Mapping[int, Any]
"""The partitions of a topic by index, as DescribeTopicPartitions has them."""


def assigned(*replicas: list[int], first: int = 0) -> list[dict[str, Any]]:
    """The assignments of a CreateTopics request."""
    return [
        {"partition_index": first + index, "broker_ids": brokers} for index, brokers in enumerate(replicas)
    ]


def new_topic(run: Run, what: str, *replicas: list[int], is_shared: bool = False, **config: str) -> TopicRef:
    """A topic with these replicas, there at every broker that lives; `config` has underscores for dots.

    One that is shared is found again by other scenarios under the name `what` (see `shared`).
    """
    name = f"shared-{what}" if is_shared else run.name(what)
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in config.items()]
    row = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assigned(*replicas),
        "configs": configs,
    }
    (created,) = run.quietly(CREATE_TOPICS, {"topics": [row], "timeout": 10_000}).topics
    assert created.error_code == 0, created
    run.know(name, created.topic_id)
    topic = TopicRef(name, created.topic_id.bytes)
    wait_for(run, topic, lambda partitions: len(partitions) == len(replicas))
    return topic


def shared(run: Run, what: str) -> TopicRef:
    """The topic that an earlier scenario made."""
    name = f"shared-{what}"
    ids = {known: topic_id for topic_id, known in run.cluster.topic_ids.items()}
    return TopicRef(name, ids[name].bytes)


def described(run: Run, topic: TopicRef, at: int = FIRST) -> Described:
    """The topic's partitions as one broker knows them; none while it knows nothing of it."""
    body = {"topics": [{"name": topic.name}], "response_partition_limit": 2000}
    answer = run.quietly(DESCRIBE_TOPIC_PARTITIONS, body, at=at)
    return {part.partition_index: part for row in answer.topics for part in row.partitions}


def show(run: Run, step: str, topic: TopicRef) -> None:
    """Record leader, epoch, replicas, ISR, eligible and offline replicas of each partition, with all changes so far."""
    settle(run)
    body = {"topics": [{"name": topic.name}], "response_partition_limit": 2000}
    run.ask(step, body, api=DESCRIBE_TOPIC_PARTITIONS)


def settle(run: Run) -> None:
    """Wait until the first broker knows every change of metadata so far: Kafka's controller answers before it does."""
    run.settlements += 1
    new_topic(run, f"settled-{run.settlements}", [FIRST])


def living(run: Run) -> list[int]:
    """The brokers that the first one tells of."""
    return sorted(row.node_id for row in run.quietly(METADATA, {"topics": []}).brokers)


def wait_for(run: Run, topic: TopicRef, is_there: Callable[[Described], bool]) -> None:
    """Wait until every broker that lives knows the topic as wanted, and its leaders are at work."""
    until(lambda: all(is_there(described(run, topic, at)) for at in living(run)), f"{topic.name}")
    for index, part in described(run, topic).items():
        if part.leader_id >= 0:
            wait_end(run, topic, index, part.leader_id)


def wait_in_sync(run: Run, topic: TopicRef, *brokers: int) -> None:
    """Wait until these brokers are the in-sync replicas of every partition."""
    wait_for(run, topic, lambda parts: all(set(part.isr_nodes) == set(brokers) for part in parts.values()))


def wait_full(run: Run, topic: TopicRef, *replicas: list[int]) -> None:
    """Wait until the partitions have these replicas, all of them in sync, and none is on its way."""
    wanted = dict(enumerate(replicas))

    def is_there(parts: Described) -> bool:
        return all(
            list(part.replica_nodes) == wanted[index] and set(part.isr_nodes) == set(wanted[index])
            for index, part in parts.items()
        )

    wait_for(run, topic, is_there)


def wait_end(run: Run, topic: TopicRef, index: int, leader: int, end: int | None = None) -> None:
    """Wait until the leader answers where the partition ends; with `end`, until it ends there."""
    asked = {"partition_index": index, "timestamp": LATEST}
    body = {"replica_id": -1, "topics": [{"name": topic.name, "partitions": [asked]}]}

    def is_there() -> bool:
        (row,) = run.quietly(LIST_OFFSETS, body, at=leader).topics[0].partitions
        return row.error_code == 0 and end in (None, row.offset)

    until(is_there, f"{topic.name}-{index} at {leader}")


def wait_brokers(run: Run, alive: Collection[int]) -> None:
    """Wait until all brokers that live agree that these do, and show no other: a broker that was just fenced is shown
    for a while.
    """
    body = {"include_fenced_brokers": True}

    def agree() -> bool:
        for at in alive:
            brokers = run.quietly(DESCRIBE_CLUSTER, body, at=at).brokers
            shown = run.quietly(METADATA, {"topics": []}, at=at).brokers
            if {row.broker_id for row in brokers if not row.is_fenced} != set(alive):
                return False
            if {row.node_id for row in shown} != set(alive):
                return False
        return True

    until(agree, f"the brokers {alive}")


def until(is_there: Callable[[], bool], what: str) -> None:
    """Wait; AssertionError when it never comes."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_there():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def fill(run: Run, topic: TopicRef, index: int, leader: int, *values: bytes, acks: int = -1) -> None:
    """Append one batch, which must be taken."""
    answer = run.quietly(PRODUCE, produce_body(topic, {index: batch(*values)}, acks=acks), at=leader)
    codes = [part.error_code for row in answer.responses for part in row.partition_responses]
    assert not any(codes), codes


def forget(run: Run, topic: TopicRef) -> None:
    """Delete a topic that the clusters have come to differ in, so that later steps do not show it."""
    answer = run.quietly(DELETE_TOPICS, {"topics": [{"name": topic.name}], "timeout": 10_000})
    assert not answer.responses[0].error_code, answer


def stop(run: Run, broker: int, *, alive: Collection[int], kill: bool = False) -> None:
    """Stop a broker, and return when the others know."""
    assert run.cluster.brokers is not None
    run.cluster.brokers.stop(broker, kill=kill)
    wait_brokers(run, alive)


def start(run: Run, broker: int, *, alive: Collection[int]) -> None:
    """Start a broker that was stopped, and return when all know."""
    assert run.cluster.brokers is not None
    run.cluster.brokers.start(broker)
    wait_brokers(run, alive)
