"""Every command of the real executable against a running cluster, compared with kcat and Kafka's own tools."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from command_line import CommandLine
from kafka_tools import run_tool
from running_cluster import require_program

SECONDS_MAX: Final = 60.0
BINARY: Final = bytes(range(256))


@pytest.fixture
def run(cluster: Any) -> CommandLine:
    return CommandLine(cluster.bootstrap)


@pytest.fixture
def topic(run: CommandLine) -> str:
    name = f"cli-{uuid.uuid4().hex[:12]}"
    run("topics", "--create", "--topic", name, "--partitions", "2")
    return name


def kcat(run: CommandLine, *arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        [require_program("kcat"), "-b", run.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return done.stdout


def test_topics(run: CommandLine, topic: str) -> None:
    assert "already exists" in run.refused("topics", "--create", "--topic", topic)
    run("topics", "create", topic, "--if-not-exists")
    run("topics", "--alter", "--topic", topic, "--partitions", "3", "--config", "retention.ms=70000")
    described = run("topics", "--describe", "--topic", topic, "--output", "json").data
    assert [(one["topic"], one["partitionCount"], one["configs"]) for one in described] == [
        (topic, 3, {"retention.ms": "70000"})
    ]
    assert yaml.safe_load(run("topics", "describe", topic, "--output", "yaml").stdout) == described
    # kcat sees the same partitions and leaders.
    (seen,) = json.loads(kcat(run, "-L", "-J", "-t", topic))["topics"]
    leaders = {part["partition"]: part["leader"] for part in seen["partitions"]}
    assert {part["partition"]: part["leader"] for part in described[0]["partitions"]} == leaders
    assert topic in run("topics", "--list").lines
    assert run("topics", "--list", "--topic", f"{topic}.*").lines == [topic]
    assert run("topics", "--describe", "--topic", topic, "--under-replicated-partitions").stdout == b""
    run("topics", "--alter", "--topic", topic, "--delete-config", "retention.ms")
    assert run("topics", "describe", topic, "--topics-with-overrides", "--output", "json").data == []
    run("topics", "--delete", "--topic", f"{topic[:-1]}.", "--dry-run")
    run("topics", "--delete", "--topic", f"{topic[:-1]}.")
    assert "no topic matches" in run.refused("topics", "--delete", "--topic", topic)
    run("topics", "--delete", "--topic", topic, "--if-exists")


def test_configs(run: CommandLine, topic: str) -> None:
    run(
        "configs",
        "--alter",
        "--topic",
        topic,
        "--add-config",
        "cleanup.policy=[compact,delete],retention.ms=99",
    )
    rows = run("configs", "--describe", "--topic", topic, "--output", "json").data
    assert {row["name"]: row["value"] for row in rows} == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "99",
    }
    run(
        "configs",
        "alter",
        "--entity-type",
        "topics",
        "--entity-name",
        topic,
        "--delete-config",
        "retention.ms",
    )
    everything = run("configs", "--describe", "--topic", topic, "--all", "--output", "json").data
    values = {row["name"]: row for row in everything}
    assert values["retention.ms"]["source"] == "DEFAULT_CONFIG"
    assert values["cleanup.policy"]["value"] == "compact,delete"
    assert run("configs", "--describe", "--entity-type", "brokers", "--all", "--output", "json").data
    assert "retention.ms" in run.refused(
        "configs", "--alter", "--topic", topic, "--add-config", "retention.ms=x"
    )
    assert "--entity-type" in run.refused("configs", "--describe", status=2)
    assert "no broker 99" in run.refused("configs", "--describe", "--broker", "99")
    assert "is called no.such" in run.refused(
        "configs", "--alter", "--topic", topic, "--delete-config", "no.such"
    )
    quota = ["--user", topic, "--client-defaults"]
    run("configs", "--alter", *quota, "--add-config", "producer_byte_rate=1000")
    (row,) = run("configs", "--describe", *quota, "--output", "json").data
    assert (row["name"], row["value"]) == ("producer_byte_rate", 1000)


def test_produce_and_consume_as_kcat_does(run: CommandLine, topic: str) -> None:
    lines = b"".join(b"key-%d|value %d \xc3\xa9\xff\n" % (number, number) for number in range(500))
    run(
        "produce", "-t", topic, "-K", "|", "-H", "trace=a1", "-H", "none", "-p", "1", "-z", "lz4", stdin=lines
    )
    kcat(run, "-P", "-t", topic, "-p", "1", "-Z", "-K", ":", stdin=b"k:\n:\n")
    format_ = r"%t %p %o %T %k|%s %K %S %R %h\n"
    theirs = kcat(run, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", format_)
    assert run("consume", "-t", topic, "-o", "beginning", "-e", "-f", format_).stdout == theirs
    assert theirs.count(b"trace=a1,none=NULL") == 500
    for flags in (
        ["-p", "1", "-o", "501", "-s", "key=s", "-s", "value=<hs$", "-c", "9", "-K,"],
        ["-K", "|"],
        ["-o", "-7"],
        ["-p", "1", "-o", "490", "-c", "3"],
        ["-Z", "-K:", "-D;"],
    ):
        start = [] if "-o" in flags else ["-o", "beginning"]
        theirs = kcat(run, "-C", "-t", topic, "-e", "-q", *start, *flags)
        assert run("consume", "-t", topic, "-e", *start, *flags).stdout == theirs, flags
    assert "out of range" in run.refused("consume", "-t", topic, "-o", "9999", status=2)


def test_flags_of_kafkas_console_tools(run: CommandLine, topic: str) -> None:
    properties = ["parse.key=true", "parse.headers=true", "null.marker=NULL"]
    flags = [word for name in properties for word in ("--property", name)]
    run("produce", "--topic", topic, *flags, stdin="h:1,i:2\tk\tv1\nh:1\tk\tNULL\n")
    names = ("timestamp", "partition", "headers", "key", "offset")
    flags = [word for name in names for word in ("--property", f"print.{name}=true")]
    ours = run("consume", "--topic", topic, "--from-beginning", "--max-messages", "2", *flags).stdout
    kafkas = [word for name in names for word in ("--formatter-property", f"print.{name}=true")]
    theirs = run_tool(
        "console-consumer",
        *("--bootstrap-server", run.bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "2"),
        *kafkas,
    )
    assert ours.decode() == theirs.stdout
    tuned = "--sync --batch-size 999 --timeout 1 --max-memory-bytes 99999 --max-block-ms 9000 --retry-backoff-ms 9"
    tuned += " --request-timeout-ms 1500 --message-send-max-retries 3 --metadata-expiry-ms 9999 --compression-codec"
    sent = run(
        "produce", "--topic", topic, *tuned.split(), "--request-required-acks", "1", "-Tc1", stdin="c\nd\n"
    )
    assert sent.stdout == b"c\n", "-T repeats what is sent, -c 1 ends after one"
    line = run.refused("produce", "--topic", topic, "--property", "parse.key=true", stdin="a\tb\nalone\n")
    assert line == "record 2 of the input: no key separator in the line; the 1 before it are sent"
    assert sorted(run("consume", "--topic", topic, "--from-beginning", "--timeout-ms", "1500").lines) == [
        "",
        "b",
        "c",
        "v1",
    ]


def test_json_there_and_back(run: CommandLine, topic: str) -> None:
    records = [
        {"key": None, "value": None, "timestamp": 1_600_000_000_000, "headers": [["a", None], ["a", "é"]]},
        {"key": {"base64": "/w=="}, "value": "text", "partition": 1},
        {"key": "", "value": {"base64": "AP8="}, "partition": 0, "headers": [["bin", {"base64": "/g=="}]]},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    run("produce", "-t", topic, "--input", "json", "--keep-partitions", stdin=lines)
    first = run("consume", "-t", topic, "-e", "--output", "json")
    copy = f"{topic}-copy"
    run("topics", "create", copy, "--partitions", "2")
    run("produce", "-J", "-t", copy, "--keep-partitions", stdin=first.stdout)
    second = run("consume", "-t", copy, "-e", "--output", "json")

    def facts(records: list[Any]) -> list[Any]:
        return sorted(json.dumps({**one, "topic": ""}) for one in records)

    assert facts(second.records) == facts(first.records)
    by_value = {json.dumps(record["value"]): record for record in first.records}
    assert by_value["null"]["timestamp"] == 1_600_000_000_000
    assert by_value["null"]["headers"] == [["a", None], ["a", "é"]]
    assert by_value['{"base64": "AP8="}']["key"] == ""
    run("produce", "-t", copy, "-p", "0", "-k", "k", "-H", "a=b", "-H", "c", stdin="é\n")
    last = ["-t", copy, "-p", "0", "-o", "-1", "-e", "-q", "-J"]
    theirs = json.loads(kcat(run, "-C", *last))
    del theirs["broker"]  # librdkafka's Python binding does not tell it
    assert run("consume", *last).records == [theirs]
    assert "record 1 of the input: not JSON" in run.refused("produce", "-t", topic, "-J", stdin="oops\n")


def test_files_and_times(run: CommandLine, topic: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.write_bytes(BINARY)
    run("produce", topic, "--file", str(whole), "-p", "0", "-k", "file")
    assert run("consume", "-t", topic, "-p", "0", "-e", "-D", "").stdout == BINARY
    stamped = "".join(
        json.dumps({"value": str(number), "timestamp": 1_600_000_000_000 + number * 1000}) + "\n"
        for number in range(10)
    )
    run("produce", "-t", topic, "-p", "1", "-J", stdin=stamped)
    only = ["-t", topic, "-p", "1"]
    assert run("consume", *only, "--from", "2020-09-13T12:26:47Z", "-e").lines == ["7", "8", "9"]
    assert run("consume", *only, "-o", "s@1600000002000", "-o", "e@1600000004000").lines == ["2", "3"]
    assert run("consume", *only, "--until", "2020-09-13T12:26:41").lines == ["0"]
    assert run("consume", *only, "--until", "now", "--from", "1600000009").lines == ["9"]


def test_groups_as_kafkas_tool_sees_them(run: CommandLine, topic: str, tmp_path: Path) -> None:
    group = f"group-{topic}"
    run("produce", "-t", topic, "-p", "0", stdin="a\nb\nc\nd\n")
    assert run("consume", "-t", topic, "-G", group, "--from-beginning", "-c", "3").lines == ["a", "b", "c"]
    assert run("consume", "-t", topic, "-G", group, "-e").lines == ["d"]
    assert group in run("groups", "--list", "--type", "classic", "--state", "empty", "--output", "json").text
    reset = ["groups", "--reset-offsets", "--group", group]
    run(*reset, "--topic", f"{topic}:0", "--to-offset", "1", "--execute")
    rows = run("groups", "--describe", "--group", group, "--output", "json").data
    assert [(row["partition"], row["currentOffset"], row["logEndOffset"], row["lag"]) for row in rows] == [
        (0, 1, 4, 3)
    ]
    theirs = run_tool("consumer-groups", "--bootstrap-server", run.bootstrap, "--describe", "--group", group)
    (line,) = [line.split() for line in theirs.lines if line.split()[1] == topic]
    assert line[:6] == [group, topic, "0", "1", "4", "3"]
    assert run("groups", "describe", group, "--state", "--output", "json").data[0]["state"] == "Empty"
    assert run(*reset, "--topic", topic, "--shift-by", "1", "--export", status=1).stdout == b""
    exported = run(*reset, "--topic", f"{topic}:0", "--shift-by", "9", "--export")
    assert exported.lines == [f"{topic},0,4"]
    file = tmp_path / "offsets.csv"
    file.write_text(f"{topic},0,2\n")
    run(*reset, "--from-file", str(file), "--execute")
    for way, offset in (
        (["--to-current"], 2),
        (["--to-latest"], 4),
        (["--to-earliest"], 0),
        (["--by-duration", "PT1H"], 0),
    ):
        (row,) = run(*reset, "--topic", f"{topic}:0", *way, "--output", "json").data
        assert row["newOffset"] == offset, way
    assert run("consume", "-t", topic, "-G", group, "-e").lines == ["c", "d"]
    assert run(
        "groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0", "--output", "json"
    ).data == [{"group": group, "topic": topic, "partition": 0, "status": "deleted"}]
    run("groups", "--delete", "--group", group)
    assert f"no group {group}" in run.refused("groups", "--describe", "--group", group)


def test_offsets_and_records_deleted(run: CommandLine, topic: str, tmp_path: Path) -> None:
    run("produce", "-t", topic, "-p", "0", stdin="a\nb\nc\n")
    ours = run("offsets", "--topic", topic)
    theirs = run_tool("get-offsets", "--bootstrap-server", run.bootstrap, "--topic", topic)
    assert ours.lines == theirs.lines == [f"{topic}:0:3", f"{topic}:1:0"]
    run("delete-records", "--topic", topic, "--partition", "0", "--offset", "1")
    file = tmp_path / "delete.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 2}], "version": 1}))
    (row,) = run("delete-records", "--offset-json-file", str(file), "--output", "json").data
    assert row == {"topic": topic, "partition": 0, "lowWatermark": 2, "error": None}
    assert run("offsets", "--topic", topic, "--time", "earliest").lines == [f"{topic}:0:2", f"{topic}:1:0"]
    assert run("offsets", "--topic", topic, "--partitions", "0", "--time", "-4").lines == [f"{topic}:0:2"]
    assert "OFFSET_OUT_OF_RANGE" in run.refused(
        "delete-records", "--topic", topic, "--partition", "0", "--offset", "9"
    )
    assert "no partition matches" in run.refused("offsets", "--topic", "no-such-topic")


def test_the_cluster_itself(run: CommandLine, cluster: Any, topic: str) -> None:
    run("produce", "-t", topic, "-p", "0", stdin="a\nb\nc\n")
    (broker,) = run("cluster", "list-endpoints", "--output", "json").data
    assert (broker["id"], broker["port"], broker["isController"]) == (1, cluster.port, True)
    assert re.fullmatch(r"Cluster ID: \S+\n", run("cluster", "id").text)
    versions = {row["api"]: row for row in run("cluster", "api-versions", "--output", "json").data}
    assert versions["Fetch"]["max"] >= 16
    refused = run.refused("cluster", "features", "upgrade", "--feature", "streams.version=99")
    assert "INVALID_UPDATE_VERSION" in refused
    (quorum,) = run("cluster", "quorum", "--output", "json").data
    assert quorum["maxFollowerLag"] == 0
    rows = run("log-dirs", "--describe", "--topic-list", topic, "--output", "json").data
    assert [(row["broker"], row["partition"], row["offsetLag"]) for row in rows] == [(1, 0, 0), (1, 1, 0)]
    assert rows[0]["size"] > rows[1]["size"] == 0
    assert "no broker 9" in run.refused("log-dirs", "--describe", "--broker-list", "9", status=2)


def test_dump_log_prints_what_kafkas_tool_prints(run: CommandLine, cluster: Any, topic: str) -> None:
    run("topics", "create", f"{topic}-segments", "--config", "segment.bytes=1048576")
    values = b"".join(b"%06d%s\n" % (number, b"x" * 1000) for number in range(3000))
    run(
        "produce", "-t", f"{topic}-segments", "-H", "a=1", "-k", "key", "-X", "batch.size=20000", stdin=values
    )
    folder = cluster.data_dir / "node-1" / f"{topic}-segments-0"
    files = sorted(folder.glob("*.log"))
    assert len(files) >= 3
    finished = files[:-1] + [
        path.with_suffix(suffix) for path in files[:-1] for suffix in (".index", ".timeindex")
    ]
    words = ["--deep-iteration", "--print-data-log", "--files", ",".join(map(str, finished))]
    ours = run("dump-log", *words)
    theirs = run_tool("dump-log", *words)
    assert ours.text == theirs.stdout
    batches = [
        json.loads(line) for path in files for line in run("dump-log", "--output", "json", str(path)).lines
    ]
    assert sum(batch["count"] for batch in batches) == 3000
    snapshot = max(folder.glob("*.snapshot"))
    assert "lastSequence: " in run("dump-log", str(snapshot)).text


def test_perf(run: CommandLine, topic: str) -> None:
    sent = run(
        "perf",
        "produce",
        "--topic",
        topic,
        "--num-records",
        "2000",
        "--record-size",
        "100",
        "--warmup-records",
        "500",
        "--output",
        "json",
    )
    assert sent.data["records"] == 2000
    assert sent.data["steadyState"]["records"] == 1500
    assert sent.data["latency50"] <= sent.data["latency99_9"] <= sent.data["latencyMax"]
    paced = run(
        *(
            "perf",
            "produce",
            "--topic",
            topic,
            "--num-records",
            "200",
            "--record-size",
            "10",
            "--throughput",
            "400",
        ),
        *("--print-metrics", "--producer-props", "acks=1", "linger.ms=0"),
    )
    line, _, metrics = paced.text.partition("\n")
    assert re.fullmatch(
        r"200 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency, "
        r"[\d.]+ ms 50th, [\d.]+ ms 95th, [\d.]+ ms 99th, [\d.]+ ms 99.9th\.",
        line,
    )
    assert float(line.split()[3]) < 450
    assert isinstance(json.loads(metrics), dict)
    read = run("perf", "consume", "--topic", topic, "--messages", "2200", "--output", "json")
    assert read.data["data.consumed.in.nMsg"] == 2200
    few = run("perf", "consume", "--topic", topic, "--messages", "9999", "--timeout", "4000", status=1)
    assert "2200 of 9999" in few.stderr
