"""Reading records and writing them out, batch by batch: one call to the consumer and one write for thousands.

Offsets of a group are stored after the write, so what is committed was written.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from barnabas.cli.kafka import errors, positions
from barnabas.cli.kafka.connection import ANSWER_SECONDS_MAX, Connection
from barnabas.cli.kafka.positions import Span, start_offset
from barnabas.cli.kafka.topics import compile_pattern, no_such_topic, partitions_of
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import say

if TYPE_CHECKING:
    from barnabas.cli.text.record_format import Render

BATCH_RECORDS_MAX: Final = 10_000
"""Records that are rendered and written at once."""

POLL_SECONDS: Final = 0.2
"""How long one wait lasts: Ctrl-C and the time limits are looked at in between."""

NO_BOUND: Final = 1 << 63
PASSING_ERRORS = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
)
"""What librdkafka mends by itself: a broker that comes back, a leader that moves."""


@dataclass(frozen=True)
class Reading:
    """What to read and when to end. Topics with ^ in front are regular expressions."""

    patterns: tuple[str, ...]
    partitions: frozenset[int]
    group: str
    span: Span
    messages_max: int | None
    exits_at_end: bool
    idle_seconds_max: float | None
    isolation_level: str


def read(connection: Connection, reading: Reading, render: Render, *, is_quiet: bool) -> None:
    """Write records to stdout until one of the reading's limits, Ctrl-C or a closed pipe. Raises Refused."""
    _check(reading)
    consumer = connection.consumer(_settings(connection, reading))
    written = 0
    try:
        ending = _start(connection, consumer, reading)
        written = _copy(consumer, reading, ending, render)
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        raise
    finally:
        consumer.close()
    if not is_quiet and sys.stderr.isatty():
        say(f"{written} records")


class Ending:
    """Knows which partitions are still being read, and where each of them stops."""

    def __init__(self, *, exits_at_end: bool) -> None:
        self._exits_at_end = exits_at_end
        self.assigned_at: float | None = None
        """When a group last told (by the monotonic clock); the time until then is not idle."""
        self.open: set[tuple[str, int]] | None = None
        """None while a group has not told which partitions are ours."""
        self.bounds: dict[tuple[str, int], int] = {}
        self.until_ms: int | None = None

    @property
    def is_reached(self) -> bool:
        """Whether there is nothing left to read. A member of a group that has no partitions may still get some."""
        if self.assigned_at is not None and not self._exits_at_end:
            return False
        return self.open is not None and not self.open

    @property
    def has_bounds(self) -> bool:
        return bool(self.bounds) or self.until_ms is not None

    def counts(self, message: Any) -> bool:
        """Whether a record lies before its partition's end; the first that does not closes the partition."""
        key = (message.topic(), message.partition())
        late = self.until_ms is not None and message.timestamp()[1] >= self.until_ms
        if late or message.offset() >= self.bounds.get(key, NO_BOUND):
            self.close(key)
            return False
        return self.open is None or key in self.open

    def on_partition_end(self, message: Any) -> None:
        key = (message.topic(), message.partition())
        if self._exits_at_end or message.offset() >= self.bounds.get(key, NO_BOUND):
            self.close(key)

    def close(self, key: tuple[str, int]) -> None:
        if self.open is not None:
            self.open.discard(key)


def _check(reading: Reading) -> None:
    simple = (positions.BEGINNING, positions.END, positions.STORED)
    if (
        reading.group
        and not reading.partitions
        and (reading.span.start not in simple or reading.span.until_ms)
    ):
        raise usage(
            "with a --group, --offset takes beginning, end or stored: `barnabas groups --reset-offsets` moves a group"
        )
    if reading.span.start == positions.STORED and not reading.group:
        raise usage("--offset stored needs the --group that stored it")


def _settings(connection: Connection, reading: Reading) -> dict[str, Any]:
    reset = "latest" if reading.span.start == positions.END else "earliest"
    ends = reading.exits_at_end or reading.span.until_ms is not None
    settings: dict[str, Any] = {
        # Without a group nothing is committed: the name is only there because librdkafka wants one.
        "group.id": reading.group or f"barnabas-consume-{uuid.uuid4()}",
        "enable.auto.commit": bool(reading.group),
        "enable.auto.offset.store": False,
        "enable.partition.eof": ends,
        "auto.offset.reset": reset if reading.group else "error",
        "isolation.level": reading.isolation_level,
        "queued.max.messages.kbytes": 131_072,
    }
    # What the user set by --consumer-property goes before our choices, but for how the end is found.
    return {
        **settings,
        **connection.properties,
        "enable.partition.eof": ends,
        "enable.auto.offset.store": False,
    }


