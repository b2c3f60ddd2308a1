"""Apache Kafka's `kafka-dump-log` reads every file of a storage node, after a clean stop and after a crash.

The tool exits with 0 whatever it finds and complains on stderr, so a file is sound when stderr is empty but for one
thing. With `--deep-iteration` the tool starts each segment as if the offset before it were -1; it thus reports
"-1 is followed by BASE" for every segment whose base offset is not 0, of Kafka's own logs as well. Exactly these pairs
are expected, one for each such segment.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_tools import run_tool

pytestmark = pytest.mark.integration

WAIT_SECONDS: Final = 30
SEGMENT_BYTES: Final = 1024 * 1024
"""The least that Kafka 4 accepts."""

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CREATED_MS: Final = int(time.time() * 1000) - 3_600_000
"""An hour ago: producers whose newest record is older than `producer.id.expiration.ms` (a day) are forgotten."""

GROUP: Final = "dump-log-readers"

BATCH: Final = re.compile(
    r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) baseSequence: (?P<sequence>-?\d+)"
    r" lastSequence: (?P<last_sequence>-?\d+) producerId: (?P<producer>-?\d+) .* position: (?P<position>\d+)"
    r" (?P<time_type>\w+): (?P<time>-?\d+) size: (?P<size>\d+) magic: 2 compresscodec: (?P<codec>\w+)"
    r" crc: \d+ isvalid: true"
)
RECORD: Final = re.compile(
    r"\| offset: (?P<offset>\d+) \w+: (?P<time>-?\d+) keySize: (?P<key_size>-?\d+) valueSize: (?P<size>-?\d+)"
    r" sequence: -?\d+ headerKeys: \[(?P<headers>[^]]*)\](?: key: (?P<key>\S+))?(?: payload: (?P<value>.*))?"
)
PRODUCER: Final = re.compile(
    r"producerId: (?P<id>\d+) .* lastSequence: (?P<sequence>\d+) lastOffset: (?P<offset>\d+) "
)

Record = tuple[str | None, str | None, int]
"""Key, value, timestamp."""


@dataclass
class Partition:
    """What the tool read of partition 0 of one topic."""

    batches: list[dict[str, str]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    headers: set[str] = field(default_factory=set)


class Workload:
    """Owns what was acknowledged: topic → records of partition 0 in the order of their offsets."""

    def __init__(self, cluster: Any) -> None:
        self._bootstrap = cluster.bootstrap
        self._random = random.Random(2)
        self.sent: dict[str, list[Record]] = defaultdict(list)

    def create_topics(self) -> None:
        small = {"segment.bytes": str(SEGMENT_BYTES)}
        topics = [NewTopic(f"dump-{name}", 1, 1, config=small) for name in COMPRESSIONS]
        topics.append(NewTopic("dump-append-time", 1, 1, config={"message.timestamp.type": "LogAppendTime"}))
        topics.append(NewTopic("dump-plain", 1, 1))
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for future in admin.create_topics(topics).values():
            future.result(WAIT_SECONDS)

    def produce(self) -> None:
        """Several segments of each compression with idempotence, and two small topics."""
        for name in COMPRESSIONS:
            self._produce(f"dump-{name}", name, 500, value_bytes=3000, is_idempotent=True)
        self._produce("dump-append-time", "lz4", 50, value_bytes=10, is_idempotent=True)
        self._produce("dump-plain", "none", 50, value_bytes=-1, is_idempotent=False)

    def _produce(
        self, topic: str, compression: str, count: int, *, value_bytes: int, is_idempotent: bool
    ) -> None:
        settings = {"enable.idempotence": is_idempotent, "compression.type": compression, "linger.ms": 20}
        producer = Producer({"bootstrap.servers": self._bootstrap, "batch.size": 100_000, **settings})
        errors: list[Any] = []

        def on_delivery(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(error)

        for number in range(count):
            key = f"key-{number}" if number % 3 else None
            value = self._random.randbytes(value_bytes).hex() if value_bytes >= 0 else None
            at = CREATED_MS + len(self.sent[topic]) + self._random.randrange(1000)  # not in order, as in life
            headers: list[tuple[str, str | bytes | None]] = [("trace", b"\x00\xff"), ("empty", None)]
            producer.produce(topic, value, key, 0, timestamp=at, headers=headers, on_delivery=on_delivery)
            self.sent[topic].append((key, value, at))
        assert producer.flush(WAIT_SECONDS) == 0
        assert errors == []

    def commit(self, offset: int) -> None:
        """A member joins (a group metadata record) and commits."""
        client = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": GROUP, "enable.auto.commit": False}
        )
        client.subscribe(["dump-plain"])
        for _ in range(WAIT_SECONDS * 10):
            client.poll(0.1)
            if client.assignment():
                break
        assert client.assignment(), "the group did not form"
        client.commit(offsets=[TopicPartition("dump-plain", 0, offset)], asynchronous=False)
        client.close()


def log_files(data_dir: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in data_dir.glob("node-1/*/*") if path.suffix in suffixes)


def dump(files: list[Path], *flags: str) -> str:
    """What the tool wrote about the files, which it must find sound."""
    assert files
    out = run_tool("dump-log", *flags, "--files", ",".join(map(str, files)))
    known = []
    if "--deep-iteration" in flags:
        for path in files:
            if path.suffix == ".log" and int(path.stem) > 0 and path.stat().st_size > 0:
                known += [f"Non-consecutive offsets in {path}", f"  -1 is followed by {int(path.stem)}"]
    assert sorted(out.stderr.splitlines()) == sorted(known)
    assert out.stdout.count("Dumping ") == len(files)
    return out.stdout


def read_partitions(output: str) -> dict[str, Partition]:
    """What was read, by folder; every line of the dump is understood."""
    partitions: dict[str, Partition] = defaultdict(Partition)
    here = Partition()
    for line in output.splitlines():
        if line.startswith("Dumping "):
            here = partitions[Path(line.removeprefix("Dumping ")).parent.name]
        elif line.startswith("|"):
            record = RECORD.fullmatch(line)
            assert record, line
            value = record["value"] if int(record["size"]) >= 0 else None
            here.records.append((record["key"], value, int(record["time"])))
            here.headers.add(record["headers"])
        elif not line.startswith("Log starting offset: "):
            batch = BATCH.fullmatch(line)
            assert batch, line
            here.batches.append(batch.groupdict())
    return partitions


def assert_logs_hold(data_dir: Path, sent: dict[str, list[Record]]) -> dict[str, Partition]:
    """Every segment is sound, and the topics hold exactly what was sent."""
    files = [path for path in log_files(data_dir, ".log") if path.parent.name.startswith("dump-")]
    read = read_partitions(dump(files, "--deep-iteration", "--print-data-log"))
    for topic, records in sent.items():
        got = read[f"{topic}-0"]
        if topic == "dump-append-time":
            assert [record[:2] for record in got.records] == [record[:2] for record in records]
            assert {batch["time_type"] for batch in got.batches} == {"LogAppendTime"}
        else:
            assert got.records == records, f"{topic}: the tool reads other records than were sent"
            assert {batch["time_type"] for batch in got.batches} == {"CreateTime"}
        assert got.headers == {"trace,empty"}
        assert sum(int(batch["count"]) for batch in got.batches) == len(records)
    for name in COMPRESSIONS:
        assert {batch["codec"] for batch in read[f"dump-{name}-0"].batches} == {name}
        segments = [path for path in files if path.parent.name == f"dump-{name}-0"]
        assert len(segments) >= 2, "the topic was meant to have several segments"
        assert all(path.stat().st_size <= SEGMENT_BYTES for path in segments)
    return read


def assert_indexes_are_sound(data_dir: Path) -> None:
    indexes = log_files(data_dir, ".index", ".timeindex")
    assert len(indexes) == 2 * len(log_files(data_dir, ".log"))
    sanity = dump(indexes, "--index-sanity-check")
    assert len(re.findall(r"passed sanity check|is empty", sanity)) == len(indexes)
    verified = dump(indexes)
    assert len(re.findall(r"^offset: \d+ position: \d+$", verified, re.MULTILINE)) > 100, (
        "indexes have entries"
    )
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", verified, re.MULTILINE)) >= len(indexes) // 2 - 1


def assert_snapshots_match(data_dir: Path, read: dict[str, Partition]) -> None:
    """The snapshot at a log's end has the last batch of each producer in it."""
    snapshots = log_files(data_dir, ".snapshot")
    newest = {path.parent.name: path for path in snapshots}
    entries: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for line in dump(snapshots).splitlines():
        if line.startswith("Dumping "):
            here = Path(line.removeprefix("Dumping "))
        else:
            found = PRODUCER.match(line)
            assert found, line
            if newest[here.parent.name] == here:
                entries[here.parent.name][int(found["id"])] = (int(found["sequence"]), int(found["offset"]))
    for folder, partition in read.items():
        if folder.startswith("dump-"):
            last = {int(b["producer"]): (int(b["last_sequence"]), int(b["last"])) for b in partition.batches}
            last.pop(-1, None)
            assert entries[folder] == last
            assert int(newest[folder].stem) == len(partition.records)


