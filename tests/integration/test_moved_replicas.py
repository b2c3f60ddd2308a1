"""Replicas move between the log directories of a node under load, by Kafka's own tools, while the node is killed."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from command_line import CommandLine
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_tools import Output, ToolsInOneJvm
from running_services import LooseCluster, loose_cluster
from test_kill_and_restart import end_offset

pytestmark = pytest.mark.integration

PARTITIONS: Final = 3
SECONDS_MAX: Final = 60.0
"""Far above what the moves take."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LooseCluster]:
    with loose_cluster(tmp_path) as running:
        running.settings["storage"]["log.dirs"] = ",".join(str(tmp_path / name) for name in ("a", "b", "c"))
        running.start()
        running.wait_ready()
        yield running


class Load:
    """Owner of a thread with an idempotent producer, and of what was acknowledged of its records, by partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        self.failed: list[str] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.ms": 50,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            value = str(number).encode() + b" " + bytes(500)
            self._producer.produce(
                self._topic, value, partition=number % PARTITIONS, on_delivery=self._on_delivery(number)
            )
            number += 1
            self._producer.poll(0.001)
        assert self._producer.flush(SECONDS_MAX) == 0

    def _on_delivery(self, number: int) -> Any:
        def told(error: Any, message: Any) -> None:
            if error is not None:
                self.failed.append(str(error))
            else:
                self.acknowledged[message.partition()].append(number)

        return told


def read_all(bootstrap: str, topic: str, index: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    try:
        end = end_offset(consumer, topic, index, 20)
        consumer.assign([TopicPartition(topic, index, 0)])
        found: list[int] = []
        while len(found) < end:
            message = consumer.poll(20)
            assert message is not None, f"{len(found)} of {end}"
            assert message.error() is None, message.error()
            assert message.offset() == len(found)
            found.append(int(message.value().split(b" ")[0]))
        return found
    finally:
        consumer.close()


def move(tools: ToolsInOneJvm, plan: Path, topic: str, path: Path, *flags: str) -> None:
    rows = [
        {"topic": topic, "partition": index, "replicas": [1], "log_dirs": [str(path)]}
        for index in range(PARTITIONS)
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    tools("reassign-partitions", "--execute", "--reassignment-json-file", str(plan), *flags)


def until_moved(tools: ToolsInOneJvm, plan: Path) -> Output:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        shown = tools("reassign-partitions", "--verify", "--reassignment-json-file", str(plan))
        if shown.stdout.count("completed successfully") == PARTITIONS:
            return shown
        assert time.monotonic() < deadline, shown
        time.sleep(0.2)


def directories(tools: ToolsInOneJvm, topic: str) -> dict[str, list[tuple[str, bool]]]:
    """(partition, whether it is a future replica) by directory, as kafka-log-dirs shows them."""
    lines = tools("log-dirs", "--describe", "--topic-list", topic, "--broker-list", "1").lines
    (broker,) = json.loads(next(line for line in lines if line.startswith("{")))["brokers"]
    return {
        Path(each["logDir"]).name: sorted((one["partition"], one["isFuture"]) for one in each["partitions"])
        for each in broker["logDirs"]
    }


def test_moves_under_load_with_the_node_killed_in_the_midst_of_them(
    cluster: LooseCluster, tmp_path: Path
) -> None:
    topic, plan = "moving", tmp_path / "plan.json"
    everything = sorted((f"{topic}-{index}", False) for index in range(PARTITIONS))
    with ToolsInOneJvm(cluster.bootstrap) as tools:
        tools("topics", "--create", "--topic", topic, "--partitions", str(PARTITIONS))
        with Load(cluster.bootstrap, topic) as load:
            time.sleep(1)
            move(tools, plan, topic, tmp_path / "b")
            until_moved(tools, plan)
            assert directories(tools, topic) == {"a": [], "b": everything, "c": []}
            # So slow that the node is killed in the midst of it, each time a little later.
            for seconds in (0.3, 0.8):
                move(tools, plan, topic, tmp_path / "c", "--replica-alter-log-dirs-throttle", "300000")
                shown = directories(tools, topic)
                assert [name for name, is_future in shown["c"] if is_future]
                time.sleep(seconds)
                cluster.services["storage"].kill()
                cluster.start("storage")
                cluster.wait_ready()
            tools(
                "configs", "--alter", "--entity-type", "brokers", "--entity-name", "1",
                "--delete-config", "replica.alter.log.dirs.io.max.bytes.per.second",
            )  # fmt: skip
            until_moved(tools, plan)
            assert directories(tools, topic) == {"a": [], "b": [], "c": everything}
            time.sleep(0.5)
        assert load.failed == []
        for index, acknowledged in load.acknowledged.items():
            assert read_all(cluster.bootstrap, topic, index) == acknowledged, (
                "none lost, doubled or reordered"
            )
        deadline = time.monotonic() + SECONDS_MAX
        while list((tmp_path / "b").glob("moving-*")):  # it can be read for a moment more
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert cluster.services["storage"].stop(signal.SIGTERM) == 0


def test_our_own_command_moves_evens_out_and_empties(cluster: LooseCluster, tmp_path: Path) -> None:
    run = CommandLine(cluster.bootstrap)
    a, b, c = (str(tmp_path / name) for name in ("a", "b", "c"))
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"

    def places() -> list[str]:
        rows = run("log-dirs", "--describe", "--topic-list", "heavy", "--output", "json").data
        assert not any(row["isFuture"] for row in rows)
        return [Path(row["logDir"]).name for row in sorted(rows, key=lambda row: int(row["partition"]))]

    def rates() -> list[str]:
        rows = run("configs", "--describe", "--broker", "1", "--output", "json").data
        return [row["value"] for row in rows if row["name"] == rate]

    run("topics", "--create", "--topic", "heavy", "--partitions", str(PARTITIONS))
    for index in range(PARTITIONS):
        run("produce", "heavy", "-p", str(index), stdin=(b"x" * 250_000 + b"\n") * 4 * (index + 1))
    before = places()
    shown = run("log-dirs", "move", "heavy", "--broker", "1", "--to", a, "--dry-run", "--output", "json").data
    assert {(row["partition"], row["logDir"]) for row in shown} == {
        (index, a) for index in range(PARTITIONS) if before[index] != "a"
    }
    assert places() == before
    said = run("log-dirs", "move", "heavy", "--broker", "1", "--to", a, "--throttle", "2000000").stderr
    assert f"{len(shown)} replicas moved" in said
    assert places() == ["a"] * PARTITIONS
    assert rates() == []
    run("log-dirs", "even", "--broker", "1")
    assert sorted(places()) == ["a", "b", "c"]
    run("configs", "--alter", "--broker", "1", "--add-config", f"cordoned.log.dirs={c}")
    cordoned = {
        row["logDir"]: row["isCordoned"] for row in run("log-dirs", "describe", "--output", "json").data
    }
    assert cordoned == {a: False, b: False, c: True}
    assert [each["check"] for each in run.findings(status=0)] == ["cordoned"]
    run("log-dirs", "move", "--broker", "1", "--from", c)
    assert "c" not in places()
    assert "0 replicas to be moved" in run("log-dirs", "even", "--broker", "1").stderr
    run("configs", "--alter", "--broker", "1", "--add-config", f"{rate}=1000")
    (left, _) = run.findings(status=1)
    assert (left["check"], left["subjects"]) == ("throttles-left", ["1"])
    assert "no log directory /nowhere" in run.refused("log-dirs", "move", "--broker", "1", "--to", "/nowhere")
    assert "say --broker ID" in run.refused("log-dirs", "even", status=2)