def _start(connection: Connection, consumer: Consumer, reading: Reading) -> Ending:
    """Subscribe, or assign partitions with their offsets."""
    ending = Ending(exits_at_end=reading.exits_at_end)
    if reading.group and not reading.partitions:

        def on_assign(_: Any, partitions: Sequence[TopicPartition]) -> None:
            # Cooperative assignors tell what is new, others everything after having revoked it.
            ending.open = (ending.open or set()) | {(part.topic, part.partition) for part in partitions}
            ending.assigned_at = time.monotonic()

        def on_revoke(_: Any, partitions: Sequence[TopicPartition]) -> None:
            ending.open = (ending.open or set()) - {(part.topic, part.partition) for part in partitions}

        consumer.subscribe(
            list(reading.patterns), on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke
        )
        return ending
    cluster = connection.cluster(consumer)
    wanted = partitions_of(cluster, _topics(cluster.topics, reading.patterns))
    if reading.partitions:
        wanted = [part for part in wanted if part.partition in reading.partitions]
        if not wanted:
            raise Refused("no such partition: `barnabas topics --describe` shows what there is")
    ending.open = {(part.topic, part.partition) for part in wanted}
    if reading.span.start == positions.STORED or (reading.group and not reading.span.is_explicit):
        consumer.assign(wanted)  # librdkafka takes the committed offset
    else:
        _seek(consumer, wanted, reading.span, ending)
        consumer.assign(wanted)
    return ending


def _topics(known: Any, patterns: Sequence[str]) -> list[str]:
    found: list[str] = []
    for pattern in patterns:
        if pattern.startswith("^"):
            expression = compile_pattern(pattern)
            matched = [name for name in sorted(known) if expression.match(name)]
        else:
            matched = [pattern] if pattern in known else []
        if not matched:
            raise no_such_topic([pattern])
        found += [name for name in matched if name not in found]
    return found


def _seek(consumer: Consumer, wanted: list[TopicPartition], span: Span, ending: Ending) -> None:
    """Give each partition its offset, and `ending` where it stops."""
    times = _offsets_at(consumer, wanted, span.number) if span.start == positions.TIME else {}
    stops = {} if span.until_ms is None else _offsets_at(consumer, wanted, span.until_ms)
    is_past = span.until_ms is not None and span.until_ms <= time.time() * 1000
    if span.until_ms is not None and not is_past:
        ending.until_ms = span.until_ms
    # Not by `get_watermark_offsets`: refused the one end and told the other, librdkafka makes an empty log of both.
    firsts, lasts = (_offsets_at(consumer, wanted, end) for end in (OFFSET_BEGINNING, OFFSET_END))
    for part in wanted:
        key = (part.topic, part.partition)
        last = lasts[key]
        part.offset = start_offset(span, firsts[key], last, times.get(key, -1))
        if stops.get(key, -1) >= 0:
            ending.bounds[key] = stops[key]
        elif is_past:
            ending.bounds[key] = last
        if part.offset >= ending.bounds.get(key, NO_BOUND):
            ending.close(key)


def _offsets_at(
    consumer: Consumer, wanted: Sequence[TopicPartition], milliseconds: int
) -> dict[tuple[str, int], int]:
    """The first offset at or after a time, negative where there is none; or an end of the log, OFFSET_BEGINNING or
    OFFSET_END. Raises KafkaException if one is not known.
    """
    asked = [TopicPartition(part.topic, part.partition, milliseconds) for part in wanted]
    found = consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS_MAX)
    for part in found:
        if part.error is not None:  # what it says then of the offset looks as if there were none
            raise KafkaException(part.error)
    return {(part.topic, part.partition): part.offset for part in found}


def _copy(consumer: Consumer, reading: Reading, ending: Ending, render: Render) -> int:
    """Until an end is reached; returns how many records were written."""
    written = 0
    out = sys.stdout.buffer
    last_arrival = time.monotonic()
    while not ending.is_reached and written != reading.messages_max:
        most = BATCH_RECORDS_MAX
        if reading.messages_max is not None:
            most = min(most, reading.messages_max - written)
        # One record is waited for; what else is here already comes with it, without waiting.
        batch = consumer.consume(1, POLL_SECONDS)
        if batch and most > 1:
            batch += consumer.consume(most - 1, 0)
        if not batch:
            if _is_idle(reading, ending, last_arrival) or _is_past(ending):
                break
            continue
        records = _sorted_out(batch, ending)
        if records:
            last_arrival = time.monotonic()
            out.write(render(records))
            out.flush()
            written += len(records)
            if reading.group:
                _store(consumer, records)
    return written


def _sorted_out(batch: list[Any], ending: Ending) -> list[Any]:
    """The records in a batch that count; ends of partitions and errors are dealt with here."""
    if any(message.error() is not None for message in batch):
        records = []
        for message in batch:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ending.on_partition_end(message)
            elif error.code() not in PASSING_ERRORS:
                raise KafkaException(error)
            else:
                say(f"{errors.describe(error)}; trying again")
        batch = records
    return [message for message in batch if ending.counts(message)] if ending.has_bounds else batch


def _store(consumer: Consumer, records: Sequence[Any]) -> None:
    last = {(message.topic(), message.partition()): message.offset() for message in records}
    parts = [TopicPartition(*key, offset + 1) for key, offset in last.items()]
    try:
        consumer.store_offsets(offsets=parts)
    except KafkaException as error:
        # The partition went to another member meanwhile: it reads these records again.
        if not errors.is_code(error, KafkaError._STATE):
            raise


def _is_idle(reading: Reading, ending: Ending, last_arrival: float) -> bool:
    """Whether nothing came for too long; joining a group does not count, brokers let that wait for some seconds."""
    if reading.idle_seconds_max is None or (reading.group and ending.open is None):
        return False
    since = max(last_arrival, ending.assigned_at or last_arrival)
    return time.monotonic() - since >= reading.idle_seconds_max


def _is_past(ending: Ending) -> bool:
    return ending.until_ms is not None and time.time() * 1000 >= ending.until_ms
