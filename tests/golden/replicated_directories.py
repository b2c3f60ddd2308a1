"""Two log directories a broker: replicas are put into one, moved to the other, and kept out of cordoned ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from golden_session import Run, TopicRef
from replicated_all_there import (
    ALTER_REASSIGNMENTS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DESCRIBE_LOG_DIRS,
)
from replicated_session import assigned, fill, new_topic, replicated, until, wait_full
from scenarios_configs import BROKER, DELETE, INCREMENTAL_ALTER_CONFIGS, Change, changed

ALTER_LOG_DIRS = 34
BROKERS = (1, 2, 3)


def directories(run: Run, broker: int) -> list[str]:
    """The broker's log directories, which answers show by numbers from now on."""
    answer = run.quietly(DESCRIBE_LOG_DIRS, {"topics": []}, at=broker)
    paths = sorted(row.log_dir for row in answer.results)
    run.know_directories(*paths)
    return paths


def to_directories(*wanted: tuple[str, str, list[int]]) -> dict[str, Any]:
    """An AlterReplicaLogDirs request: (directory, topic's name, partitions)."""
    return {
        "dirs": [
            {"path": path, "topics": [{"name": name, "partitions": indexes}]}
            for path, name, indexes in wanted
        ]
    }


def wait_placed(run: Run, topic: TopicRef, broker: int, paths: Mapping[int, str]) -> None:
    """Wait until the broker has these partitions in these directories, and nowhere else."""
    body = {"topics": [{"topic": topic.name, "partitions": sorted(paths)}]}

    def is_there() -> bool:
        found = [
            (part.partition_index, row.log_dir)
            for row in run.quietly(DESCRIBE_LOG_DIRS, body, at=broker).results
            for described in row.topics
            for part in described.partitions
        ]
        return sorted(found) == sorted(paths.items())

    until(is_there, f"{topic.name} in {paths}")


@replicated(DESCRIBE_LOG_DIRS)
def log_dirs_of_each(run: Run) -> None:
    paths = {broker: directories(run, broker) for broker in BROKERS}
    name = run.name("topic")
    # Said before there is a replica: into which directory it comes.
    for broker, index, place in ((1, 0, 0), (2, 0, 1), (2, 1, 0), (3, 1, 1)):
        run.quietly(ALTER_LOG_DIRS, to_directories((paths[broker][place], name, [index])), at=broker)
    topic = new_topic(run, "topic", [1, 2], [2, 3])
    fill(run, topic, 0, 1, b"a")
    fill(run, topic, 1, 2, b"a", b"b")
    asked = {"topics": [{"topic": name, "partitions": [0, 1]}]}
    for broker in BROKERS:
        run.ask(f"at {broker}", asked, at=broker)
    run.ask("elsewhere", {"topics": [{"topic": name, "partitions": [1]}]}, at=1)


@replicated(ALTER_LOG_DIRS)
def move_between_directories(run: Run) -> None:
    paths = {broker: directories(run, broker) for broker in BROKERS}
    name = run.name("topic")
    for broker, (first, _) in paths.items():
        run.ask(f"before it is there, at {broker}", to_directories((first, name, [0, 1])), at=broker)
    topic = new_topic(run, "topic", [1, 2], [2, 1])
    fill(run, topic, 0, 1, b"a", b"b")
    fill(run, topic, 1, 2, b"c")
    asked = {"topics": [{"topic": topic.name, "partitions": [0, 1]}]}

    def look(step: str) -> None:
        for broker in BROKERS:
            run.ask(f"{step}, at {broker}", asked, api=DESCRIBE_LOG_DIRS, at=broker)

    wait_full(run, topic, [1, 2], [2, 1])
    look("placed")
    first, second = paths[1]
    run.ask("moved", to_directories((second, name, [0])), at=1)
    wait_placed(run, topic, 1, {0: second, 1: first})
    look("one moved")
    run.ask("where it is", to_directories((second, name, [0]), (first, name, [1])), at=1)
    run.ask("to another broker's", to_directories((paths[2][0], name, [0])), at=1)
    run.ask("nowhere", to_directories(("/nowhere", name, [0, 1, 9])), at=1)
    run.ask("no such partition", to_directories((first, name, [0, 9])), at=1)
    wait_placed(run, topic, 1, {0: first, 1: first})
    run.ask("where no replica is", to_directories((paths[3][0], name, [0, 1])), at=3)
    look("moved back")


