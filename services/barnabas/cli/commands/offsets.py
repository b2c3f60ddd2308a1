"""`barnabas offsets`: kafka-get-offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import Column, OutputFormat, show_rows

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

    from barnabas.cli.kafka.connection import Connection

COLUMNS: Final = (
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("offset", "OFFSET", "green", is_number=True),
)
NAMED_TIMES: Final = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
"""Kafka's special timestamps in ListOffsets."""

LIBRDKAFKA_TIME_MIN: Final = -3
"""Special timestamps below this are asked over a socket of our own."""


PartitionsFlag = Annotated[str, typer.Option(metavar="0,1,2", help="Only these partitions.")]
TopicPartitionsFlag = Annotated[
    str, typer.Option(metavar="TOPIC:0-4,...", help="Topics and ranges of partitions: a:0,b:1-4,c:-3.")
]
TimeFlag = Annotated[
    str,
    typer.Option(
        "--time",
        metavar="TIME",
        help="latest, earliest, max-timestamp, earliest-local, latest-tiered, earliest-pending-upload, "
        "milliseconds since the epoch, an ISO 8601 time, or 10m ago.",
    ),
]
ExcludeInternalTopicsFlag = Annotated[
    bool, typer.Option("--exclude-internal-topics", help="Without Kafka's own.")
]


def offsets(
    names: flags.TopicWords = None,
    topic: flags.Topics = None,
    partitions: PartitionsFlag = "",
    topic_partitions: TopicPartitionsFlag = "",
    time: TimeFlag = "latest",
    exclude_internal_topics: ExcludeInternalTopicsFlag = False,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Show partitions' offsets: first, last, or at a time (kafka-get-offsets)."""
    patterns = [*(topic or ()), *(names or ())]
    if topic_partitions and (patterns or partitions):
        raise usage("--topic-partitions stands alone: leave --topic and --partitions out")
    timestamp = parse_when(time)
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka.topics import matching_topics, partitions_of

    admin = connection.admin()
    cluster = connection.cluster(admin)
    topics = matching_topics(
        cluster.topics, [] if topic_partitions else patterns, exclude_internal=exclude_internal_topics
    )
    wanted = partitions_of(cluster, topics)
    if topic_partitions:
        rules = parse_rules(topic_partitions)
        wanted = [
            part for part in wanted if any(rule_matches(rule, part.topic, part.partition) for rule in rules)
        ]
    elif partitions:
        numbers = parse_numbers(partitions)
        wanted = [part for part in wanted if part.partition in numbers]
    if not wanted:
        raise Refused("no partition matches: `barnabas topics --describe` shows what there is")
    if timestamp < LIBRDKAFKA_TIME_MIN:
        found, failures = _ask_leaders(connection, cluster, wanted, timestamp)
    else:
        found, failures = _ask(admin, wanted, timestamp)
    rows = [
        {"topic": part.topic, "partition": part.partition, "offset": found[part.topic, part.partition]}
        for part in wanted
        if (part.topic, part.partition) in found
    ]
    show_rows(rows, COLUMNS, output, title=f"offsets ({time})", plain_line=plain_line)
    if failures:
        raise Refused("; ".join(failures))


app = flags.application(offsets)


def plain_line(row: Mapping[str, Any]) -> str:
    """Kafka's own line, `topic:partition:offset`; without an offset the last word is missing."""
    return f"{row['topic']}:{row['partition']}:{'' if row['offset'] is None else row['offset']}"


def parse_when(text: str) -> int:
    """One of Kafka's special timestamps (negative), or milliseconds since the epoch."""
    if text in NAMED_TIMES:
        return NAMED_TIMES[text]
    if text.lstrip("-").isdigit():
        if int(text) < min(NAMED_TIMES.values()):
            raise usage(f"--time {text}: -1 is the latest offset, -2 the earliest, and so on to -6")
        return int(text)
    import time

    from barnabas.cli.kafka.times import parse_time

    return parse_time(text, round(time.time() * 1000))


def parse_numbers(text: str) -> set[int]:
    """`0,1,2`."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() for word in words):
        raise usage(f"--partitions {text}: write partition numbers with commas")
    return set(map(int, words))


Rule = tuple[Any, int, int | None]
"""Pattern for the topic's whole name, first partition, partition after the last (None: to the end)."""


def parse_rules(text: str) -> list[Rule]:
    """`a,b:3,c:1-4,d:-2`: topic patterns with a partition, or a range whose end does not belong to it."""
    from barnabas.cli.kafka.topics import compile_pattern

    rules: list[Rule] = []
    for word in text.split(","):
        name, _, span = word.partition(":")
        low, dash, high = span.partition("-")
        if (low and not low.isdigit()) or (high and not high.isdigit()):
            raise usage(f"--topic-partitions {word}: write TOPIC, TOPIC:3, TOPIC:1-4, TOPIC:2- or TOPIC:-4")
        first = int(low) if low else 0
        after: int | None = first + 1
        if dash or not span:
            after = int(high) if high else None
        rules.append((compile_pattern(name or ".*"), first, after))
    return rules


def rule_matches(rule: Rule, topic: str, partition: int) -> bool:
    pattern, first, after = rule
    return bool(pattern.fullmatch(topic)) and first <= partition and (after is None or partition < after)


def _ask(
    admin: Any, wanted: Sequence[TopicPartition], timestamp: int
) -> tuple[dict[tuple[str, int], int | None], list[str]]:
    from barnabas.cli.kafka import answers, errors
    from barnabas.cli.kafka.offset_lookup import offset_spec

    results, failed = answers.sorted_out(admin.list_offsets(dict.fromkeys(wanted, offset_spec(timestamp))))
    # A negative offset says that there is none: no record is as late as the time asked for.
    found = {
        (part.topic, part.partition): result.offset if result.offset >= 0 else None
        for part, result in results.items()
    }
    return found, [
        f"{part.topic}-{part.partition}: {errors.describe_with_advice(error)}"
        for part, error in failed.items()
    ]


def _ask_leaders(
    connection: Connection, cluster: Any, wanted: Sequence[TopicPartition], timestamp: int
) -> tuple[dict[tuple[str, int], int | None], list[str]]:
    from barnabas.cli.kafka import requests
    from barnabas.kernel.errors import ErrorCode

    by_leader: dict[int, dict[str, list[int]]] = {}
    for part in wanted:
        leader = cluster.topics[part.topic].partitions[part.partition].leader
        by_leader.setdefault(leader, {}).setdefault(part.topic, []).append(part.partition)
    found: dict[tuple[str, int], int | None] = {}
    failures = []
    for leader, partitions in by_leader.items():
        if leader not in cluster.brokers:
            failures += [f"{name}-{number}: no leader" for name in partitions for number in partitions[name]]
            continue
        broker = cluster.brokers[leader]
        for key, (offset, code) in requests.list_offsets(
            connection, (broker.host, broker.port), partitions, timestamp
        ).items():
            if code:
                failures.append(f"{key[0]}-{key[1]}: {ErrorCode(code).name.upper()}")
            else:
                found[key] = offset if offset >= 0 else None
    return found, failures
