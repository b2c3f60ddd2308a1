"""Plays the session to a real Apache Kafka and to Barnabas, side by side."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

import golden_scenarios  # noqa: F401  (puts the scenarios on the list)
from golden_comparison import Found, as_json, ranges
from golden_session import Cluster, advertised, play, shared_ranges
from real_kafka import RealKafka
from running_cluster import Cluster as Barnabas

RECORDINGS: Final = Path(__file__).resolve().parents[2] / "build" / "golden"
"""Where both recordings are left, for looking at; nothing reads them."""

KAFKA_SETTINGS: Final = {
    # As `barnabas up` has it: a lone consumer starts at once.
    "group.initial.rebalance.delay.ms": "0",
    # Fewer partitions to load before groups can be asked for.
    "offsets.topic.num.partitions": "4",
    # The script's records are years old: nobody may look for what is past its retention while it is played.
    "log.initial.task.delay.ms": "3600000",
}


def record(only: str = "") -> tuple[Cluster, Cluster]:
    """(Kafka's side, ours), each with its recorded answers; of the scenarios whose name contains `only`."""
    with RealKafka(settings=KAFKA_SETTINGS) as kafka, Barnabas() as barnabas:
        versions = shared_ranges(advertised(kafka.port), advertised(barnabas.port))
        sides = Cluster(kafka.port, versions), Cluster(barnabas.port, versions)
        play_side_by_side(sides, only)
    RECORDINGS.mkdir(parents=True, exist_ok=True)
    for name, side in zip((f"kafka-{kafka.version}", "barnabas"), sides, strict=True):
        (RECORDINGS / f"{name}.json").write_text(as_json(side.answers))
    return sides


def play_side_by_side(sides: tuple[Cluster, Cluster], only: str) -> None:
    """Play to both at once. What one player raises is raised here, and ends the other's session too."""
    over = threading.Event()
    with ThreadPoolExecutor(len(sides), "player") as players:
        playing = [players.submit(play, side, only, over.is_set) for side in sides]
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
