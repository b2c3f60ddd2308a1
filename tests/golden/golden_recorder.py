"""Plays the session to a real Apache Kafka and to Barnabas, side by side."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

import golden_scenarios  # noqa: F401  (puts the scenarios on the list)
import replicated_scenarios  # noqa: F401
from barnabas_of_three import BarnabasOfThree
from golden_comparison import Found, as_json, ranges
from golden_session import REPLICATED, SCENARIOS, Cluster, Row, advertised, play, shared_ranges
from real_kafka import RealKafka
from real_kafka_cluster import RealKafkaCluster
from running_cluster import Cluster as Barnabas

RECORDINGS: Final = Path(__file__).resolve().parents[2] / "build" / "golden"
"""Where both recordings are left, for looking at; nothing reads them."""

BOTH_SETTINGS: Final = {
    # Fewer partitions to load before groups and transactional ids can be asked for.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # A transaction that takes too long is noticed soon.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
OVERRIDES: Final = tuple(f"--override={name}={value}" for name, value in BOTH_SETTINGS.items())
"""The same for `barnabas up`."""

KAFKA_SETTINGS: Final = {
    **BOTH_SETTINGS,
    # As `barnabas up` has it: a lone consumer starts at once.
    "group.initial.rebalance.delay.ms": "0",
    # The script's records are years old: nobody may look for what is past its retention while it is played.
    "log.initial.task.delay.ms": "3600000",
}

BOTH_REPLICATED: Final = {
    **BOTH_SETTINGS,
    # A partition's leader changes when the script says so.
    "auto.leader.rebalance.enable": "false",
    # A broker that is killed is fenced sooner than Kafka's 9 s; ours notices that at once.
    "broker.session.timeout.ms": "6000",
    # Consumers read nearby (KIP-392).
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
LOG_DIRS: Final = ("a", "b")
RACKS: Final = {1: "north", 2: "east", 3: "west"}

KAFKA_REPLICATED: Final = {
    **KAFKA_SETTINGS,
    # As `barnabas up --nodes 3` has them.
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.heartbeat.interval.ms": "500",
}


def record(only: str = "") -> tuple[Cluster, Cluster]:
    """(Kafka's side, ours), each with its recorded answers; of the scenarios whose name contains `only`."""
    with RealKafka(settings=KAFKA_SETTINGS) as kafka, Barnabas(flags=OVERRIDES) as barnabas:
        versions = shared_ranges(advertised(kafka.port), advertised(barnabas.port))
        sides = Cluster(kafka.port, versions), Cluster(barnabas.port, versions)
        play_side_by_side(sides, only)
    _leave(sides, (f"kafka-{kafka.version}", "barnabas"))
    return sides


def record_replicated() -> tuple[Cluster, Cluster]:
    """The session with three brokers: (Kafka's side, ours)."""
    with (
        RealKafkaCluster(
            settings={**KAFKA_REPLICATED, **BOTH_REPLICATED}, log_dirs=LOG_DIRS, racks=RACKS
        ) as kafka,
        BarnabasOfThree(settings=BOTH_REPLICATED, log_dirs=LOG_DIRS, racks=RACKS) as barnabas,
    ):
        versions = shared_ranges(advertised(kafka.port), advertised(barnabas.port))
        sides = (
            Cluster(kafka.port, versions, kafka.ports, kafka),
            Cluster(barnabas.port, versions, barnabas.ports, barnabas),
        )
        play_side_by_side(sides, "", REPLICATED)
    _leave(sides, (f"kafka-{kafka.version}-of-three", "barnabas-of-three"))
    return sides


def _leave(sides: tuple[Cluster, Cluster], names: tuple[str, str]) -> None:
    RECORDINGS.mkdir(parents=True, exist_ok=True)
    for name, side in zip(names, sides, strict=True):
        (RECORDINGS / f"{name}.json").write_text(as_json(side.answers))


def play_side_by_side(sides: tuple[Cluster, Cluster], only: str, script: Sequence[Row] = SCENARIOS) -> None:
    """Play to both at once. What one player raises is raised here, and ends the other's session too."""
    over = threading.Event()
    with ThreadPoolExecutor(len(sides), "player") as players:
        playing = [players.submit(play, side, only, over.is_set, script) for side in sides]
        try:
            for player in as_completed(playing):
                player.result()
        finally:
            over.set()


def summary(found: list[Found]) -> list[str]:
    """One line for differences that are alike in all but their step and their place in a list."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        path = "/".join("*" if part.lstrip("-").isdigit() else part[:60] for part in one.path.split("/"))
        key = (one.api, ranges(one.versions), one.scenario, path, one.kafka[:150], one.ours[:150])
        alike.setdefault(key, []).append(one.step)
    return [
        f"{api} v{versions} | {scenario}: {'; '.join(dict.fromkeys(steps))} | {path or '(the whole answer)'} | "
        f"Kafka: {kafka} | Barnabas: {ours}"
        for (api, versions, scenario, path, kafka, ours), steps in alike.items()
    ]