@replicated(INCREMENTAL_ALTER_CONFIGS, newest_only=True)
def cordoned_directories(run: Run) -> None:
    """Broker 3 takes no new replicas while all of its directories are cordoned (KIP-1066)."""
    first, second = directories(run, 3)
    topic = new_topic(run, "topic", [3, 1])

    def cordon(step: str, *changes: Change) -> None:
        run.ask(step, {"resources": [changed(BROKER, "3", *changes)], "validate_only": False}, at=3)

    def wait_cordoned(*wanted: str) -> None:
        def is_there() -> bool:
            rows = run.quietly(DESCRIBE_LOG_DIRS, {"topics": []}, at=3).results
            return {row.log_dir for row in rows if row.is_cordoned} == set(wanted)

        until(is_there, f"{wanted} to be cordoned")

    cordon("no such directory", ("cordoned.log.dirs", "/nowhere"))
    cordon("all and one", ("cordoned.log.dirs", f"*,{first}"))
    cordon("one", ("cordoned.log.dirs", second))
    wait_cordoned(second)
    run.ask("described", {"topics": []}, api=DESCRIBE_LOG_DIRS, at=3)
    for step, path in (("cordoned", second), ("open", first)):
        run.ask(f"to the {step} one", to_directories((path, topic.name, [0])), api=ALTER_LOG_DIRS, at=3)
    _create(run, "one cordoned, factor 3", 3)
    cordon("all", ("cordoned.log.dirs", "*"))
    wait_cordoned(first, second)
    _wait_until_cordoned(run, is_wanted=True)
    run.ask("all described", {"topics": []}, api=DESCRIBE_LOG_DIRS, at=3)
    _create(run, "all cordoned, factor 3", 3)
    _create(run, "all cordoned, factor 2", 2)
    _create(run, "all cordoned, assigned", -1, [3, 1])
    row = {"name": topic.name, "count": 2, "assignments": None}
    body = {"topics": [row], "timeout": 10_000, "validate_only": False}
    run.ask("one partition more", body, api=CREATE_PARTITIONS)
    other = new_topic(run, "other", [1, 2])
    moves = [{"partition_index": 0, "replicas": [3, 2]}]
    body = {"timeout": 10_000, "topics": [{"name": other.name, "partitions": moves}]}
    run.ask("reassigned to it", body, api=ALTER_REASSIGNMENTS)
    wait_full(run, other, [3, 2])
    cordon("none", ("cordoned.log.dirs", None, DELETE))
    wait_cordoned()
    _wait_until_cordoned(run, is_wanted=False)
    _create(run, "none cordoned, factor 3", 3)


def _create(run: Run, step: str, factor: int, *replicas: list[int]) -> None:
    body = _creation(run.name(step.replace(" ", "-").replace(",", "")), factor, *replicas)
    run.ask(step, body, api=CREATE_TOPICS)


def _creation(name: str, factor: int, *replicas: list[int], validate_only: bool = False) -> dict[str, Any]:
    row = {
        "name": name,
        "num_partitions": -1 if replicas else 1,
        "replication_factor": factor,
        "assignments": assigned(*replicas),
        "configs": [],
    }
    return {"topics": [row], "timeout": 10_000, "validate_only": validate_only}


def _wait_until_cordoned(run: Run, *, is_wanted: bool) -> None:
    """Wait until the controller knows that one broker of three takes no replicas, or that all do."""
    body = _creation(run.name("tried"), 3, validate_only=True)
    until(
        lambda: bool(run.quietly(CREATE_TOPICS, body).topics[0].error_code) is is_wanted,
        "the controller to know of it",
    )
