"""Kafka's tools that look after topics, records, offsets and groups, with the flags that people use.

What is asserted was seen at a Kafka 4.3.1 broker with the same commands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from kafka_tools import Output, ToolsInOneJvm, run_tool

pytestmark = pytest.mark.integration

KEYED: Final = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")


@pytest.fixture(scope="module")
def tools(cluster: Any) -> Iterator[ToolsInOneJvm]:
    with ToolsInOneJvm(cluster.bootstrap) as running:
        yield running


def both(output: Output) -> str:
    return output.stdout + output.stderr


def make_topic(tools: ToolsInOneJvm, name: str, *lines: str, partitions: int = 1) -> None:
    """A topic with these lines (key:value) in it."""
    tools("topics", "--create", "--topic", name, "--partitions", str(partitions))
    if lines:
        tools("console-producer", "--topic", name, *KEYED, stdin="\n".join(lines) + "\n")


def read(tools: ToolsInOneJvm, topic: str, count: int, *flags: str) -> list[str]:
    """What the console consumer prints of `count` records."""
    limit = ("--max-messages", str(count), "--timeout-ms", "20000")
    return tools("console-consumer", "--topic", topic, "--from-beginning", *limit, *flags).lines


def test_topics_flags(tools: ToolsInOneJvm) -> None:
    make_topic(tools, "data-topics-a", partitions=2)
    tools("topics", "--create", "--if-not-exists", "--topic", "data-topics-a")
    tools("topics", "--create", "--topic", "data-topics-b", "--replica-assignment", "1,1,1")
    tools("topics", "--create", "--topic", "data-topics-c", "--config", "retention.ms=3600000")
    named = ("--topic", "data-topics-.*")
    assert tools("topics", "--list", *named).lines == ["data-topics-a", "data-topics-b", "data-topics-c"]
    described = tools("topics", "--describe", *named, "--partition-size-limit-per-response", "1").stdout
    assert len(re.findall(r"\tPartition: ", described)) == 6
    overridden = tools("topics", "--describe", "--topics-with-overrides", *named).stdout
    assert "data-topics-c" in overridden
    for trouble in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
    ):
        assert tools("topics", "--describe", trouble, *named).lines == []
    assert len(tools("topics", "--describe", "--at-min-isr-partitions", *named).lines) == 6
    topic_id = re.findall(r"Topic: data-topics-a\tTopicId: (\S+)", described)[0]
    assert "data-topics-a" in tools("topics", "--describe", "--topic-id", topic_id).stdout
    assert not any(line.startswith("__") for line in tools("topics", "--list", "--exclude-internal").lines)
    tools("topics", "--delete", *named)
    assert tools("topics", "--list", *named).lines == []
    tools("topics", "--delete", "--if-exists", "--topic", "data-topics-a")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--alter", "--topic", "data-nothing", "--partitions", "3"), "does not exist as expected"),
        (
            ("--create", "--topic", "data-bad", "--config", "nonsense=1"),
            "Unknown topic config name: nonsense",
        ),
        (("--create", "--topic", "data-bad", "--partitions", "0"), "must be greater than 0"),
        (("--create", "--topic", "data-bad", "--replica-assignment", "7"), "7"),
        (("--create", "--topic", "."), "Topic name is invalid"),
        (("--describe", "--topic", "data-nothing"), "does not exist as expected"),
        (("--delete", "--topic", "data-nothing"), "does not exist as expected"),
    ],
)
def test_topics_that_cannot_be(tools: ToolsInOneJvm, flags: tuple[str, ...], complaint: str) -> None:
    assert complaint in both(tools("topics", *flags, status=1))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_compresses(tools: ToolsInOneJvm, codec: str, cluster: Any) -> None:
    topic = f"data-codec-{codec}"
    lines = [f"k{number}:{number:04d}" + "x" * 50 for number in range(50)]
    make_topic(tools, topic)
    flags = (*KEYED, "--compression-codec", codec, "--command-property", "linger.ms=100")
    tools("console-producer", "--topic", topic, *flags, stdin="\n".join(lines) + "\n")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    assert read(tools, topic, 50, *shown) == lines
    log = cluster.data_dir / "node-1" / f"{topic}-0" / "00000000000000000000.log"
    dump = tools("dump-log", "--files", str(log), "--print-data-log").stdout
    assert f"compresscodec: {codec}" in dump
    assert "key: k49 payload: 0049" in dump


def test_console_clients_with_nulls_headers_and_no_acknowledgement(tools: ToolsInOneJvm) -> None:
    make_topic(tools, "data-nulls")
    flags = (*KEYED, "--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL")
    acks = ("--request-required-acks", "0", "--sync", "--command-property", "enable.idempotence=false")
    tools("console-producer", "--topic", "data-nulls", *flags, *acks, stdin="a:1,b:2\tkey:NULL\n")
    tools("console-producer", "--topic", "data-nulls", *flags, "--sync", stdin="NULL\tNULL:value\n")
    shown = [
        part
        for name in ("print.key=true", "print.headers=true", "print.epoch=true", "null.literal=nothing")
        for part in ("--formatter-property", name)
    ]
    rows = read(tools, "data-nulls", 2, *shown, "--isolation-level", "read_committed")
    assert [row.split("\t") for row in rows] == [
        ["Epoch:NOT_PRESENT", "a:1,b:2", "key", "nothing"],
        ["Epoch:NOT_PRESENT", "NO_HEADERS", "nothing", "value"],
    ]
    wrong = tools("console-producer", "--topic", "data-nulls", *KEYED, stdin="no separator\n", status=1)
    assert "No key separator found" in both(wrong)


def test_console_consumer_of_several_topics_commits(tools: ToolsInOneJvm) -> None:
    make_topic(tools, "data-many-a", "k:a")
    make_topic(tools, "data-many-b", "k:b")
    many = ("--include", "data-many-[ab]", "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000")
    assert sorted(tools("console-consumer", *many, "--group", "data-many").lines) == ["a", "b"]
    described = tools("consumer-groups", "--describe", "--group", "data-many").lines
    assert sorted(line.split()[:6] for line in described if line.startswith("data-many ")) == [
        ["data-many", f"data-many-{name}", "0", "1", "1", "0"] for name in "ab"
    ]
    reader = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "3000")
    formatter = ("--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter")
    committed = tools("console-consumer", *reader, *formatter).stdout
    assert '"group":"data-many","topic":"data-many-a","partition":0' in committed


@pytest.fixture(scope="module")
def group(tools: ToolsInOneJvm) -> str:
    """A group that has read two partitions to their ends, 4 and 6, and left."""
    make_topic(tools, "data-reset", *[f"{key}:v" for key in "abcdefghij"], partitions=2)
    assert len(read(tools, "data-reset", 10, "--group", "data-reset")) == 10
    return "data-reset"


def new_offsets(output: Output) -> dict[int, int]:
    """partition → offset, of the table that a reset prints."""
    rows = [line.split() for line in output.lines]
    return {int(row[2]): int(row[3]) for row in rows if row[:2] == ["data-reset", "data-reset"]}


def test_group_offsets_are_reset_in_every_way(tools: ToolsInOneJvm, group: str, tmp_path: Path) -> None:
    def reset(*flags: str) -> dict[int, int]:
        return new_offsets(
            tools("consumer-groups", "--reset-offsets", "--group", group, "--topic", "data-reset", *flags)
        )

    end = reset("--to-latest", "--dry-run")
    assert sum(end.values()) == 10
    begin = dict.fromkeys(end, 0)
    assert reset("--to-earliest", "--dry-run") == begin
    assert reset("--to-current", "--dry-run") == end
    assert reset("--shift-by", "-1", "--dry-run") == {at: max(offset - 1, 0) for at, offset in end.items()}
    assert reset("--shift-by", "-100", "--dry-run") == begin
    assert reset("--shift-by", "5", "--dry-run") == end
    assert reset("--to-offset", "1", "--dry-run") == {at: min(offset, 1) for at, offset in end.items()}
    assert reset("--to-offset", "99", "--dry-run") == end
    assert reset("--by-duration", "PT1H", "--dry-run") == begin
    assert reset("--to-datetime", "2020-01-01T00:00:00.000", "--dry-run") == begin
    assert reset("--to-datetime", "2099-01-01T00:00:00.000", "--dry-run") == end
    assert new_offsets(
        tools(
            "consumer-groups", "--reset-offsets", "--group", group, "--topic", "data-reset:1", "--to-earliest",
            "--dry-run",
        )
    ) == {1: 0}  # fmt: skip
    plan = tmp_path / "offsets.csv"
    plan.write_text('"data-reset",0,1\n"data-reset",1,0\n')
    flags = ("--reset-offsets", "--group", group, "--from-file", str(plan), "--execute")
    assert new_offsets(tools("consumer-groups", *flags)) == {0: min(1, end[0]), 1: 0}
    assert reset("--to-current", "--dry-run") == {0: min(1, end[0]), 1: 0}
    exported = tools(
        "consumer-groups", "--reset-offsets", "--group", group, "--all-topics", "--to-current", "--dry-run",
        "--export",
    ).lines  # fmt: skip
    assert sorted(exported) == [f"data-reset,0,{min(1, end[0])}", "data-reset,1,0"]


def test_groups_are_made_and_deleted_by_tools(tools: ToolsInOneJvm) -> None:
    make_topic(tools, "data-made", "k:v")
    name = ("--group", "data-made")
    made = ("--reset-offsets", *name, "--topic", "data-made", "--to-earliest", "--execute")
    tools("consumer-groups", *made)
    assert "data-made" in tools("consumer-groups", "--list").lines
    for kind in (("--type", "classic"), ("--state", "Empty")):
        listed = tools("consumer-groups", "--list", *kind).stdout
        assert "data-made" in listed
    for kind in (("--consumer",), ("--group-type", "classic")):
        assert "data-made" in tools("groups", "--list", *kind).stdout
    for kind in (("--share",), ("--group-type", "streams"), ("--protocol", "nonsense")):
        assert "data-made" not in tools("groups", "--list", *kind).stdout
    state = tools("consumer-groups", "--describe", *name, "--state").lines
    assert any(line.split()[0] == "data-made" and "Empty" in line for line in state)
    everything = tools("consumer-groups", "--describe", "--all-groups").stdout
    assert "data-made" in everything
    gone = tools("consumer-groups", "--delete-offsets", *name, "--topic", "data-made:0")
    assert gone.lines[-1].split() == ["data-made", "0", "Successful"]
    unknown = tools("consumer-groups", "--delete-offsets", *name, "--topic", "data-nothing")
    assert "UnknownTopicOrPartitionException" in both(unknown)
    tools("consumer-groups", *made)
    deleted = tools("consumer-groups", "--delete", *name, "--group", "data-absent")
    assert "Group 'data-absent' could not be deleted" in both(deleted)
    assert "deleted successfully: 'data-made'" in both(deleted)
    valid = tools("consumer-groups", "--validate-regex", "a.*")
    assert valid.lines == ["The regular expression `a.*` is valid."]


def test_offsets_of_topics_and_partitions(tools: ToolsInOneJvm) -> None:
    make_topic(tools, "data-offsets-a", "k:1")
    tools("console-producer", "--topic", "data-offsets-a", *KEYED, stdin="k:2\n")  # Later than the first.
    make_topic(tools, "data-offsets-b", partitions=2)
    every = tools("get-offsets", "--topic", "data-offsets-.*").lines
    assert every == ["data-offsets-a:0:2", "data-offsets-b:0:0", "data-offsets-b:1:0"]
    some = ("--topic-partitions", "data-offsets-a:0,data-offsets-b:1-")
    assert tools("get-offsets", *some).lines == ["data-offsets-a:0:2", "data-offsets-b:1:0"]
    only = ("--topic", "data-offsets-b", "--partitions", "1")
    assert tools("get-offsets", *only).lines == ["data-offsets-b:1:0"]
    for moment, expected in {
        "-1": ["2"], "-2": ["0"], "-3": ["1"], "earliest-local": ["0"], "latest-tiered": [], "0": ["0"],
    }.items():  # fmt: skip
        found = tools("get-offsets", "--topic", "data-offsets-a", "--time", moment).lines
        assert [line.rpartition(":")[2] for line in found] == expected, moment
    assert not any(line.startswith("__") for line in tools("get-offsets", "--exclude-internal-topics").lines)
    nothing = tools("get-offsets", "--topic", "data-nothing", status=1)
    assert "Could not match any topic-partitions" in both(nothing)


def test_records_are_deleted(tools: ToolsInOneJvm, tmp_path: Path) -> None:
    make_topic(tools, "data-delete", "k:1", "k:2", "k:3")
    plan = tmp_path / "delete.json"

    def delete(offset: int, status: int = 0) -> Output:
        rows = [{"topic": "data-delete", "partition": 0, "offset": offset}]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        return tools("delete-records", "--offset-json-file", str(plan), status=status)

    assert delete(1).lines[-1].split() == ["partition:", "data-delete-0", "low_watermark:", "1"]
    assert read(tools, "data-delete", 2) == ["2", "3"]
    assert "OffsetOutOfRangeException" in delete(99).stdout
    assert delete(-1).lines[-1].endswith("low_watermark: 3")
    plan.write_text('{"version": 1}')
    wrong = tools("delete-records", "--offset-json-file", str(plan), status=1)
    assert "Missing partitions field" in both(wrong)


def test_log_dirs_and_dump_log(tools: ToolsInOneJvm, cluster: Any) -> None:
    make_topic(tools, "data-dirs", "k:1", "k:2")
    shown = tools("log-dirs", "--describe", "--topic-list", "data-dirs", "--broker-list", "1").lines
    (broker,) = json.loads(shown[-1])["brokers"]
    (directory,) = broker["logDirs"]
    (partition,) = directory["partitions"]
    folder = cluster.data_dir / "node-1"
    log = folder / "data-dirs-0" / "00000000000000000000.log"
    assert (broker["broker"], directory["error"], directory["logDir"]) == (1, None, str(folder))
    assert partition == {
        "partition": "data-dirs-0", "size": log.stat().st_size, "offsetLag": 0, "isFuture": False
    }  # fmt: skip
    unknown = tools("log-dirs", "--describe", "--broker-list", "7", status=1)
    assert "do not exist" in both(unknown)
    dump = tools("dump-log", "--files", str(log), "--deep-iteration").stdout
    assert "Log starting offset: 0" in dump
    assert "lastOffset: 1" in dump.replace("lastOffset: 0", "")
    sane = tools("dump-log", "--files", str(log.with_suffix(".index")), "--index-sanity-check").stdout
    assert "00000000000000000000.index" in sane
    assert "corrupt" not in sane.lower()


def test_performance_tools_flags(tools: ToolsInOneJvm) -> None:
    make_topic(tools, "data-perf", partitions=3)
    load = ("--topic", "data-perf", "--num-records", "3000", "--record-size", "100", "--throughput", "-1")
    sent = tools("producer-perf-test", *load, "--warmup-records", "500", "--print-metrics")
    assert "3000 records sent" in sent.stdout
    assert "producer-metrics:record-send-total" in sent.stdout
    slow = ("--num-records", "100", "--payload-monotonic", "--throughput", "2000")
    assert tools("producer-perf-test", "--topic", "data-perf", *slow).lines[-1].startswith("100 records sent")
    detailed = (
        "--show-detailed-stats",
        "--reporting-interval",
        "100",
        "--group",
        "data-perf",
        "--print-metrics",
    )
    read_all = tools("consumer-perf-test", "--topic", "data-perf", "--num-records", "3100", *detailed).stdout
    assert "time, threadId, data.consumed.in.MB" in read_all
    found = re.findall(r"metrics:records-consumed-total:\{client-id=[^,}]*\} *: ([\d.]+)", read_all)
    assert [float(number) for number in found] == [3100.0]


def test_verifiable_clients_flags(tools: ToolsInOneJvm) -> None:
    make_topic(tools, "data-verified")
    flags = ("--value-prefix", "7", "--repeating-keys", "2", "--message-create-time", "1600000000000")
    # It flushes only when its JVM ends.
    limit = ("--bootstrap-server", tools.bootstrap, "--topic", "data-verified", "--max-messages", "4")
    sent = run_tool("verifiable-producer", *limit, *flags)
    rows = [json.loads(line) for line in sent.lines]
    assert [(row["key"], row["value"]) for row in rows if row["name"] == "producer_send_success"] == [
        ("0", "7.0"),
        ("1", "7.1"),
        ("0", "7.2"),
        ("1", "7.3"),
    ]
    shown = read(tools, "data-verified", 4, "--formatter-property", "print.timestamp=true")
    assert shown[0] == "CreateTime:1600000000000\t7.0"


def test_broker_api_versions_name_every_request(tools: ToolsInOneJvm) -> None:
    output = tools("broker-api-versions").stdout
    assert "UNKNOWN" not in output
    assert re.search(r"\tProduce\(0\): 0 to 13 \[usable: 13\],", output)
    assert re.search(r"\tFetch\(1\): 4 to 18 \[usable: 18\],", output)
