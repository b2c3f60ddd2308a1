"""Spark's Kafka source and sink (PySpark 4.0, kafka-clients 3.9): batches and streams, read and written.

One Spark for all tests, in this process: it takes seconds to start.
"""

from __future__ import annotations

import gc
import json
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka_client import WAIT_SECONDS, admin_of, make_topic, produce, producer_of

from barnabas.pipelines.config import PipelineConfig
from barnabas.pipelines.delays_job import start_spark

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / "build" / "jars" / "spark-kafka"

QUERY_SECONDS_MAX = 120

pytestmark = [
    pytest.mark.integration,
    # py4j leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def spark(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the Kafka jars; its JVM ends with the last of these tests."""
    subprocess.run([ROOT / "deploy/jars/fetch.sh", "spark-kafka", JARS], check=True, timeout=200)
    session = start_spark(
        PipelineConfig(
            bootstrap=cluster.bootstrap, jars=JARS, output=tmp_path_factory.mktemp("spark"), threads=2
        )
    )
    gateway = session.sparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(WAIT_SECONDS)
        type(session.sparkContext)._gateway = type(session.sparkContext)._jvm = None
        del session, gateway
        gc.collect()


def source(reader: Any, cluster: Any, **options: Any) -> Any:
    """`reader` (spark.read or spark.readStream) over Kafka with options."""
    return reader.format("kafka").options(**{"kafka.bootstrap.servers": cluster.bootstrap, **options}).load()


def read(spark: Any, cluster: Any, **options: Any) -> list[Any]:
    return sorted(
        source(spark.read, cluster, **options).collect(),
        key=lambda row: (row.topic, row.partition, row.offset),
    )


def numbers(rows: list[Any]) -> list[int]:
    return [int(row.value) for row in rows]


def stream(frame: Any, folder: Path, name: str, **trigger: Any) -> Any:
    """Start a query that appends the stream's records to Parquet; it ends when it has read all, or never."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / name))
    writer = writer.option("checkpointLocation", str(folder / f"{name}-checkpoint"))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def finish(query: Any) -> int:
    """Wait for the query's end; how many rows it read."""
    assert query.awaitTermination(QUERY_SECONDS_MAX), "the query goes on"
    return sum(progress.numInputRows for progress in query.recentProgress)


def test_a_batch_is_written_and_read_with_all_its_columns(spark: Any, cluster: Any) -> None:
    topic = make_topic(cluster, "spark-columns", 3)
    rows = spark.sql(
        f"""select '{topic}' as topic, cast(id as string) as value, id % 3 as number,
                   case when id % 2 = 0 then concat('key-', id) end as key, cast(id % 3 as int) as partition,
                   array(struct('trace' as key, cast('a' as binary) as value),
                         struct('trace' as key, cast('b' as binary) as value),
                         struct('null' as key, cast(null as binary) as value)) as headers
            from range(30)"""
    ).drop("number")
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", cluster.bootstrap)
    writer.option("kafka.compression.type", "zstd").option("includeHeaders", "true").save()
    got = read(spark, cluster, subscribe=topic, includeHeaders="true")
    assert sorted(numbers(got)) == list(range(30))
    for row in got:
        number = int(row.value)
        assert row.partition == number % 3
        assert row.key == (bytearray(f"key-{number}", "ascii") if number % 2 == 0 else None)
        assert (row.topic, row.timestampType) == (topic, 0)
        assert [(header.key, header.value) for header in row.headers] == [
            ("trace", b"a"),
            ("trace", b"b"),
            ("null", None),
        ]
        assert abs(row.timestamp.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds() < 3600


def test_a_batch_reads_by_subscription_pattern_and_assignment(spark: Any, cluster: Any) -> None:
    for name, partitions in (("spark-pattern-a", 2), ("spark-pattern-b", 1), ("spark-not-pattern", 1)):
        make_topic(cluster, name, partitions)
        for partition in range(partitions):
            produce(cluster, name, 3, partition=partition)
    by_names = read(spark, cluster, subscribe="spark-pattern-a,spark-pattern-b")
    assert [(row.topic, row.partition, row.offset) for row in by_names] == [
        (topic, partition, offset)
        for topic, partition in (("spark-pattern-a", 0), ("spark-pattern-a", 1), ("spark-pattern-b", 0))
        for offset in range(3)
    ]
    assert read(spark, cluster, subscribePattern="spark-pattern-.*") == by_names
    assigned = read(spark, cluster, assign='{"spark-pattern-a": [1]}')
    assert [(row.partition, row.offset) for row in assigned] == [(1, 0), (1, 1), (1, 2)]


def test_a_batch_reads_between_offsets(spark: Any, cluster: Any) -> None:
    topic = make_topic(cluster, "spark-offsets", 2)
    for partition in (0, 1):
        produce(cluster, topic, 10, partition=partition)
    got = read(
        spark,
        cluster,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 4, "1": -2}}),  # -2 is the earliest, -1 the latest
        endingOffsets=json.dumps({topic: {"0": -1, "1": 3}}),
        minPartitions="5",  # more tasks than partitions: each partition is read in pieces
    )
    assert [(row.partition, row.offset) for row in got] == [(0, n) for n in range(4, 10)] + [
        (1, n) for n in range(3)
    ]
    frame = source(spark.read, cluster, subscribe=topic, minPartitions="5")
    assert frame.rdd.getNumPartitions() >= 5
    assert frame.count() == 20


