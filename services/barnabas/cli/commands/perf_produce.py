"""The producing side of `barnabas perf`: paced sending, latency from `produce` to the acknowledgement."""

from __future__ import annotations

import json
import random
import string
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from barnabas.cli.kafka import errors
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.escapes import unescape
from barnabas.cli.text.output import OutputFormat, show_document
from barnabas.cli.text.progress import progress_bar
from barnabas.cli.text.statistics import Window, final_line, progress_line

REPORT_SECONDS: Final = 5.0
POLL_EVERY: Final = 500
"""Records between two looks at what was acknowledged, when sending is not paced."""

PAYLOADS: Final = 64
"""Different random values, so that compression has something to do and making them costs nothing."""


def payloads_of(record_size: int | None, path: Path | None, delimiter: str) -> list[bytes]:
    """Values to send in turn: random letters of a size, or those in a file. Raises Refused."""
    chance = random.Random(0)  # the same run each time
    if path is None:
        assert record_size is not None
        letters = string.ascii_uppercase.encode()
        return [bytes(chance.choices(letters, k=record_size)) for _ in range(PAYLOADS)]
    values = [value for value in path.read_bytes().split(unescape(delimiter)) if value]
    if not values:
        raise usage(f"{path} has no payload in it")
    chance.shuffle(values)
    return values


def run(
    connection: Connection,
    topic: str,
    payloads: Sequence[bytes],
    count: int,
    rate: float,
    output: OutputFormat,
    *,
    shows_metrics: bool,
) -> None:
    """Send `count` records and print the result. Raises Refused when some were not delivered."""
    bench = _Bench(connection, topic, shows_reports=output is OutputFormat.table)
    with progress_bar("sending", count) as advance:
        bench.send(payloads, count, rate, advance)
    now = time.monotonic()
    summary = bench.total.summary(now)
    if output is OutputFormat.table:
        print(final_line(summary))  # noqa: T201
    else:
        show_document({**summary, "failed": bench.failed, "metrics": bench.metrics(shows_metrics)}, output)
    if shows_metrics and output is OutputFormat.table:
        print(json.dumps(bench.metrics(True), indent=2))  # noqa: T201
    if bench.failed:
        raise Refused(f"{bench.failed} of {count} records were not delivered: {bench.reason}")


class _Bench:
    """Owns the producer and what was measured."""

    def __init__(self, connection: Connection, topic: str, *, shows_reports: bool) -> None:
        self.failed = 0
        self.reason = ""
        self._topic = topic
        self._shows_reports = shows_reports and not sys.stderr.isatty()
        self._statistics: dict[str, Any] = {}
        self._producer: Producer = connection.producer(
            {
                "enable.idempotence": True,
                "queue.buffering.max.kbytes": 65_536,
                "statistics.interval.ms": 1000,
                **connection.properties,
                "on_delivery": self._on_delivery,
                "stats_cb": self._on_statistics,
                "error_cb": lambda error: None,
            }
        )
        connection.cluster(self._producer, topic)  # the first record would wait for the metadata
        now = time.monotonic()
        self.total = Window(now)
        self._window = Window(now)

    def send(self, payloads: Sequence[bytes], count: int, rate: float, advance: Any) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        started = time.monotonic()
        poll_every = POLL_EVERY if rate <= 0 else 1
        for number in range(count):
            value = payloads[number % len(payloads)]
            while True:
                try:
                    produce(self._topic, value)
                    break
                except BufferError:
                    poll(0.01)
            if number % poll_every == 0:
                poll(0)
                self._report()
                advance(poll_every)
            if rate > 0:
                while (ahead := (number + 1) / rate - (time.monotonic() - started)) > 0:
                    poll(min(ahead, 0.1))
        while self._producer.flush(REPORT_SECONDS):
            self._report()

    def metrics(self, is_wanted: bool) -> dict[str, Any]:
        """The figures of librdkafka's statistics that say something about the run as a whole."""
        if not is_wanted:
            return {}
        return {name: value for name, value in self._statistics.items() if isinstance(value, int | float)}

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._window.started >= REPORT_SECONDS:
            if self._shows_reports:
                print(progress_line(self._window.summary(now)), flush=True)  # noqa: T201
            self._window = Window(now)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed += 1
            self.reason = self.reason or errors.describe_with_advice(error)
            return
        size, latency = len(message), message.latency() * 1000
        self.total.add(size, latency)
        self._window.add(size, latency)

    def _on_statistics(self, text: str) -> None:
        self._statistics = json.loads(text)
