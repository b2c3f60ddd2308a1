"""The producing side of `barnabas perf`: paced sending, latency from `produce` to the acknowledgement."""

from __future__ import annotations

import json
import random
import string
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from barnabas.cli.commands.perf_flags import PaceFlags
from barnabas.cli.kafka import errors
from barnabas.cli.kafka.connection import ANSWER_SECONDS_MAX, Connection
from barnabas.cli.kafka.producing import without_idempotence
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.escapes import unescape
from barnabas.cli.text.output import OutputFormat, show_document
from barnabas.cli.text.progress import progress_bar
from barnabas.cli.text.statistics import Window, final_line, progress_line

STATISTICS_MILLISECONDS: Final = 100
PRODUCER_ID_SECONDS_MAX: Final = 3.0
TRANSACTION_SECONDS: Final = 3.0
POLL_EVERY: Final = 500
"""Records between two looks at what was acknowledged, when sending is not paced."""

PAYLOADS: Final = 64
"""Different random values, so that compression has something to do and making them costs nothing."""


def payloads_of(record_size: int | None, path: Path | None, delimiter: str) -> list[bytes]:
    """Values to send in turn: random letters of a size, those in a file, or none to count. Raises Refused."""
    chance = random.Random(0)  # the same run each time
    if path is None:
        if record_size is None:
            return []
        letters = string.ascii_uppercase.encode()
        return [bytes(chance.choices(letters, k=record_size)) for _ in range(PAYLOADS)]
    values = [value for value in path.read_bytes().split(unescape(delimiter)) if value]
    if not values:
        raise usage(f"{path} has no payload in it")
    chance.shuffle(values)
    return values


def run(
    connection: Connection, topic: str, payloads: Sequence[bytes], pace: PaceFlags, output: OutputFormat
) -> None:
    """Send the records and print the result; no `payloads` stand for 0, 1, 2, ... Raises Refused when some failed."""
    bench = _Bench(connection, topic, pace, shows_reports=output is OutputFormat.table)
    with progress_bar("sending", pace.num_records) as advance:
        bench.send(payloads, advance)
    now = time.monotonic()
    summary = bench.total.summary(now)
    steady = bench.steady.summary(now) if bench.steady else None
    if output is OutputFormat.table:
        print(final_line(summary))  # noqa: T201
        if steady:
            print(final_line(steady).replace(" records sent", " steady state records sent", 1))  # noqa: T201
        if pace.print_metrics:
            print(json.dumps(bench.metrics(), indent=2))  # noqa: T201
    else:
        document = {
            **summary,
            "failed": bench.failed,
            "metrics": bench.metrics() if pace.print_metrics else {},
        }
        show_document({**document, "steadyState": steady} if steady else document, output)
    if bench.failed:
        raise Refused(f"{bench.failed} of {pace.num_records} records were not delivered: {bench.reason}")


class _Bench:
    """Owns the producer and what was measured."""

    def __init__(self, connection: Connection, topic: str, pace: PaceFlags, *, shows_reports: bool) -> None:
        self.failed = 0
        self.reason = ""
        self.steady: Window | None = None
        """What came after the warm-up; None while there is none."""
        self._topic = topic
        self._pace = pace
        self._shows_reports = shows_reports and not sys.stderr.isatty()
        self._statistics: dict[str, Any] = {}
        self._transaction_seconds = transaction_seconds(pace, connection.properties)
        settings: dict[str, Any] = {
            "enable.idempotence": True,
            "queue.buffering.max.kbytes": 65_536,
            "statistics.interval.ms": STATISTICS_MILLISECONDS,
            **without_idempotence(connection.properties),
            "on_delivery": self._on_delivery,
            "stats_cb": self._on_statistics,
            "error_cb": lambda error: None,
        }
        if self._transaction_seconds is not None:
            settings.setdefault("transactional.id", pace.transactional_id or f"barnabas-perf-{uuid.uuid4()}")
        if pace.transactional_id:
            settings["transactional.id"] = pace.transactional_id
        self._producer: Producer = connection.producer(settings)
        connection.cluster(self._producer, topic)  # the first record would wait for the metadata
        if self._transaction_seconds is not None:
            self._producer.init_transactions(ANSWER_SECONDS_MAX)
        elif str(settings["enable.idempotence"]).lower() == "true":
            self._wait_for_producer_id()
        now = time.monotonic()
        self.total = Window(now)
        self._window = Window(now)
        self._transaction_started = now

    def send(self, payloads: Sequence[bytes], advance: Any) -> None:
        """All the records, at the pace, until each is acknowledged or has failed."""
        rate = self._pace.throughput
        poll_every = POLL_EVERY if rate <= 0 else 1
        started = self._transaction_started = time.monotonic()
        if self._transaction_seconds is not None:
            self._producer.begin_transaction()
        for number in range(self._pace.num_records):
            self._send_one(payloads[number % len(payloads)] if payloads else b"%d" % number)
            if number % poll_every == 0:
                self._producer.poll(0)
                self._report()
                self._commit_when_due()
                advance(poll_every)
            if rate > 0:
                while (ahead := (number + 1) / rate - (time.monotonic() - started)) > 0:
                    self._producer.poll(min(ahead, 0.1))
        while self._producer.flush(self._pace.reporting_interval / 1000):
            self._report()
        if self._transaction_seconds is not None:
            self._producer.commit_transaction(ANSWER_SECONDS_MAX)

    def metrics(self) -> dict[str, Any]:
        """The figures of librdkafka's statistics that say something about the run as a whole."""
        return {name: value for name, value in self._statistics.items() if isinstance(value, int | float)}

    def _send_one(self, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value)
                return
            except BufferError:
                self._producer.poll(0.01)

    def _commit_when_due(self) -> None:
        limit = self._transaction_seconds
        if limit is not None and time.monotonic() - self._transaction_started >= limit:
            self._producer.commit_transaction(ANSWER_SECONDS_MAX)
            self._producer.begin_transaction()
            self._transaction_started = time.monotonic()

    def _wait_for_producer_id(self) -> None:
        """librdkafka asks for it up to half a second after it has found a broker: no latency of the cluster's."""
        deadline = time.monotonic() + PRODUCER_ID_SECONDS_MAX
        while time.monotonic() < deadline:
            self._producer.poll(STATISTICS_MILLISECONDS / 1000)
            if self._statistics.get("eos", {}).get("idemp_state") == "Assigned":
                return

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._window.started >= self._pace.reporting_interval / 1000:
            if self._shows_reports:
                print(progress_line(self._window.summary(now)), flush=True)  # noqa: T201
            self._window = Window(now)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed += 1
            self.reason = self.reason or errors.describe_with_advice(error)
            return
        size, latency = len(message), message.latency() * 1000
        if self._pace.warmup_records and self.total.records == self._pace.warmup_records:
            self.steady = Window(time.monotonic())
        for window in (self.total, self._window, self.steady):
            if window is not None:
                window.add(size, latency)

    def _on_statistics(self, text: str) -> None:
        self._statistics = json.loads(text)


def transaction_seconds(pace: PaceFlags, properties: Mapping[str, str]) -> float | None:
    """How long each transaction is; None to send without."""
    if pace.transaction_duration_ms is not None:
        return pace.transaction_duration_ms / 1000
    named = pace.transactional_id or properties.get("transactional.id", "")
    return TRANSACTION_SECONDS if named else None
