"""kcat as Debian ships it (1.7, librdkafka 2.0), the way people type it."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest
from confluent_kafka_client import WAIT_SECONDS, make_topic, producer_of
from running_cluster import require_program

pytestmark = pytest.mark.integration


def kcat(
    cluster: Any, *arguments: str, stdin: str | bytes = "", status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run kcat to its end against the cluster; it must exit with `status`."""
    done = subprocess.run(
        [require_program("kcat"), "-b", cluster.bootstrap, *arguments],
        input=stdin if isinstance(stdin, bytes) else stdin.encode(),
        capture_output=True,
        timeout=90,
        check=False,
    )
    text = subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace")
    )
    assert done.returncode == status, (
        f"kcat {arguments} exited with {done.returncode}:\n{text.stdout}\n{text.stderr}"
    )
    return text


def consume(cluster: Any, topic: str, *arguments: str) -> list[str]:
    """The lines of `kcat -C` from the beginning to the end of the topic."""
    return kcat(cluster, "-C", "-t", topic, "-o", "beginning", "-e", "-q", *arguments).stdout.splitlines()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(cluster: Any, codec: str) -> None:
    topic = make_topic(cluster, f"kcat-{codec}", 3)
    lines = [f"key-{number}:value-{number}" for number in range(300)]
    kcat(
        cluster,
        "-P",
        "-t",
        topic,
        "-K:",
        "-z",
        codec,
        "-X",
        "enable.idempotence=true",
        stdin="\n".join(lines),
    )
    assert sorted(consume(cluster, topic, "-K:")) == sorted(lines)
    one = consume(cluster, topic, "-K:", "-p", "1")
    assert 0 < len(one) < 300


def test_the_first_line_makes_its_topic(cluster: Any) -> None:
    kcat(cluster, "-P", "-t", "kcat-made", stdin="hello\n")
    assert consume(cluster, "kcat-made") == ["hello"]


def test_a_format_shows_every_part_of_a_record(cluster: Any) -> None:
    topic = make_topic(cluster, "kcat-format", 2)
    kcat(
        cluster, "-P", "-t", topic, "-p", "1", "-K:", "-Z", "-H", "trace=a", "-H", "trace=b", "-H", "flag",
        stdin="key:value\n:no key\ngone:\n",
    )  # fmt: skip
    shown = consume(cluster, topic, "-f", "%t|%p|%o|%k|%K|%s|%S|%h\n")
    assert shown == [
        f"{topic}|1|0|key|3|value|5|trace=a,trace=b,flag=NULL",
        f"{topic}|1|1||-1|no key|6|trace=a,trace=b,flag=NULL",
        f"{topic}|1|2|gone|4||-1|trace=a,trace=b,flag=NULL",
    ]
    records = [json.loads(line) for line in consume(cluster, topic, "-J")]
    assert [(record["key"], record["payload"]) for record in records] == [
        ("key", "value"),
        (None, "no key"),
        ("gone", None),
    ]
    assert records[0]["headers"] == ["trace", "a", "trace", "b", "flag", None]
    assert (records[0]["topic"], records[0]["partition"], records[0]["offset"]) == (topic, 1, 0)
    assert (records[0]["tstype"], abs(records[0]["ts"] / 1000 - time.time()) < 600) == ("create", True)


def test_delimiters_and_whole_files(cluster: Any, tmp_path: Any) -> None:
    topic = make_topic(cluster, "kcat-delimiters")
    kcat(cluster, "-P", "-t", topic, "-D", ";", "-K", "=", stdin="a=1;b=2;c=3")
    whole = tmp_path / "whole.txt"
    whole.write_text("two\nlines\n")
    kcat(cluster, "-P", "-t", topic, str(whole))
    assert (
        kcat(cluster, "-C", "-t", topic, "-e", "-q", "-D", "|", "-K", "~").stdout
        == "a~1|b~2|c~3|~two\nlines\n|"
    )


