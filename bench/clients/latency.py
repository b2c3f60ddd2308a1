"""End to end latency: a producer at a fixed rate in one process, a consumer in another.

Each record carries the moment at which it was due, on the clock that all processes of a machine share, so that a
producer that falls behind shows as latency and is not forgiven.
"""

from __future__ import annotations

import gc
import struct
import time
from collections.abc import Mapping
from typing import Any, Final

from clients.requests import percentiles_ms

TICK_SECONDS: Final = 0.001
"""Records that are due within a tick leave together: at 20,000 a second that is twenty."""
SILENCE_SECONDS_MAX: Final = 10.0

_DUE_NS: Final = struct.Struct(">q")


def produce_at_rate(
    topic: str, settings: Mapping[str, object], record_bytes: int, per_second: int, seconds: float
) -> dict[str, float]:
    """Send `per_second` records a second for `seconds`; how many, and how far behind the last one left (seconds)."""
    from confluent_kafka import Producer

    producer = Producer(dict(settings))
    producer.list_topics(topic, timeout=10)
    gc.disable()
    failures: list[Any] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    padding = bytes(record_bytes - _DUE_NS.size)
    per_tick, ticks = max(1, round(per_second * TICK_SECONDS)), round(seconds / TICK_SECONDS)
    started_ns = time.monotonic_ns()
    for tick in range(ticks):
        due_ns = started_ns + round(tick * TICK_SECONDS * 1e9)
        while (behind_ns := time.monotonic_ns() - due_ns) < 0:
            time.sleep(-behind_ns / 1e9)
        for _ in range(per_tick):
            producer.produce(topic, _DUE_NS.pack(due_ns) + padding, on_delivery=on_delivery)
        producer.poll(0)
    left = producer.flush(30)
    assert not failures, f"{len(failures)} records failed, the first with {failures[0]}"
    assert not left, f"{left} records were not delivered"
    return {"records": per_tick * ticks, "behind_seconds": behind_ns / 1e9}


def consume_latencies(
    topic: str,
    settings: Mapping[str, object],
    partitions: int,
    records: int,
    warm_up_records: int,
    announce: Any,
) -> dict[str, float]:
    """Percentiles (ms) of due time to poll, without the first `warm_up_records`; calls `announce()` once it reads."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**settings, "group.id": "bench-latency"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    consumer.poll(1.0)  # the assignment takes effect, the connections open
    announce()
    gc.disable()
    latencies: list[float] = []
    clock, unpack = time.monotonic_ns, _DUE_NS.unpack_from
    while len(latencies) < records:
        message = consumer.poll(SILENCE_SECONDS_MAX)
        assert message is not None, f"only {len(latencies)} of {records} records came"
        assert message.error() is None, message.error()
        latencies.append((clock() - unpack(message.value())[0]) / 1e9)
    consumer.close()
    return percentiles_ms(latencies[warm_up_records:])
