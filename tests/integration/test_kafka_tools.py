"""Apache Kafka's shell tools (the Java client) against a running cluster, as a user of Kafka 4 types them.

What is asserted was seen at a Kafka 4.3 broker with the same commands, but for two things: a new Kafka cluster sets
min.insync.replicas=1 for all brokers, which the topics then show, and its ApiVersions and features hold more. Each call
starts a JVM, so that one test looks at several things.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_tools import Output, command_of, run_tool

from barnabas.gateway.handlers.table import HANDLERS

pytestmark = pytest.mark.integration

WAIT_SECONDS: Final = 30
GROUP_COLUMNS: Final = ("group", "topic", "partition", "committed", "end", "lag", "member", "host", "client")


def at(cluster: Any, tool: str, *arguments: str, stdin: str = "", status: int = 0) -> Output:
    """Run a tool against the cluster."""
    return run_tool(tool, "--bootstrap-server", cluster.bootstrap, *arguments, stdin=stdin, status=status)


def make_topic(cluster: Any, name: str, partitions: int, timestamps: dict[int, list[int]]) -> None:
    """A topic with one record a timestamp (ms) in each partition: partition → timestamps."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_SECONDS)
    produce(cluster, name, timestamps)


def produce(cluster: Any, name: str, timestamps: dict[int, list[int]]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition, moments in timestamps.items():
        for moment in moments:
            producer.produce(name, f"at {moment}", partition=partition, timestamp=moment)
    assert producer.flush(WAIT_SECONDS) == 0


def described(output: Output) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Topic and partitions as `kafka-topics --describe` shows them: its fields by name."""
    rows = [
        dict(re.findall(r"(\w+): ?([^\t]*?)(?:\t|\s*$)", line.strip(), re.MULTILINE)) for line in output.lines
    ]
    return rows[0], rows[1:]


def test_topics_are_created_described_enlarged_listed_and_deleted(cluster: Any) -> None:
    create = ("--create", "--topic", "shell-topic", "--partitions", "3", "--config", "retention.ms=3600000")
    assert at(cluster, "topics", *create).lines == ["Created topic shell-topic."]
    again = at(cluster, "topics", *create, status=1)
    assert "Topic 'shell-topic' already exists." in again.stdout
    topic, partitions = described(at(cluster, "topics", "--describe", "--topic", "shell-topic"))
    assert (topic["PartitionCount"], topic["ReplicationFactor"]) == ("3", "1")
    assert topic["Configs"] == "retention.ms=3600000"
    assert len(topic["TopicId"]) == 22
    expected = {
        "Topic": "shell-topic",
        "Leader": "1",
        "Replicas": "1",
        "Isr": "1",
        "Elr": "",
        "LastKnownElr": "",
    }
    assert partitions == [{**expected, "Partition": str(number)} for number in range(3)]

    at(cluster, "topics", "--alter", "--topic", "shell-topic", "--partitions", "5")
    fewer = at(cluster, "topics", "--alter", "--topic", "shell-topic", "--partitions", "2", status=1)
    assert "currently has 5 partition(s)" in fewer.stdout
    _, partitions = described(at(cluster, "topics", "--describe", "--topic", "shell-topic"))
    assert [row["Partition"] for row in partitions] == ["0", "1", "2", "3", "4"]
    assert "shell-topic" in at(cluster, "topics", "--list").lines

    at(cluster, "topics", "--delete", "--topic", "shell-topic")
    assert "shell-topic" not in at(cluster, "topics", "--list").lines
    gone = at(cluster, "topics", "--describe", "--topic", "shell-topic", status=1)
    assert "Topic 'shell-topic' does not exist as expected" in gone.stdout


def test_topics_that_cannot_be_are_refused(cluster: Any) -> None:
    bad_name = at(cluster, "topics", "--create", "--topic", "two words", status=1)
    assert "InvalidTopicException" in bad_name.stdout + bad_name.stderr
    copies = at(cluster, "topics", "--create", "--topic", "two", "--replication-factor", "2", status=1)
    assert "InvalidReplicationFactorException" in copies.stdout + copies.stderr


def configs_of(output: Output) -> dict[str, tuple[str, str]]:
    """name → (value, where it comes from)."""
    found = re.findall(r"^  (\S+?)=(.*) sensitive=\w+ synonyms=\{(\w*)", output.stdout, re.MULTILINE)
    return {name: (value, source) for name, value, source in found}


def test_topic_configs_are_altered_and_described(cluster: Any) -> None:
    make_topic(cluster, "shell-configs", 1, {})
    entity = ("--entity-type", "topics", "--entity-name", "shell-configs")
    changes = "cleanup.policy=[compact,delete],max.message.bytes=2000000,retention.ms=1000"
    done = at(cluster, "configs", *entity, "--alter", "--add-config", changes)
    assert done.lines == ["Completed updating config for topic shell-configs."]
    at(cluster, "configs", *entity, "--alter", "--delete-config", "retention.ms")
    assert configs_of(at(cluster, "configs", *entity, "--describe")) == {
        "cleanup.policy": ("compact,delete", "DYNAMIC_TOPIC_CONFIG"),
        "max.message.bytes": ("2000000", "DYNAMIC_TOPIC_CONFIG"),
    }
    everything = configs_of(at(cluster, "configs", *entity, "--describe", "--all"))
    assert everything["retention.ms"][0] == "604800000"
    assert everything["segment.bytes"] == ("1073741824", "DEFAULT_CONFIG")
    assert len(everything) >= 30
    for change in ("nonsense=1", "retention.ms=-7"):
        refused = at(cluster, "configs", *entity, "--alter", "--add-config", change, status=1)
        assert "InvalidConfigurationException" in refused.stdout + refused.stderr
    broker = configs_of(
        at(cluster, "configs", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    )
    assert broker["log.segment.bytes"][0] == "1073741824"


def test_console_producer_and_console_consumer(cluster: Any) -> None:
    make_topic(cluster, "shell-console", 3, {})
    lines = [f"trace:{number},kind:test\tkey-{number}\tvalue {number}" for number in range(30)]
    properties = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    before = int(time.time() * 1000)
    at(
        cluster, "console-producer", "--topic", "shell-console", "--compression-codec", "zstd", *properties,
        stdin="\n".join(lines) + "\n",
    )  # fmt: skip
    shown = [
        part
        for name in ("key", "headers", "timestamp", "offset", "partition")
        for part in ("--formatter-property", f"print.{name}=true")
    ]
    read = at(
        cluster, "console-consumer", "--topic", "shell-console", "--from-beginning", "--max-messages", "30",
        "--timeout-ms", "30000", *shown,
    )  # fmt: skip
    assert "Processed a total of 30 messages" in read.stderr
    rows = [line.split("\t") for line in read.lines]
    assert sorted("\t".join(row[3:]) for row in rows) == sorted(lines)
    assert all(before <= int(row[0].removeprefix("CreateTime:")) <= time.time() * 1000 for row in rows)
    assert {row[1] for row in rows} == {"Partition:0", "Partition:1", "Partition:2"}
    for partition in range(3):
        offsets = [row[2] for row in rows if row[1] == f"Partition:{partition}"]
        assert offsets == [f"Offset:{number}" for number in range(len(offsets))]


def test_console_consumer_reads_log_append_time_from_an_offset(cluster: Any) -> None:
    configs = {"message.timestamp.type": "LogAppendTime"}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("shell-times", 1, 1, config=configs)])["shell-times"].result(WAIT_SECONDS)
    produce(cluster, "shell-times", {0: [1000, 2000, 3000, 4000]})
    read = at(
        cluster, "console-consumer", "--topic", "shell-times", "--partition", "0", "--offset", "2",
        "--max-messages", "2", "--timeout-ms", "30000", "--formatter-property", "print.timestamp=true",
    )  # fmt: skip
    rows = [line.split("\t") for line in read.lines]
    assert [value for _, value in rows] == ["at 3000", "at 4000"]
    assert all(re.fullmatch(r"LogAppendTime:\d{13}", moment) for moment, _ in rows)


@contextmanager
def console_group(cluster: Any, topic: str, group: str) -> Iterator[None]:
    """A console consumer in the group, which commits at once and leaves at the end."""
    command = command_of(
        "console-consumer", "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group", group,
        "--from-beginning", "--command-property", "auto.commit.interval.ms=50",
        "--command-property", "client.id=shell-member",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_SECONDS)


def group_rows(cluster: Any, group: str, *flags: str) -> list[list[str]]:
    """The table of `kafka-consumer-groups --describe` without its heading."""
    output = at(cluster, "consumer-groups", "--describe", "--group", group, *flags)
    return sorted(line.split() for line in output.lines if line.startswith(f"{group} "))


def wait_until_read(cluster: Any, group: str, partitions: int) -> list[dict[str, str]]:
    """The offsets of the group's partitions as soon as all lag by nothing."""
    rows: list[dict[str, str]] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(rows) != partitions or any(row["lag"] != "0" for row in rows):
        assert time.monotonic() < deadline, rows
        found = at(cluster, "consumer-groups", "--describe", "--group", group).lines
        rows = [
            dict(zip(GROUP_COLUMNS, line.split(), strict=True))
            for line in found
            if line.startswith(f"{group} ")
        ]
    return rows


def test_consumer_groups_are_listed_described_and_reset(cluster: Any) -> None:
    group = "shell-group"
    make_topic(cluster, "shell-read", 2, {0: [1000] * 4, 1: [1000] * 6})
    with console_group(cluster, "shell-read", group):
        rows = wait_until_read(cluster, group, 2)
        assert sorted((row["partition"], row["committed"], row["end"]) for row in rows) == [
            ("0", "4", "4"),
            ("1", "6", "6"),
        ]
        assert {(row["topic"], row["host"], row["client"]) for row in rows} == {
            ("shell-read", "/127.0.0.1", "shell-member")
        }
        ((_, member, *rest),) = group_rows(cluster, group, "--members", "--verbose")
        assert member.startswith("shell-member-")
        assert rest == ["/127.0.0.1", "shell-member", "2", "-", "shell-read:0,1", "-", "-"]
        assert group_rows(cluster, group, "--state") == [
            [group, cluster.bootstrap, "(1)", "range", "Stable", "1"]
        ]
    produce(cluster, "shell-read", {0: [1000] * 5})
    after = at(cluster, "consumer-groups", "--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in after.stdout + after.stderr
    assert sorted(line.split()[1:] for line in after.lines if line.startswith(f"{group} ")) == [
        ["shell-read", "0", "4", "9", "5", "-", "-", "-"],
        ["shell-read", "1", "6", "6", "0", "-", "-", "-"],
    ]
    listed = at(cluster, "consumer-groups", "--list", "--state").lines
    assert [line.split()[1] for line in listed if line.startswith(f"{group} ")] == ["Empty"]
    kinds = at(cluster, "groups", "--list").lines
    assert [line.split()[1:] for line in kinds if line.startswith(f"{group} ")] == [["Classic", "consumer"]]
    reset = ("--reset-offsets", "--group", group, "--topic", "shell-read", "--to-earliest", "--execute")
    moved = at(cluster, "consumer-groups", *reset).lines
    assert sorted(line.split()[1:] for line in moved[1:]) == [
        ["shell-read", "0", "0"],
        ["shell-read", "1", "0"],
    ]
    unknown = at(cluster, "consumer-groups", "--describe", "--group", "shell-nobody")
    assert "GroupIdNotFoundException: Group shell-nobody not found." in unknown.stdout + unknown.stderr


def test_offsets_are_found_by_place_and_by_time(cluster: Any) -> None:
    base = 1_600_000_000_000
    make_topic(cluster, "shell-offsets", 2, {0: [base + 1000 * step for step in (0, 1, 5, 3)], 1: [base]})

    def offsets(moment: str) -> list[str]:
        return at(cluster, "get-offsets", "--topic", "shell-offsets", "--time", moment).lines

    assert offsets("latest") == ["shell-offsets:0:4", "shell-offsets:1:1"]
    assert offsets("earliest") == ["shell-offsets:0:0", "shell-offsets:1:0"]
    assert offsets("max-timestamp") == ["shell-offsets:0:2", "shell-offsets:1:0"]
    # The tool leaves out a partition with nothing as young as that.
    assert offsets(str(base + 1001)) == ["shell-offsets:0:2"]


def test_broker_api_versions_are_those_of_the_handler_table(cluster: Any) -> None:
    output = at(cluster, "broker-api-versions")
    assert output.lines[0].startswith(f"{cluster.bootstrap} (id: 1 rack: null isFenced: false)")
    served = {
        int(key): (int(low), int(high or low))
        for key, low, high in re.findall(r"\((\d+)\): (\d+)(?: to (\d+))? \[usable: \d+\]", output.stdout)
    }
    assert served == {
        key: (
            handler.versions[0] if handler.advertised_from is None else handler.advertised_from,
            handler.versions[1],
        )
        for key, handler in HANDLERS.items()
        if handler.advertised_when is None  # the others: see test_telemetry.py
    }


def events(output: Output, name: str) -> list[dict[str, Any]]:
    """The lines of a verifiable client with this name."""
    return [line for line in map(json.loads, output.lines) if line["name"] == name]


def test_verifiable_producer_and_consumer(cluster: Any) -> None:
    make_topic(cluster, "shell-verified", 1, {})
    sent = at(cluster, "verifiable-producer", "--topic", "shell-verified", "--max-messages", "600")
    (summary,) = events(sent, "tool_data")
    assert (summary["sent"], summary["acked"]) == (600, 600)
    assert [event["offset"] for event in events(sent, "producer_send_success")] == list(range(600))
    started = time.monotonic()
    read = at(
        cluster, "verifiable-consumer", "--topic", "shell-verified", "--group-id", "shell-verifiers",
        "--max-messages", "600", "--reset-policy", "earliest", "--group-protocol", "classic",
    )  # fmt: skip
    assert sum(event["count"] for event in events(read, "records_consumed")) == 600
    committed = events(read, "offsets_committed")[-1]
    assert committed["success"]
    assert committed["offsets"] == [{"topic": "shell-verified", "partition": 0, "offset": 600}]
    assert time.monotonic() - started < WAIT_SECONDS


def test_performance_tools(cluster: Any) -> None:
    make_topic(cluster, "shell-perf", 2, {})
    sent = at(
        cluster, "producer-perf-test", "--topic", "shell-perf", "--num-records", "5000", "--record-size", "200",
        "--throughput", "-1", "--command-property", "acks=all", "--command-property", "compression.type=lz4",
    )  # fmt: skip
    assert sent.lines[-1].startswith("5000 records sent")
    read = at(cluster, "consumer-perf-test", "--topic", "shell-perf", "--num-records", "5000")
    names, numbers = (line.split(", ") for line in read.lines[-2:])
    assert int(dict(zip(names, numbers, strict=True))["data.consumed.in.nMsg"]) == 5000