def test_a_batch_reads_between_times(spark: Any, cluster: Any) -> None:
    topic = make_topic(cluster, "spark-times", 2)
    start = 1_700_000_000_000
    producer = producer_of(cluster, compression_type="lz4", linger_ms=50)
    for number in range(40):
        producer.produce(topic, str(number), partition=number % 2, timestamp=start + number * 1000)
    assert producer.flush(WAIT_SECONDS) == 0
    whole = read(
        spark,
        cluster,
        subscribe=topic,
        startingTimestamp=str(start + 9_500),
        endingTimestamp=str(start + 20_000),
    )
    assert sorted(numbers(whole)) == list(range(10, 20))
    assert {row.timestamp.replace(tzinfo=UTC) for row in whole} == {
        datetime.fromtimestamp((start + number * 1000) / 1000, UTC) for number in range(10, 20)
    }
    each = read(
        spark,
        cluster,
        subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: {"0": start + 30_000, "1": start + 35_000}}),
        endingOffsetsByTimestamp=json.dumps({topic: {"0": start + 34_000, "1": start + 99_000}}),
    )
    assert sorted(numbers(each)) == [30, 32, 35, 37, 39]
    late = {"startingTimestamp": str(start + 99_000), "startingOffsetsByTimestampStrategy": "latest"}
    assert read(spark, cluster, subscribe=topic, **late) == []


def test_a_stream_goes_on_from_its_checkpoint(spark: Any, cluster: Any, tmp_path: Path) -> None:
    topic = make_topic(cluster, "spark-checkpoint", 2)
    for partition in (0, 1):
        produce(cluster, topic, 10, partition=partition)
    frame = source(
        spark.readStream, cluster, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="6"
    )
    first = stream(frame, tmp_path, "out")
    assert finish(first) == 20
    assert len([p for p in first.recentProgress if p.numInputRows]) == 4  # 6 + 6 + 6 + 2
    produce(cluster, topic, 5, partition=1)
    assert finish(stream(frame, tmp_path, "out")) == 5
    assert finish(stream(frame, tmp_path, "out")) == 0
    got = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.partition, row.offset) for row in got) == [(0, n) for n in range(10)] + [
        (1, n) for n in range(15)
    ]


def test_a_stream_finds_topics_and_partitions_that_are_made_later(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    make_topic(cluster, "spark-later-a")
    produce(cluster, "spark-later-a", 3)
    frame = source(
        spark.readStream,
        cluster,
        subscribePattern="spark-later-.*",
        startingOffsets="earliest",
        **{"kafka.metadata.max.age.ms": "500"},
    )
    query = stream(frame, tmp_path, "out", processingTime="100 milliseconds")
    try:
        wait_for_rows(query, 3)
        make_topic(cluster, "spark-later-b", 2)
        produce(cluster, "spark-later-b", 4, partition=1)
        wait_for_rows(query, 7)
    finally:
        query.stop()
    got = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.topic, row.partition, row.offset) for row in got) == [
        ("spark-later-a", 0, offset) for offset in range(3)
    ] + [("spark-later-b", 1, offset) for offset in range(4)]


def wait_for_rows(query: Any, count: int) -> None:
    deadline = time.monotonic() + QUERY_SECONDS_MAX
    while sum(progress.numInputRows for progress in query.recentProgress) < count:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


