"""A cluster's state read for the commands that judge or change where its replicas lie."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from barnabas.cli.balance.cluster_state import ClusterState, Directory, Node, Partition, Place
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.config_values import broker_values
from barnabas.cli.kafka.plain_connection import Unanswered
from barnabas.cli.kafka.reassigning import Reassigning, list_reassigning
from barnabas.cli.kafka.requests import (
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    LOG_DIRS_VERSION,
    check,
    nested,
)
from barnabas.kernel.errors import ErrorCode

PAGE_PARTITIONS: Final = 2_000
"""Partitions an answer describes at most; the broker may have a lower limit."""

CORDONED: Final = "cordoned.log.dirs"

_FENCED_SHOWN_FROM: Final = 2
"""The version of DescribeCluster that shows fenced brokers."""


def read_state(administration: Administration) -> ClusterState:
    """Nodes with what they say of their disks, partitions with what is known of their replicas."""
    nodes, is_shown_as_one = read_nodes(administration)
    reassigning = list_reassigning(administration)
    described = [
        _partition(topic, part, reassigning)
        for topic in describe_partitions(administration)
        for part in topic.partitions
    ]
    nodes = with_unknown_nodes(nodes, described)
    alive = [node for node in nodes if node.address is not None]
    answers = administration.ask_each(
        alive[:1] if is_shown_as_one else alive, functools.partial(describe_log_dirs, administration)
    )
    sizes = sizes_of(answers)
    partitions = tuple(
        _with_sizes(part, sizes.get(part.place, {}), is_shown_as_one=is_shown_as_one)
        for part in sorted(described, key=lambda part: part.place)
    )
    if not is_shown_as_one:
        nodes = [replace(node, directories=directories_of(answers.get(node.node_id))) for node in nodes]
    cordoned = administration.ask_each(alive, functools.partial(_cordoned, administration))
    cordoned |= {node.node_id: _cordoned(administration, node) for node in nodes if node.address is None}
    nodes = [replace(node, cordoned=cordoned[node.node_id]) for node in nodes]
    return ClusterState(tuple(nodes), partitions, is_shown_as_one)


def read_nodes(administration: Administration) -> tuple[list[Node], bool]:
    """The registered nodes in the order of their ids, and whether clients see one broker for all of them."""

    def make(schema: Any, *, is_with_fenced: bool) -> Any:
        more = {"include_fenced_brokers": is_with_fenced} if schema.__version__ >= _FENCED_SHOWN_FROM else {}
        fields: dict[str, Any] = {"include_cluster_authorized_operations": False}
        return schema(**fields, **({"endpoint_type": 1} if schema.__version__ >= 1 else {}), **more)

    known, shown = (
        administration.ask(
            DESCRIBE_CLUSTER, _FENCED_SHOWN_FROM, functools.partial(make, is_with_fenced=is_all)
        )
        for is_all in (True, False)
    )
    for answer in (known, shown):
        check(answer.error_code, "cannot describe the cluster", answer.error_message)
    nodes = [
        Node(
            int(broker.broker_id),
            broker.rack or "",
            str(broker.host),
            int(broker.port),
            is_fenced=getattr(broker, "is_fenced", False),
        )
        for broker in sorted(known.brokers, key=lambda broker: int(broker.broker_id))
    ]
    administration.brokers = [(str(broker.host), int(broker.port)) for broker in shown.brokers]
    return nodes, len(shown.brokers) == 1 < sum(node.is_alive for node in nodes)


def describe_partitions(administration: Administration, topics: Sequence[str] = ()) -> Iterator[Any]:
    """Answers about these topics, or all: a topic may come in several pieces. Those that are not there are left out."""
    cursor: Any = None
    while True:
        at = cursor

        def make(schema: Any, at: Any = at) -> Any:
            place = nested(schema, "cursor") if at is not None else None
            return schema(
                topics=tuple(nested(schema, "topics")(name=name) for name in sorted(topics)),
                response_partition_limit=PAGE_PARTITIONS,
                cursor=place(topic_name=at.topic_name, partition_index=at.partition_index) if place else None,
            )

        answer = administration.ask(DESCRIBE_TOPIC_PARTITIONS, 0, make)
        for topic in answer.topics:
            if topic.error_code == ErrorCode.unknown_topic_or_partition:
                continue
            check(topic.error_code, f"cannot describe topic {topic.name}")
            yield topic
        cursor = answer.next_cursor
        if cursor is None:
            return


def read_partitions(administration: Administration, topics: Sequence[str] = ()) -> list[Partition]:
    """The partitions of these topics that are there, or of all: replicas and leaders, and nothing of their sizes."""
    return [
        _partition(topic, part, {})
        for topic in describe_partitions(administration, topics)
        for part in topic.partitions
    ]


def with_unknown_nodes(nodes: Sequence[Node], partitions: Sequence[Partition]) -> list[Node]:
    """The nodes, and those that have replicas though the cluster does not know them."""
    known = {node.node_id for node in nodes}
    unknown = {replica for part in partitions for replica in part.replicas} - known
    more = [Node(node_id, is_registered=False, is_fenced=True) for node_id in unknown]
    return sorted([*nodes, *more], key=lambda node: node.node_id)


def sizes_of(answers: Mapping[int, Any]) -> dict[Place, dict[int, int]]:
    """Bytes of each partition by the node that said so; what is on its way to another directory counts once."""
    sizes: dict[Place, dict[int, int]] = {}
    for node_id, answer in answers.items():
        for result in () if answer is None else answer.results:
            for topic in result.topics:
                for part in topic.partitions:
                    by_node = sizes.setdefault((str(topic.name), int(part.partition_index)), {})
                    by_node[node_id] = max(by_node.get(node_id, 0), int(part.partition_size))
    return sizes


def read_sizes(
    administration: Administration, node: Node, topics: Mapping[str, Sequence[int]]
) -> dict[Place, int]:
    """Bytes of some partitions on one node; none where it does not answer."""
    answer = describe_log_dirs(administration, node, topics)
    return {place: sizes[node.node_id] for place, sizes in sizes_of({node.node_id: answer}).items()}


def _partition(topic: Any, part: Any, reassigning: Mapping[Place, Reassigning]) -> Partition:
    place = (str(topic.name), int(part.partition_index))
    reassignment = reassigning.get(place)
    return Partition(
        *place,
        _ids(part.replica_nodes),
        _ids(part.isr_nodes),
        int(part.leader_id),
        reassignment.adding if reassignment else (),
        reassignment.removing if reassignment else (),
        _ids(part.eligible_leader_replicas),
        _ids(part.last_known_elr),
        _ids(part.offline_replicas),
        bool(topic.is_internal),
    )


def _ids(nodes: Sequence[Any] | None) -> tuple[int, ...]:
    return tuple(int(node) for node in nodes or ())


def _with_sizes(part: Partition, sizes: Mapping[int, int], *, is_shown_as_one: bool) -> Partition:
    whole = max(sizes.values(), default=0)
    if is_shown_as_one:
        return replace(part, leader=None if part.leader != -1 else -1, size_bytes=whole)
    of_leader = whole if part.leader is None else sizes.get(part.leader, whole)
    return replace(part, sizes=sizes, size_bytes=of_leader)


def describe_log_dirs(
    administration: Administration, node: Node, topics: Mapping[str, Sequence[int]] | None = None
) -> Any:
    """A node's answer; None where it gives none."""

    def make(schema: Any) -> Any:
        if topics is None:
            return schema(topics=None)
        topic = nested(schema, "topics")
        return schema(
            topics=tuple(
                topic(topic=name, partitions=tuple(numbers)) for name, numbers in sorted(topics.items())
            )
        )

    assert node.host is not None
    assert node.port is not None
    try:
        return administration.ask_broker((node.host, node.port), DESCRIBE_LOG_DIRS, LOG_DIRS_VERSION, make)
    except Unanswered:
        return None


def directories_of(answer: Any) -> Sequence[Directory] | None:
    """What a node says of its directories; None where it said nothing."""
    if answer is None or (answer.error_code != 0 and not answer.results):
        return None
    return tuple(
        Directory(
            str(result.log_dir),
            None if result.error_code == 0 else ErrorCode(int(result.error_code)).name.upper(),
            int(result.total_bytes) if result.total_bytes >= 0 else None,
            int(result.usable_bytes) if result.usable_bytes >= 0 else None,
            bool(getattr(result, "is_cordoned", False)),
            sum(part.is_future_key for topic in result.topics for part in topic.partitions),
        )
        for result in answer.results
    )


def _cordoned(administration: Administration, node: Node) -> tuple[str, ...]:
    if not node.is_registered:
        return ()
    value = broker_values(administration, node, [CORDONED]).get(CORDONED, "")
    return tuple(word.strip() for word in value.split(",") if word.strip())
