"""The consuming side of `barnabas perf`: records are counted and thrown away."""

from __future__ import annotations

import datetime
import json
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from barnabas.cli.kafka import errors
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.consuming import PASSING_ERRORS
from barnabas.cli.refusal import Refused
from barnabas.cli.text.output import Column, OutputFormat, show_document, show_rows
from barnabas.cli.text.progress import progress_bar
from barnabas.cli.text.statistics import MEBIBYTE

BATCH_RECORDS_MAX: Final = 10_000
POLL_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Plan:
    """What to read, and when to give up; `interval_seconds` None for no lines in between."""

    topic: str
    records: int
    group: str
    idle_seconds_max: float
    starts_at_end: bool
    interval_seconds: float | None
    shows_metrics: bool
    shows_header: bool = True
    time_format: str = "%Y-%m-%d %H:%M:%S:%f"
    """As for strftime, but %f stands for milliseconds."""
    settings: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Count:
    """What was read since `started`; moments are seconds since the epoch."""

    started: float
    joined: float = 0.0
    records: int = 0
    size: int = 0

    def row(self, now: float, time_format: str) -> dict[str, Any]:
        """One line of kafka-consumer-perf-test."""
        seconds = max(now - self.started, 1e-9)
        rebalance = max(self.joined - self.started, 0.0)
        fetching = max(seconds - rebalance, 1e-9)
        megabytes = self.size / MEBIBYTE
        return {
            "start.time": _moment(self.started, time_format),
            "end.time": _moment(now, time_format),
            "data.consumed.in.MB": round(megabytes, 4),
            "MB.sec": round(megabytes / seconds, 4),
            "data.consumed.in.nMsg": self.records,
            "nMsg.sec": round(self.records / seconds, 4),
            "rebalance.time.ms": round(rebalance * 1000),
            "fetch.time.ms": round(fetching * 1000),
            "fetch.MB.sec": round(megabytes / fetching, 4),
            "fetch.nMsg.sec": round(self.records / fetching, 4),
        }


def run(connection: Connection, plan: Plan, output: OutputFormat, columns: Sequence[Column]) -> None:
    """Read `plan.records` records and print the rates. Raises Refused when fewer came."""
    statistics: dict[str, Any] = {}
    consumer = connection.consumer(
        {
            "group.id": plan.group or f"barnabas-perf-{uuid.uuid4()}",
            "auto.offset.reset": "latest" if plan.starts_at_end else "earliest",
            "enable.auto.commit": bool(plan.group),
            "queued.max.messages.kbytes": 131_072,
            "statistics.interval.ms": 1000,
            **plan.settings,
            **connection.properties,
            "stats_cb": lambda text: statistics.update(json.loads(text)),
        }
    )
    count = Count(time.time())
    rows: list[dict[str, Any]] = []
    try:
        consumer.subscribe([plan.topic], on_assign=lambda *_: _on_assign(count))
        with progress_bar("reading", plan.records) as advance:
            _read(consumer, plan, count, rows, advance)
        now = time.time()
    finally:
        consumer.close()
    rows.append(count.row(now, plan.time_format))
    _show(plan, rows, statistics, output, columns)
    if count.records < plan.records:
        raise Refused(
            f"{count.records} of {plan.records} records came before nothing did for {plan.idle_seconds_max:g} s: "
            "ask for fewer with --messages"
        )


def _show(
    plan: Plan,
    rows: Sequence[dict[str, Any]],
    statistics: Mapping[str, Any],
    output: OutputFormat,
    columns: Sequence[Column],
) -> None:
    """The rows, in a pipe as the lines of Kafka's tool; one document where a program is to read it."""
    metrics = {name: value for name, value in statistics.items() if isinstance(value, int | float)}
    if output is not OutputFormat.table:
        last = {**rows[-1], **({"intervals": rows[:-1]} if plan.interval_seconds else {})}
        show_document({**last, "metrics": metrics} if plan.shows_metrics else last, output)
        return
    if plan.shows_header and not sys.stdout.isatty():
        print(", ".join(rows[0]))  # noqa: T201
    show_rows(rows, columns, output, title="reading", plain_line=_plain_line)
    if plan.shows_metrics:
        print(json.dumps(metrics, indent=2))  # noqa: T201


def _read(consumer: Consumer, plan: Plan, count: Count, rows: list[dict[str, Any]], advance: Any) -> None:
    last_arrival = time.monotonic()
    part = Count(time.time())
    while count.records < plan.records:
        batch = consumer.consume(min(BATCH_RECORDS_MAX, plan.records - count.records), POLL_SECONDS)
        if not batch:
            if time.monotonic() - last_arrival >= plan.idle_seconds_max:
                return
            continue
        last_arrival = time.monotonic()
        size = 0
        for message in batch:
            error = message.error()
            if error is None:
                size += len(message)
            elif not errors.is_code(error, *PASSING_ERRORS):
                raise KafkaException(error)
        for one in (count, part):
            one.records += len(batch)
            one.size += size
        advance(len(batch))
        if plan.interval_seconds and time.time() - part.started >= plan.interval_seconds:
            rows.append(part.row(time.time(), plan.time_format))
            part = Count(time.time())


def _on_assign(count: Count) -> None:
    count.joined = count.joined or time.time()


def _plain_line(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values())


def _moment(seconds: float, time_format: str) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone()
    return moment.strftime(time_format.replace("%f", f"{moment.microsecond // 1000:03d}"))