def test_a_stream_is_written_to_topics_that_its_rows_name(spark: Any, cluster: Any, tmp_path: Path) -> None:
    origin = make_topic(cluster, "spark-origin", 2)
    for name in ("spark-even", "spark-odd"):
        make_topic(cluster, name)
    producer = producer_of(cluster)
    for number in range(20):
        producer.produce(origin, str(number), f"key-{number}", headers=[("number", str(number))])
    assert producer.flush(WAIT_SECONDS) == 0
    frame = source(
        spark.readStream, cluster, subscribe=origin, startingOffsets="earliest", includeHeaders="true"
    )
    named = frame.selectExpr(
        "if(cast(cast(value as string) as int) % 2 = 0, 'spark-even', 'spark-odd') as topic",
        "key",
        "value",
        "headers",
    )
    query = (
        named.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("includeHeaders", "true")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert finish(query) == 20
    for name, rest in (("spark-even", 0), ("spark-odd", 1)):
        got = read(spark, cluster, subscribe=name, includeHeaders="true")
        assert sorted(numbers(got)) == list(range(rest, 20, 2))
        for row in got:
            assert row.key.decode() == f"key-{int(row.value)}"
            assert [(header.key, int(header.value)) for header in row.headers] == [("number", int(row.value))]


def test_a_stream_starts_at_a_time(spark: Any, cluster: Any, tmp_path: Path) -> None:
    topic = make_topic(cluster, "spark-stream-times")
    for number in range(10):
        produce(cluster, topic, 1, timestamp=1_700_000_000_000 + number * 1000)
    frame = source(spark.readStream, cluster, subscribe=topic, startingTimestamp="1700000006000")
    assert finish(stream(frame, tmp_path, "out")) == 4


def test_a_stream_of_committed_records_is_given_no_others(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """It also gets past the markers: they have offsets, and no records at them."""
    topic = make_topic(cluster, "spark-committed", 2)
    frame = source(
        spark.readStream,
        cluster,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="20",
        **{"kafka.isolation.level": "read_committed"},
    )
    producer = producer_of(cluster, transactional_id="spark-committed")
    producer.init_transactions(WAIT_SECONDS)
    for number in range(6):
        transaction(producer, topic, number * 10, commits=number % 3 != 1)
    committed = [number * 10 + n for number in (0, 2, 3, 5) for n in range(4)]
    assert finish(stream(frame, tmp_path, "out")) == len(committed)
    # Each partition ends with what was aborted; then with what is still open, which nobody may see.
    transaction(producer, topic, 60, commits=True)
    transaction(producer, topic, 70, commits=False)
    producer.begin_transaction()
    producer.produce(topic, "80", partition=0)
    assert producer.flush(WAIT_SECONDS) == 0
    assert finish(stream(frame, tmp_path, "out")) == 4
    producer.commit_transaction(WAIT_SECONDS)
    assert finish(stream(frame, tmp_path, "out")) == 1
    got = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(numbers(got)) == [*committed, 60, 61, 62, 63, 80]
    everything = read(spark, cluster, subscribe=topic)
    assert len(everything) == len(got) + 3 * 4, "the aborted ones are there for who wants them"


def transaction(producer: Any, topic: str, first: int, *, commits: bool) -> None:
    """Four records in two partitions, written before the transaction ends either way."""
    producer.begin_transaction()
    for number in range(first, first + 4):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(WAIT_SECONDS) == 0
    if commits:
        producer.commit_transaction(WAIT_SECONDS)
    else:
        producer.abort_transaction(WAIT_SECONDS)


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_were_deleted_fail_a_stream_or_are_skipped(
    spark: Any, cluster: Any, tmp_path: Path, *, fails: bool
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = make_topic(cluster, f"spark-data-loss-{fails}")
    frame = source(
        spark.readStream,
        cluster,
        subscribe=topic,
        startingOffsets="earliest",
        failOnDataLoss=str(fails).lower(),
    )
    produce(cluster, topic, 4)
    assert finish(stream(frame, tmp_path, "out")) == 4
    produce(cluster, topic, 6)
    cut = TopicPartition(topic, 0, 7)
    admin = admin_of(cluster)
    assert admin.delete_records([cut])[cut].result(WAIT_SECONDS).low_watermark == 7
    query = stream(frame, tmp_path, "out")
    if fails:
        with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
            finish(query)
    else:
        finish(query)
        got = spark.read.parquet(str(tmp_path / "out")).collect()
        assert sorted(row.offset for row in got) == [0, 1, 2, 3, 7, 8, 9]