def test_offsets_counts_and_times_choose_what_is_read(cluster: Any) -> None:
    topic = make_topic(cluster, "kcat-offsets")
    start = 1_700_000_000_000
    producer = producer_of(cluster, compression_type="zstd", linger_ms=50)
    for number in range(50):
        producer.produce(topic, str(number), timestamp=start + number * 1000)
    assert producer.flush(WAIT_SECONDS) == 0

    def read(*arguments: str) -> list[int]:
        out = kcat(cluster, "-C", "-t", topic, "-p", "0", "-e", "-q", *arguments).stdout
        return [int(line) for line in out.splitlines()]

    assert read("-o", "42") == list(range(42, 50))
    assert read("-o", "-3") == [47, 48, 49]
    assert read("-o", "beginning", "-c", "4") == [0, 1, 2, 3]
    assert read("-o", "end") == []
    assert read("-o", f"s@{start + 29_500}", "-o", f"e@{start + 35_000}") == list(range(30, 35))
    found = kcat(cluster, "-Q", "-t", f"{topic}:0:{start + 29_500}").stdout
    assert found == f"{topic} [0] offset 30\n"
    stamped = consume(cluster, topic, "-c", "2", "-f", "%T %s\n")
    assert stamped == [f"{start} 0", f"{start + 1000} 1"]


def test_offsets_are_queried_by_time_and_end(cluster: Any) -> None:
    topic = make_topic(cluster, "kcat-query")
    kcat(cluster, "-P", "-t", topic, stdin="a\nb\nc\n")
    for asked, offset in (("-2", 0), ("-1", 3), ("0", 0)):
        assert kcat(cluster, "-Q", "-t", f"{topic}:0:{asked}").stdout == f"{topic} [0] offset {offset}\n"
    far = int(time.time() * 1000) + 3_600_000
    assert kcat(cluster, "-Q", "-t", f"{topic}:0:{far}").stdout == f"{topic} [0] offset -1\n"


def test_metadata_is_listed(cluster: Any) -> None:
    topic = make_topic(cluster, "kcat-listed", 3)
    text = kcat(cluster, "-L", "-t", topic).stdout
    assert f"broker 1 at {cluster.bootstrap} (controller)" in text
    assert f'topic "{topic}" with 3 partitions:' in text
    assert "partition 2, leader 1, replicas: 1, isrs: 1" in text
    listing = json.loads(kcat(cluster, "-L", "-J").stdout)
    (found,) = [entry for entry in listing["topics"] if entry["topic"] == topic]
    assert [(p["partition"], p["leader"], p["isrs"]) for p in found["partitions"]] == [
        (number, 1, [{"id": 1}]) for number in range(3)
    ]
    assert listing["brokers"] == [{"id": 1, "name": cluster.bootstrap}]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_a_group_reads_commits_and_goes_on(cluster: Any, strategy: str) -> None:
    topic = make_topic(cluster, f"kcat-group-{strategy}", 2)
    group = ("-G", f"kcat-{strategy}", "-X", "auto.offset.reset=earliest")
    options = ("-q", "-e", "-X", f"partition.assignment.strategy={strategy}", topic)
    for batch in (range(10), range(10, 15)):
        for partition in (0, 1):
            lines = "\n".join(f"{partition}-{number}" for number in batch)
            kcat(cluster, "-P", "-t", topic, "-p", str(partition), stdin=lines)
        got = kcat(cluster, *group, *options).stdout.splitlines()
        assert sorted(got) == sorted(f"{partition}-{number}" for partition in (0, 1) for number in batch)


def test_a_group_reads_topics_by_a_regular_expression(cluster: Any) -> None:
    for name in ("kcat-regex-a", "kcat-regex-b"):
        make_topic(cluster, name)
        kcat(cluster, "-P", "-t", name, stdin=f"in {name}\n")
    got = kcat(
        cluster, "-G", "kcat-regex", "-X", "auto.offset.reset=earliest", "-e", "-q", "^kcat-regex-.*"
    ).stdout
    assert sorted(got.splitlines()) == ["in kcat-regex-a", "in kcat-regex-b"]


@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_options_of_the_library_pass_through(cluster: Any, acks: str) -> None:
    topic = make_topic(cluster, f"kcat-acks{acks}")
    kcat(cluster, "-P", "-t", topic, "-X", f"acks={acks}", "-X", "client.id=kcat-options", stdin="x\ny\n")
    got = consume(
        cluster, topic, "-X", "fetch.max.bytes=1000", "-X", "message.max.bytes=1000",
        "-X", "isolation.level=read_committed", "-X", "check.crcs=true",
    )  # fmt: skip
    assert got == ["x", "y"]


def test_mistakes_are_told_in_words(cluster: Any) -> None:
    gone = kcat(cluster, "-C", "-t", "kcat-not-there", "-e", "-X", "allow.auto.create.topics=false", status=1)
    assert "Unknown topic or partition" in gone.stderr
    topic = make_topic(cluster, "kcat-small", max_message_bytes="1000")
    large = kcat(cluster, "-P", "-t", topic, stdin="x" * 5000 + "\n", status=1)
    assert "Message size too large" in large.stderr
