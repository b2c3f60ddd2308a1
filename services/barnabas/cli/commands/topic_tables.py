"""What `topics --describe` shows: a line for each topic with its configs, a row for each partition."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import TopicCollection

from barnabas.cli.commands.topic_flags import OVERRIDES
from barnabas.cli.kafka import answers, configs
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.topics import matching_topics, no_such_topic
from barnabas.cli.refusal import Refused
from barnabas.cli.text.output import Column, OutputFormat, show_document, show_rows

if TYPE_CHECKING:
    from barnabas.cli.commands.topic_flags import TopicFlags

COLUMNS: Final = (
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("leader", "LEADER", "green", is_number=True),
    Column("replicas", "REPLICAS"),
    Column("isr", "ISR"),
    Column("elr", "ELR"),
    Column("lastKnownElr", "LAST-KNOWN-ELR"),
)
TOPIC_COLUMNS: Final = (
    Column("topic", "TOPIC", "cyan"),
    Column("topicId", "TOPIC-ID"),
    Column("partitionCount", "PARTITIONS", is_number=True),
    Column("replicationFactor", "REPLICAS", is_number=True),
    Column("configs", "CONFIGS"),
)
NO_LEADER: Final = "none"

Place = tuple[str, int]
Eligible = tuple[list[int] | None, list[int] | None]
"""The eligible leader replicas of a partition, and those that were known last."""


def describe_topics(
    connection: Connection, patterns: Sequence[str], more: TopicFlags, output: OutputFormat
) -> None:
    """The topics that match; with a filter only the partitions it keeps, and topics that have some."""
    admin = connection.admin()
    names = matching_topics(
        connection.cluster(admin).topics, patterns, exclude_internal=more.exclude_internal
    )
    if not names and patterns and not more.if_exists:
        raise no_such_topic(patterns)
    found = answers.all_of(admin.describe_topics(TopicCollection(names))) if names else {}
    if more.topic_id:
        names = [name for name in names if url_safe(found[name].topic_id) == more.topic_id]
        if not names and not more.if_exists:
            raise Refused(f"no topic has the id {more.topic_id}: `barnabas topics --describe` shows the ids")
    settings = configs.read_topics(admin, names) if names else {}
    eligible = _eligible_replicas(connection, names) if names else {}
    topics = [topic_row(found[name], settings[name], eligible) for name in names]
    if OVERRIDES in more.filters:
        topics = [topic for topic in topics if topic["configs"]]
    _apply_filters(topics, more.filters - {OVERRIDES}, settings)
    if output is not OutputFormat.table:
        show_document(topics, output)
        return
    if not more.filters - {OVERRIDES}:
        show_rows(topics, TOPIC_COLUMNS, output, title="topics")
        if topics:
            sys.stdout.write("\n")
    if OVERRIDES not in more.filters:
        rows = [{"topic": topic["topic"], **part} for topic in topics for part in topic["partitions"]]
        show_rows(rows, COLUMNS, output, title="partitions")


def url_safe(topic_id: Any) -> str:
    """A topic's id as Kafka's tools write it: librdkafka has + and / in it, they - and _."""
    return str(topic_id).translate(str.maketrans("+/", "-_"))


def _eligible_replicas(connection: Connection, names: Sequence[str]) -> dict[Place, Eligible]:
    """Who is eligible to lead without being in sync (KIP-966); nothing where that cannot be asked."""
    from barnabas.cli.kafka.administration import Administration
    from barnabas.cli.kafka.cluster_reading import describe_partitions

    try:
        with Administration(connection) as administration:
            return {
                (str(topic.name), int(part.partition_index)): (
                    ids_of(part.eligible_leader_replicas),
                    ids_of(part.last_known_elr),
                )
                for topic in describe_partitions(administration, names)
                for part in topic.partitions
            }
    except Refused:
        return {}  # librdkafka has other ways to log in, and older brokers do not have the request


def ids_of(nodes: Sequence[Any] | None) -> list[int] | None:
    return None if nodes is None else [int(node) for node in nodes]


def topic_row(
    description: Any, settings: Mapping[str, Any], eligible: Mapping[Place, Eligible] = MappingProxyType({})
) -> dict[str, Any]:
    """One topic as plain data; who is eligible is None where it is not known."""
    name, unknown = description.name, (None, None)
    partitions = [
        {
            "partition": part.id,
            "leader": NO_LEADER if part.leader is None or part.leader.id < 0 else part.leader.id,
            "replicas": [node.id for node in part.replicas],
            "isr": [node.id for node in part.isr],
            "elr": eligible.get((name, part.id), unknown)[0],
            "lastKnownElr": eligible.get((name, part.id), unknown)[1],
        }
        for part in description.partitions
    ]
    return {
        "topic": name,
        "topicId": url_safe(description.topic_id),
        "partitionCount": len(partitions),
        "replicationFactor": max((len(part["replicas"]) for part in partitions), default=0),
        "internal": description.is_internal,
        "configs": {name: entry.value for name, entry in sorted(settings.items()) if entry.is_own},
        "partitions": partitions,
    }


def is_kept(partition: Mapping[str, Any], filters: frozenset[str], min_isr: int) -> bool:
    """Whether one of the filters asks for this partition."""
    replicas, isr = len(partition["replicas"]), len(partition["isr"])
    return (
        ("under-replicated-partitions" in filters and isr < replicas)
        or ("unavailable-partitions" in filters and partition["leader"] == NO_LEADER)
        or ("under-min-isr-partitions" in filters and isr < min_isr)
        or ("at-min-isr-partitions" in filters and isr == min_isr)
    )


def _apply_filters(
    topics: list[dict[str, Any]], filters: frozenset[str], settings: Mapping[str, Mapping[str, Any]]
) -> None:
    if not filters:
        return
    for topic in topics:
        least = settings[topic["topic"]].get("min.insync.replicas")
        min_isr = int(least.value) if least is not None else 1
        topic["partitions"] = [part for part in topic["partitions"] if is_kept(part, filters, min_isr)]
    topics[:] = [topic for topic in topics if topic["partitions"]]
