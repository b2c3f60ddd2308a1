"""Transactions of librdkafka and aiokafka: committed, aborted, fenced, with offsets, and while services are killed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

import aiokafka_client as aio
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka_client import (
    WAIT_SECONDS,
    consumer_of,
    make_topic,
    poll_records,
    produce,
    producer_of,
)
from raw_client import RawConnection, Topic
from raw_transactions import END_TXN, RawTransaction

from barnabas.kernel.errors import ErrorCode

pytestmark = pytest.mark.integration

COMMITTED: Final = {"isolation_level": "read_committed"}
UNCOMMITTED: Final = {"isolation_level": "read_uncommitted"}


def transactional(cluster: Any, name: str, **settings: Any) -> Producer:
    """A producer with the transactional id `name`, ready to begin."""
    producer = producer_of(cluster, transactional_id=name, **settings)
    producer.init_transactions(WAIT_SECONDS)
    return producer


def read_to_end(cluster: Any, topic: str, partitions: int = 1, **settings: Any) -> list[str]:
    """All values that a reader under these settings is given, partition by partition."""
    values: list[str] = []
    with consumer_of(cluster, f"reader-{uuid.uuid4()}", enable_partition_eof=True, **settings) as consumer:
        for partition in range(partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            deadline = time.monotonic() + WAIT_SECONDS
            while True:
                assert time.monotonic() < deadline, f"no end of partition {partition}, after {values}"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error() is not None:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    break
                values.append(message.value().decode())
    return values


def test_what_is_committed_is_read_and_what_is_aborted_is_not(cluster: Any) -> None:
    topic = make_topic(cluster, "txn-ends", 2)
    producer = transactional(cluster, "txn-ends")
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, f"{number} in {partition}", partition=partition)
        if number % 2:
            producer.flush(WAIT_SECONDS)
            producer.abort_transaction(WAIT_SECONDS)
        else:
            producer.commit_transaction(WAIT_SECONDS)
    committed = [f"{number} in {partition}" for partition in (0, 1) for number in (0, 2, 4)]
    assert read_to_end(cluster, topic, 2, **COMMITTED) == committed
    assert len(read_to_end(cluster, topic, 2, **UNCOMMITTED)) == 12


def test_readers_of_committed_records_wait_for_the_end_of_a_transaction(cluster: Any) -> None:
    topic = make_topic(cluster, "txn-open")
    producer = transactional(cluster, "txn-open")
    producer.begin_transaction()
    producer.produce(topic, "first of it")
    assert producer.flush(WAIT_SECONDS) == 0
    produce(cluster, topic, 2)
    assert read_to_end(cluster, topic, **COMMITTED) == []
    assert read_to_end(cluster, topic, **UNCOMMITTED) == ["first of it", "0", "1"]
    with consumer_of(cluster, "txn-open-readers", **COMMITTED) as waiting:
        waiting.assign([TopicPartition(topic, 0, 0)])
        assert waiting.poll(0.5) is None
        producer.commit_transaction(WAIT_SECONDS)
        assert [message.value() for message in poll_records(waiting, 3)] == [b"first of it", b"0", b"1"]


def test_a_second_instance_fences_the_first(cluster: Any) -> None:
    topic = make_topic(cluster, "txn-fenced")
    first = transactional(cluster, "txn-fenced")
    first.begin_transaction()
    first.produce(topic, "of the first")
    assert first.flush(WAIT_SECONDS) == 0
    second = transactional(cluster, "txn-fenced")
    second.begin_transaction()
    second.produce(topic, "of the second")
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(WAIT_SECONDS)
    assert raised.value.args[0].fatal(), raised.value
    second.commit_transaction(WAIT_SECONDS)
    assert read_to_end(cluster, topic, **COMMITTED) == ["of the second"]


def test_offsets_count_with_the_transaction(cluster: Any) -> None:
    source, target = make_topic(cluster, "txn-source"), make_topic(cluster, "txn-target")
    produce(cluster, source, 4)
    producer = transactional(cluster, "txn-offsets")
    with consumer_of(cluster, "txn-offsets", enable_auto_commit=False, **COMMITTED) as consumer:
        consumer.subscribe([source])
        for commits, expected in ((False, -1001), (True, 2)):
            (record, _) = poll_records(consumer, 2)
            assert record.offset() == 0
            producer.begin_transaction()
            producer.produce(target, record.value())
            producer.send_offsets_to_transaction(
                [TopicPartition(source, 0, 2)], consumer.consumer_group_metadata(), WAIT_SECONDS
            )
            if commits:
                producer.commit_transaction(WAIT_SECONDS)
            else:
                producer.abort_transaction(WAIT_SECONDS)
                consumer.seek(TopicPartition(source, 0, 0))
            # The end is answered before the group's coordinator has heard of it; a reader of committed records waits.
            (found,) = consumer.committed([TopicPartition(source, 0)], WAIT_SECONDS)
            assert found.offset == expected
    assert read_to_end(cluster, target, **COMMITTED) == ["0"]


def test_a_transaction_that_takes_too_long_is_aborted(cluster: Any) -> None:
    topic = Topic(cluster.port)
    with RawConnection(cluster.port) as connection:
        slow = RawTransaction(connection, f"slow-{topic.name}", timeout_ms=1_000)
        assert slow.produce(topic, b"late") == 0
        before = slow.named
        slow.wait_for("CompleteAbort")
        answer = connection.ask(END_TXN, 5, {**before, "committed": True})
        assert answer.error_code == ErrorCode.invalid_txn_state
        assert slow.produce(topic, b"later") == ErrorCode.invalid_producer_epoch
    assert read_to_end(cluster, topic.name, **COMMITTED) == []


async def test_aiokafka_commits_and_aborts(cluster: Any) -> None:
    topic = await aio.make_topic(cluster, "aio-txn")
    async with aio.producer_of(cluster, transactional_id="aio-txn") as producer:
        for number in range(4):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"%d" % number)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        with contextlib.suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send(topic, b"never")
                raise ZeroDivisionError
        async with producer.transaction():
            await producer.send(topic, b"last")
    async with aio.consumer_of(cluster, topic, isolation_level="read_committed") as consumer:
        assert [record.value for record in await aio.read(consumer, 3)] == [b"0", b"2", b"last"]


async def test_aiokafka_is_fenced_by_its_second_instance(cluster: Any) -> None:
    topic = await aio.make_topic(cluster, "aio-fenced")
    first = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="aio-fenced")
    await first.start()
    try:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"of the first")
        async with aio.producer_of(cluster, transactional_id="aio-fenced") as second:
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
            async with second.transaction():
                await second.send(topic, b"of the second")
    finally:
        with contextlib.suppress(ProducerFenced):
            await first.stop()
    async with aio.consumer_of(cluster, topic, isolation_level="read_committed") as consumer:
        assert [record.value for record in await aio.read(consumer, 1)] == [b"of the second"]


async def test_aiokafka_reads_processes_and_writes(cluster: Any) -> None:
    source, target = await aio.make_topic(cluster, "aio-source"), await aio.make_topic(cluster, "aio-target")
    await aio.produce(cluster, source, 20)
    partition = AioTopicPartition(source, 0)
    settings = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    async with (
        aio.consumer_of(cluster, source, group="aio-loop", max_poll_records=3, **settings) as consumer,
        aio.producer_of(cluster, transactional_id="aio-loop") as producer,
    ):
        await copy_all(consumer, producer, partition, target, 20)
        async with asyncio.timeout(
            WAIT_SECONDS
        ):  # it asks without waiting for transactions to end everywhere
            while await consumer.committed(partition) != 20:
                await asyncio.sleep(aio.POLL_SECONDS)
    async with aio.consumer_of(cluster, target, isolation_level="read_committed") as consumer:
        assert [record.value for record in await aio.read(consumer, 20)] == [b"%d" % n for n in range(20)]


async def copy_all(
    consumer: AIOKafkaConsumer,
    producer: AIOKafkaProducer,
    partition: AioTopicPartition,
    target: str,
    count: int,
) -> None:
    """Each lot in a transaction with its offset; every third one is aborted, and done again."""
    done, transactions = 0, 0
    async with asyncio.timeout(WAIT_SECONDS):
        while done < count:
            found = await consumer.getmany(partition, timeout_ms=1_000)
            records = found.get(partition, [])
            if not records:
                continue
            transactions += 1
            await producer.begin_transaction()
            for record in records:
                await producer.send(target, record.value)
            following = records[-1].offset + 1
            await producer.send_offsets_to_transaction({partition: following}, "aio-loop")
            if transactions % 3 == 0:
                await producer.abort_transaction()
                consumer.seek(partition, done)
            else:
                await producer.commit_transaction()
                done = following


# While services are killed

PARTITIONS: Final = 3
RECORDS: Final = 3_000
SERVICES: Final = [
    ((), "broker-1"),
    *((("--separate",), name) for name in ("gateway-1", "storage-1", "coordinator-1", "controller")),
]
"""Every kind of process, with the flags of a cluster that has it."""


class Copying:
    """Owns a thread that copies a topic, record by record and offset by offset in transactions, whatever fails.

    What may be done again is; what is aborted or fenced is begun anew, by a new producer and consumer.
    """

    def __init__(self, bootstrap: str, source: str, target: str, count: int) -> None:
        self._bootstrap, self._source, self._target = bootstrap, source, target
        self._count = count
        self._thread = threading.Thread(target=self._run)
        self._deadline = time.monotonic() + 3 * WAIT_SECONDS
        self.committed = 0
        self.failures: list[str] = []

    def __enter__(self) -> Copying:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def wait_for(self, count: int) -> None:
        """Return once so many records are copied."""
        while self.committed < count:
            assert self._thread.is_alive(), f"it ended at {self.committed}: {self.failures}"
            time.sleep(0.01)

    def _run(self) -> None:
        while self.committed < self._count and time.monotonic() < self._deadline:
            try:
                self._copy()
            except KafkaException as error:
                self.failures.append(str(error))

    def _copy(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            # Where all brokers are away librdkafka (2.16) throws them away and begins anew. Its call that sends offsets
            # then waits for ever for the group's coordinator of before, and asks nobody for the one of now (its issue
            # 5511). It does so where Apache Kafka's only broker is started again, too.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        producer = Producer({**settings, "transactional.id": "copying", "transaction.timeout.ms": 20_000})
        consumer = Consumer(
            {
                **settings,
                "group.id": "copying",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        try:
            producer.init_transactions(WAIT_SECONDS)
            consumer.subscribe([self._source])
            while self.committed < self._count and time.monotonic() < self._deadline:
                records = [each for each in consumer.consume(100, 0.5) if each.error() is None]
                if records:
                    self._copy_lot(producer, consumer, records)
        finally:
            consumer.close()

    def _copy_lot(self, producer: Producer, consumer: Consumer, records: list[Any]) -> None:
        producer.begin_transaction()
        for record in records:
            producer.produce(self._target, record.value(), partition=record.partition())
        ends = {record.partition(): record.offset() + 1 for record in records}
        offsets = [TopicPartition(self._source, partition, end) for partition, end in ends.items()]
        again_until = time.monotonic() + WAIT_SECONDS
        again(
            lambda: producer.send_offsets_to_transaction(
                offsets, consumer.consumer_group_metadata(), WAIT_SECONDS
            ),
            again_until,
        )
        again(lambda: producer.commit_transaction(WAIT_SECONDS), again_until)
        self.committed += len(records)


def again(call: Callable[[], Any], until: float) -> None:
    """Call it again while the client says that this may help."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise


@contextlib.contextmanager
def filled(cluster: Any) -> Iterator[tuple[str, str]]:
    """(a topic with records, one to copy them to)."""
    source, target = make_topic(cluster, "source", PARTITIONS), make_topic(cluster, "target", PARTITIONS)
    producer = producer_of(cluster)
    for number in range(RECORDS):
        producer.produce(source, str(number), partition=number % PARTITIONS)
    assert producer.flush(WAIT_SECONDS) == 0
    yield source, target


@pytest.mark.parametrize(("flags", "service"), SERVICES, ids=[name for _, name in SERVICES])
def test_each_record_is_copied_once_whatever_is_killed(
    make_cluster: Callable[..., Any], flags: tuple[str, ...], service: str
) -> None:
    cluster = make_cluster(flags=flags)
    with filled(cluster) as (source, target), Copying(cluster.bootstrap, source, target, RECORDS) as copying:
        for at in (RECORDS // 6, RECORDS // 2):
            copying.wait_for(at)
            cluster.kill_and_wait(service)
    found = read_to_end(cluster, target, PARTITIONS, **COMMITTED)
    expected = [str(n) for partition in range(PARTITIONS) for n in range(partition, RECORDS, PARTITIONS)]
    assert found == expected, (len(found), copying.failures)
