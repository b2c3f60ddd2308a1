"""Transactions by librdkafka: as many as its producers commit; and a worker that copies, with its offsets in them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from clients.requests import percentiles_ms

RECORD_BYTES: Final = 100
RECORDS_A_TRANSACTION: Final = 10
WARM_UP_SECONDS: Final = 1.0
CALL_SECONDS_MAX: Final = 30.0


def transactions(
    topic: str, settings: Mapping[str, object], partitions: int, producers: int, seconds: float
) -> dict[str, float]:
    """Each producer commits one transaction of ten records after the other, over all partitions: how many in
    `seconds` after the first second, and percentiles (ms) from begin to committed.
    """
    from confluent_kafka import Producer

    took: list[float] = []
    failures: list[BaseException] = []
    all_ready = threading.Barrier(producers)
    value = bytes(RECORD_BYTES)

    def commit_many(number: int) -> None:
        try:
            producer = Producer({**settings, "transactional.id": f"{topic}-{number}"})
            producer.init_transactions(CALL_SECONDS_MAX)
            all_ready.wait(CALL_SECONDS_MAX)
            counts_from = time.perf_counter() + WARM_UP_SECONDS
            while (began := time.perf_counter()) < counts_from + seconds:
                producer.begin_transaction()
                for record in range(RECORDS_A_TRANSACTION):
                    producer.produce(topic, value, partition=record % partitions)
                producer.commit_transaction(CALL_SECONDS_MAX)
                if began >= counts_from:
                    took.append(time.perf_counter() - began)
        except BaseException as error:
            failures.append(error)
            all_ready.abort()

    threads = [threading.Thread(target=commit_many, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, f"{len(failures)} of {producers} producers failed, the first with {failures[0]!r}"
    return {"transactions": len(took), "seconds": seconds, **percentiles_ms(took)}


def copy_in_transactions(
    source: str,
    target: str,
    consumer_settings: Mapping[str, object],
    producer_settings: Mapping[str, object],
    records: int,
    announce: Any,
) -> dict[str, float]:
    """Copy `records` records, all that one poll brings in one transaction with their offsets; how many transactions.

    Calls `announce()` once it has its partitions.
    """
    from confluent_kafka import Consumer, Producer

    consumer = Consumer({**consumer_settings, "isolation.level": "read_committed"})
    producer = Producer({**producer_settings, "transactional.id": target})
    producer.init_transactions(CALL_SECONDS_MAX)
    consumer.subscribe([source])
    while not consumer.assignment():
        consumer.poll(0.1)
    announce()
    copied = committed = 0
    while copied < records:
        messages = consumer.consume(1, CALL_SECONDS_MAX)
        messages += consumer.consume(500, 0)
        assert messages, f"only {copied} of {records} records came"
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None, message.error()
            producer.produce(target, message.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), CALL_SECONDS_MAX
        )
        producer.commit_transaction(CALL_SECONDS_MAX)
        copied += len(messages)
        committed += 1
    consumer.close()
    return {"transactions": committed, "records": copied}
