"""The flights table into a topic: JSON, keyed by carrier, every record acknowledged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.pipelines.config import PipelineConfig, PipelineError
from barnabas.pipelines.dataset import FLIGHTS_TOTAL, Flight

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from rich.console import Console

PROGRESS_EVERY = 2_000
"""Records between two looks at what was acknowledged (and two moves of the bar)."""


class Deliveries:
    """Owns the count of acknowledged records and the first failure; librdkafka calls `on_delivery`."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.failure: str | None = None

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """One record was acknowledged, or given up after `delivery.timeout.ms`."""
        if error is None:
            self.acknowledged += 1
        elif self.failure is None:
            self.failure = f"{message.topic()} [{message.partition()}]: {error.str()}"

    def check(self) -> None:
        """Raises `PipelineError` once a record was given up."""
        if self.failure is not None:
            raise PipelineError(f"a flight was not accepted: {self.failure}")


def encode(flight: Flight) -> tuple[str, bytes]:
    """Key and value of a flight's record: the carrier's code, and all columns as compact JSON."""
    return str(flight["carrier"]), json.dumps(flight, separators=(",", ":")).encode()


def produce_flights(config: PipelineConfig, topic: str, flights: Iterable[Flight], console: Console) -> int:
    """Write `flights` to `topic` and return how many the cluster acknowledged.

    Raises `PipelineError` if a record was given up, or if not exactly the table's rows were acknowledged.
    """
    from confluent_kafka import Producer
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    producer = Producer(
        {
            "bootstrap.servers": config.bootstrap,
            "enable.idempotence": True,  # a retried batch is stored once, and stays in order
            "compression.type": "zstd",
            "linger.ms": 50,
            "batch.size": 262_144,
            "partitioner": "murmur2_random",  # a carrier's partition is the one Java clients choose
            "delivery.timeout.ms": 120_000,
        }
    )
    deliveries = Deliveries()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(f"flights to topic {topic}", total=FLIGHTS_TOTAL)
        for number, flight in enumerate(flights):
            key, value = encode(flight)
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=deliveries.on_delivery)
                    break
                except BufferError:  # the queue is full: let acknowledgements make room
                    producer.poll(0.1)
                    deliveries.check()
            if number % PROGRESS_EVERY == 0:
                producer.poll(0)
                deliveries.check()
                progress.update(bar, completed=deliveries.acknowledged)
        while producer.flush(1.0):
            progress.update(bar, completed=deliveries.acknowledged)
        progress.update(bar, completed=deliveries.acknowledged)
    deliveries.check()
    if deliveries.acknowledged != FLIGHTS_TOTAL:
        raise PipelineError(f"{deliveries.acknowledged:,} flights acknowledged, not {FLIGHTS_TOTAL:,}")
    return deliveries.acknowledged