def assert_offsets_topic_decodes(data_dir: Path, offset: int) -> None:
    """Kafka's own decoder reads every record; the last of each key are the group and its commit."""
    files = [
        path for path in log_files(data_dir, ".log") if path.parent.name.startswith("__consumer_offsets")
    ]
    latest: dict[str, str] = {}
    for line in dump(files, "--deep-iteration", "--offsets-decoder", "--print-data-log").splitlines():
        if line.startswith("baseOffset: "):
            assert BATCH.fullmatch(line), line
        elif line.startswith("|"):
            key, value = line.partition(" key: ")[2].split(" payload: ")
            latest[key] = value
    by_group = {
        (json.loads(key)["type"], json.loads(key)["data"].get("topic")): json.loads(value)["data"]
        for key, value in latest.items()
        if json.loads(key)["data"]["group"] == GROUP and value != "<DELETE>"
    }
    assert by_group["1", "dump-plain"]["offset"] == offset
    assert by_group["2", None]["protocolType"] == "consumer"
    assert by_group["2", None]["members"] == []


def assert_all_is_sound(data_dir: Path, workload: Workload, offset: int) -> None:
    read = assert_logs_hold(data_dir, workload.sent)
    assert_indexes_are_sound(data_dir)
    assert_snapshots_match(data_dir, read)
    assert_offsets_topic_decodes(data_dir, offset)


