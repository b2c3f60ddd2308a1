"""Our tables against what a broker of Apache Kafka 4.3.1 says of its own settings (`kafka_4_3_settings.tsv`)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.client_metrics_settings import CLIENT_METRICS_SETTINGS
from barnabas.metadata.config_def import ConfigDef, UpdateMode
from barnabas.metadata.group_settings import GROUP_SETTINGS
from barnabas.metadata.topic_settings import TOPIC_SETTINGS
from barnabas.metadata.validators import (
    Between,
    EachOf,
    GzipLevel,
    NotEmpty,
    OneOf,
    ThrottledReplicas,
    WhereToBegin,
)

TABLES: Final[Mapping[str, Mapping[str, ConfigDef]]] = {
    "broker": BROKER_SETTINGS,
    "topic": TOPIC_SETTINGS,
    "group": GROUP_SETTINGS,
    "client-metrics": CLIENT_METRICS_SETTINGS,
}

ONLY_DYNAMIC: Final = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Broker settings that no file can have, only a change while brokers run; the definition of files lacks them."""

CHECKED_BY_KAFKA_ELSEWHERE: Final = {
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "replica.selector.class",
}
"""Lists of addresses, which mean nothing here, and a class, which Kafka looks for when it starts."""


class Fact(NamedTuple):
    """One row of the file; `-` stands for nothing."""

    kind: str
    name: str
    type: str
    default: str
    valid: str
    importance: str
    change: str
    internal: str
    synonyms: str


def read_facts() -> list[Fact]:
    path = Path(__file__).parent / "kafka_4_3_settings.tsv"
    with path.open() as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [Fact(*row) for row in rows[1:]]


FACTS: Final = read_facts()


def test_the_same_settings() -> None:
    for kind, table in TABLES.items():
        known = {fact.name for fact in FACTS if fact.kind == kind}
        assert set(table) - ONLY_DYNAMIC == known, kind
    shown = [definition for definition in BROKER_SETTINGS.values() if not definition.internal]
    assert (len(shown), len(GROUP_SETTINGS), len(CLIENT_METRICS_SETTINGS)) == (340, 17, 3)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact.kind}:{fact.name}")
def test_a_setting_is_as_kafka_has_it(fact: Fact) -> None:
    definition = TABLES[fact.kind][fact.name]
    assert definition.type.name == fact.type
    assert ("-" if definition.default is None else definition.default or '""') == fact.default
    assert definition.importance.name == fact.importance
    assert definition.internal == (fact.internal == "internal")
    assert (",".join(synonym.name for synonym in definition.synonyms) or "-") == fact.synonyms
    if fact.change != "-":
        assert definition.update_mode is UpdateMode(fact.change)
    if fact.name not in CHECKED_BY_KAFKA_ELSEWHERE:
        assert in_kafkas_words(definition) == fact.valid.replace("non-empty string", "-").replace(
            "non-null string", "-"
        )


def in_kafkas_words(definition: ConfigDef) -> str:
    """What Kafka writes for the same valid values."""
    match definition.validator:
        case None | NotEmpty():
            return "-"
        case Between(low, high):
            return f"[{low},...]" if high == float("inf") else f"[{low},...,{high}]"
        case OneOf(allowed, any_case):
            if any_case:
                return f"(case insensitive) [{', '.join(entry.upper() for entry in allowed)}]"
            return f"[{', '.join(allowed)}]"
        case EachOf(allowed):
            return f"[{', '.join(allowed)}]"
        case GzipLevel():
            return "[1,...,9] or -1"
        case WhereToBegin():
            return "[latest, earliest, by_duration:PnDTnHnMn.nS]"
        case ThrottledReplicas():
            return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        case other:
            raise AssertionError(f"{definition.name} has the unknown validator {other}")
