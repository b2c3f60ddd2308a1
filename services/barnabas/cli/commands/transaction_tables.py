"""Rows of `barnabas transactions`, and how tables show them."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.kafka.times import iso_time
from barnabas.cli.text.output import Column

if TYPE_CHECKING:
    from barnabas.cli.balance.late_transactions import LateTransaction, Producer, Transaction
    from barnabas.cli.kafka.transactions import Listed

TIME_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond that has a date: producers may write any time into their records."""

LISTED: Final = (
    Column("transactionalId", "TRANSACTIONAL-ID", "cyan"),
    Column("coordinator", "COORDINATOR", is_number=True),
    Column("producerId", "PRODUCER-ID", is_number=True),
    Column("state", "STATE"),
)
DESCRIBED: Final = (
    *LISTED[:3],
    Column("producerEpoch", "EPOCH", is_number=True),
    Column("state", "STATE"),
    Column("timeoutMs", "TIMEOUT-MS", is_number=True),
    Column("started", "STARTED"),
    Column("openFor", "OPEN-FOR", is_number=True),
    Column("partitions", "PARTITIONS"),
)
PRODUCERS: Final = (
    Column("producerId", "PRODUCER-ID", "cyan", is_number=True),
    Column("producerEpoch", "EPOCH", is_number=True),
    Column("coordinatorEpoch", "COORDINATOR-EPOCH", is_number=True),
    Column("lastSequence", "LAST-SEQUENCE", is_number=True),
    Column("lastTime", "LAST-TIMESTAMP"),
    Column("startOffset", "TRANSACTION-START-OFFSET", "green", is_number=True),
)
HANGING: Final = (
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("producerId", "PRODUCER-ID", is_number=True),
    Column("producerEpoch", "EPOCH", is_number=True),
    Column("coordinatorEpoch", "COORDINATOR-EPOCH", is_number=True),
    Column("startOffset", "START-OFFSET", "green", is_number=True),
    Column("lastTime", "LAST-TIMESTAMP"),
    Column("silentFor", "SILENT-FOR", is_number=True),
)


def listed_row(listed: Listed) -> dict[str, Any]:
    return {
        "transactionalId": listed.transactional_id,
        "coordinator": listed.coordinator,
        "producerId": listed.producer_id,
        "state": listed.state,
    }


def transaction_row(found: Transaction, now: int) -> dict[str, Any]:
    open_ms = None if found.start_ms is None else max(now - found.start_ms, 0)
    return {
        "transactionalId": found.transactional_id,
        "coordinator": found.coordinator,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "state": found.state,
        "timeoutMs": found.timeout_ms,
        "startMs": found.start_ms,
        "started": time_of(found.start_ms),
        "openMs": open_ms,
        "openFor": duration_of(open_ms),
        "partitions": [f"{topic}-{number}" for topic, number in found.places],
    }


def producer_row(producer: Producer) -> dict[str, Any]:
    return {
        "producerId": producer.producer_id,
        "producerEpoch": producer.producer_epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "lastSequence": producer.last_sequence,
        "lastTimestampMs": producer.last_timestamp_ms,
        "lastTime": time_of(producer.last_timestamp_ms),
        "startOffset": producer.start_offset,
    }


def hanging_row(found: LateTransaction, now: int) -> dict[str, Any]:
    topic, partition = found.producer.place
    silent_ms = max(now - found.producer.last_timestamp_ms, 0)
    return {
        "topic": topic,
        "partition": partition,
        **producer_row(found.producer),
        "silentMs": silent_ms,
        "silentFor": duration_of(silent_ms),
    }


def time_of(milliseconds: int | None) -> str | None:
    """`2026-01-31T12:00:00.000Z`; the number itself where it is no time."""
    if milliseconds is None or milliseconds < 0:
        return None
    return iso_time(milliseconds) if milliseconds <= TIME_MS_MAX else str(milliseconds)


def duration_of(milliseconds: int | None) -> str | None:
    """`0:16:40`, to the second."""
    return None if milliseconds is None else str(datetime.timedelta(seconds=milliseconds // 1000))
