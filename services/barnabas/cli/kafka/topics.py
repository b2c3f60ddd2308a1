"""Which topics a flag means, and what their partitions look like."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import TopicPartition

from barnabas.cli.refusal import Refused, usage

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that Kafka keeps for itself."""


def matching_topics(
    names: Iterable[str], patterns: Iterable[str], *, exclude_internal: bool = False
) -> list[str]:
    """The names that one of `patterns` describes (a whole name, or a regular expression for all of it), sorted.

    All of them without patterns, as in Kafka's tools. Commas separate patterns. A name that is there means itself
    alone: `--delete --topic a.b` must not hit a topic a_b, as it would with Kafka's tool.
    """
    split = [word for pattern in patterns for word in pattern.split(",") if word]
    kept = [name for name in sorted(names) if not (exclude_internal and name in INTERNAL)]
    if not split:
        return kept
    exact = set(split).intersection(kept)
    compiled = [compile_pattern(pattern) for pattern in split if pattern not in exact]
    return [
        name for name in kept if name in exact or any(expression.fullmatch(name) for expression in compiled)
    ]


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A regular expression for topic names; Refused when it is none. A leading ^ is allowed, as for consumers."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise usage(f"{pattern!r} is no regular expression ({error})") from error


def no_such_topic(patterns: Iterable[str]) -> Refused:
    wanted = ", ".join(patterns)
    return Refused(f"no topic matches {wanted}: `barnabas topics --list` shows what there is")


def partitions_of(cluster: Any, topics: Iterable[str]) -> list[TopicPartition]:
    """Every partition of these topics, in order."""
    return [
        TopicPartition(topic, number)
        for topic in topics
        for number in sorted(cluster.topics[topic].partitions)
    ]


def parse_topic_partitions(text: str) -> dict[str, set[int] | None]:
    """`a:0,1` to {a: {0, 1}} and `a` to {a: None} (all partitions), as --topic of the groups' flags takes them."""
    topic, separator, numbers = text.partition(":")
    if not topic:
        raise usage(f"{text!r} names no topic: write it as TOPIC or TOPIC:0,1,2")
    if not separator:
        return {topic: None}
    if not all(word.strip().isdigit() for word in numbers.split(",")):
        raise usage(f"{text!r} has partitions that are no numbers: write it as TOPIC:0,1,2")
    return {topic: {int(word) for word in numbers.split(",")}}