def damage_what_was_not_synced(data_dir: Path) -> None:
    """What a crash may leave: half a batch at the end of one log, an index of another that was never written."""
    torn = log_files(data_dir, ".log")
    active = {path.parent.name: path for path in torn}
    whole = active["dump-plain-0"].read_bytes()
    with active["dump-plain-0"].open("ab") as file:
        file.write(whole[: len(whole) // 3])
    active["dump-zstd-0"].with_suffix(".index").write_bytes(b"")
    active["dump-lz4-0"].with_suffix(".timeindex").unlink()


def test_kafka_reads_what_a_clean_stop_leaves(make_cluster: Any) -> None:
    cluster = make_cluster()
    workload = Workload(cluster)
    workload.create_topics()
    workload.produce()
    workload.commit(7)
    assert cluster.stop() == 0
    assert_all_is_sound(cluster.data_dir, workload, 7)


def test_kafka_reads_what_recovery_from_a_crash_leaves(make_cluster: Any) -> None:
    cluster = make_cluster()
    workload = Workload(cluster)
    workload.create_topics()
    workload.produce()
    workload.commit(7)
    cluster.kill_supervisor()
    assert not list(cluster.data_dir.glob("node-1/.kafka_cleanshutdown"))
    damage_what_was_not_synced(cluster.data_dir)
    cluster.start()
    workload.produce()
    workload.commit(9)
    assert cluster.stop() == 0
    assert_all_is_sound(cluster.data_dir, workload, 9)
