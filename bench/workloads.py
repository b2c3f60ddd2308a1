"""The workloads, shaped and named after the OpenMessaging Benchmark; each returns numbers, none judges."""

from __future__ import annotations

import asyncio
import datetime
import io
import os
import struct
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CLIENT_TIMEOUT_SECONDS = 120


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def produce(bootstrap: str, topic: str, record_bytes: int, total_bytes: int) -> float:
    """MB/s that librdkafka delivers with acks=all, from the first record to the last acknowledgement."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    failures: list[Any] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    payload = os.urandom(record_bytes)
    count = total_bytes // record_bytes
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, payload, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    remaining = producer.flush(CLIENT_TIMEOUT_SECONDS)
    seconds = time.perf_counter() - started
    assert not failures, f"{len(failures)} records failed, the first with {failures[0]}"
    assert remaining == 0, f"{remaining} records were not delivered"
    return count * record_bytes / seconds / 1e6


def consume(bootstrap: str, topic: str, partitions: int, record_bytes: int, total_bytes: int) -> float:
    """MB/s that librdkafka reads, from the first poll to the last record."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4_000_000,
            "queued.max.messages.kbytes": 200_000,
        }
    )
    count = total_bytes // record_bytes
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    started, seen = time.perf_counter(), 0
    while seen < count:
        # Never ask for more than there is: the call waits its whole timeout for what will not come.
        messages = consumer.consume(min(10_000, count - seen), timeout=10)
        assert messages, f"only {seen} of {count} records came"
        assert messages[0].error() is None, messages[0].error()
        seen += len(messages)
    seconds = time.perf_counter() - started
    consumer.close()
    return count * record_bytes / seconds / 1e6


def produce_request(topic: str, record_bytes: int) -> bytes:
    """A Produce v9 request of one record, as a frame."""
    from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
    from kio.serial import entity_writer
    from kio.static.primitive import i32Timedelta

    from barnabas.records.record import encode_batch

    batch = encode_batch([(int(time.time() * 1000), None, os.urandom(record_bytes), ())])
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=i32Timedelta.parse(datetime.timedelta(seconds=30)),
        topic_data=(
            TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=batch),)),
        ),
    )
    buffer = io.BytesIO()
    entity_writer(ProduceRequest)(buffer, request)
    header = struct.pack(">hhih", 0, 9, 1, 5) + b"bench" + b"\0"
    body = header + buffer.getvalue()
    return struct.pack(">i", len(body)) + body


class _RequestLoop(asyncio.Protocol):
    """Sends one request after another on one connection, each after the answer to the one before."""

    def __init__(self, frame: bytes, on_answer: Callable[[float], bool]) -> None:
        self._frame = frame
        self._on_answer = on_answer
        self._buffer = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < 4 or len(self._buffer) - 4 < int.from_bytes(self._buffer[:4], "big"):
            return
        # After the topic's name come the partition count, the index and the error code; see the Produce v9 schema.
        name_bytes = self._buffer[10] - 1
        error = int.from_bytes(self._buffer[16 + name_bytes : 18 + name_bytes], "big", signed=True)
        assert error == 0, f"produce failed with error code {error}"
        self._buffer = b""
        if self._on_answer(time.perf_counter() - self._sent_at):
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def request_rate(host: str, port: int, topic: str, connections: int, seconds: float) -> dict[str, float]:
    """Produce requests/s and latency with `connections` connections and one 100-byte request in flight each."""
    import uvloop

    async def run() -> dict[str, float]:
        loop = asyncio.get_running_loop()
        frame = produce_request(topic, 100)
        latencies: list[float] = []
        end = time.perf_counter() + seconds

        def on_answer(latency: float) -> bool:
            latencies.append(latency)
            return time.perf_counter() < end

        started = time.perf_counter()
        protocols = []
        for _ in range(connections):
            _, protocol = await loop.create_connection(lambda: _RequestLoop(frame, on_answer), host, port)
            protocols.append(protocol)
        await asyncio.gather(*(protocol.done for protocol in protocols))
        elapsed = time.perf_counter() - started
        latencies.sort()
        return {
            "requests_per_second": len(latencies) / elapsed,
            "p50_ms": latencies[len(latencies) // 2] * 1000,
            "p99_ms": latencies[int(len(latencies) * 0.99)] * 1000,
        }

    return uvloop.run(run())
