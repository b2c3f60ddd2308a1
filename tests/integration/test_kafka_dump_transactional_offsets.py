"""Apache Kafka's `kafka-dump-log` reads what a coordinator writes of offsets inside transactions, as does ours."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Final

import pytest
from command_line import CommandLine
from kafka_tools import run_tool

from barnabas.coordinator.groups.codec import encode_record, head_of
from barnabas.coordinator.groups.core.records import (
    GroupLogRecord,
    GroupRecord,
    MarkerRecord,
    OffsetAndMetadata,
    OffsetRecord,
)
from barnabas.coordinator.runtime.core.producers import Producer
from barnabas.coordinator.runtime.write_queue import WriteQueue
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.files import SystemFiles
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin

pytestmark = pytest.mark.integration

FIRST: Final = Producer(7, 3)
SECOND: Final = Producer(8, 0)
RECORDS: Final[list[GroupLogRecord]] = [
    GroupRecord("", None),
    OffsetRecord("g", "t", 0, OffsetAndMetadata(5, 2, "x", 9)),
    OffsetRecord("g", "t", 0, OffsetAndMetadata(6, 2, "y", 9), FIRST),
    OffsetRecord("g", "u", 1, OffsetAndMetadata(7, -1, "", 9), FIRST),
    OffsetRecord("h", "t", 0, OffsetAndMetadata(8, -1, "", 9), SECOND),
    MarkerRecord(Producer(7, 4), committed=True, coordinator_epoch=258),
    MarkerRecord(SECOND, committed=False, coordinator_epoch=1),
    OffsetRecord("h", "t", 0, None),
]

BATCH: Final = re.compile(
    r"baseOffset: (\d+) lastOffset: (\d+) .*baseSequence: (-?\d+) .*producerId: (-?\d+) producerEpoch: (-?\d+) "
    r".*isTransactional: (\w+) isControl: (\w+) .*isvalid: true"
)


def write_log(directory: Path) -> Path:
    """The records in one append, by a partition's leader."""
    queue: WriteQueue[GroupLogRecord] = WriteQueue(head_of)
    for record in RECORDS:
        queue.add([record], [(9, *encode_record(record), ())], [])
    environment = seeded_environment(1, ManualClock(), files=SystemFiles())
    config = LogConfig(message_timestamp_before_max_ms=2**60, message_timestamp_after_max_ms=2**60)
    log = PartitionLog.open(str(directory), "__consumer_offsets", 0, uuid.UUID(int=9), config, environment)
    log.append_as_leader(queue.next_append().batches, 0, origin=AppendOrigin.COORDINATOR)
    log.close()
    return Path(log.directory) / f"{0:020d}.log"


def test_kafka_reads_offsets_inside_transactions(tmp_path: Path) -> None:
    path = write_log(tmp_path)
    words = ("--deep-iteration", "--offsets-decoder", "--print-data-log", "--files", str(path))
    theirs = run_tool("dump-log", *words)
    assert theirs.stderr == ""
    assert [found.groups() for found in BATCH.finditer(theirs.stdout)] == [
        ("0", "1", "-1", "-1", "-1", "false", "false"),
        ("2", "3", "-1", "7", "3", "true", "false"),
        ("4", "4", "-1", "8", "0", "true", "false"),
        ("5", "5", "-1", "7", "4", "true", "true"),
        ("6", "6", "-1", "8", "0", "true", "true"),
        ("7", "7", "-1", "-1", "-1", "false", "false"),
    ]
    records = [line for line in theirs.lines if line.startswith("| ")]
    pending = [json.loads(line.partition(" payload: ")[2])["data"]["offset"] for line in records[2:5]]
    assert pending == [6, 7, 8]
    assert [line.partition("headerKeys: [] ")[2] for line in records[5:7]] == [
        "endTxnMarker: COMMIT coordinatorEpoch: 258",
        "endTxnMarker: ABORT coordinatorEpoch: 1",
    ]
    assert len(records) == len(RECORDS)
    assert CommandLine("")("dump-log", *words).text == theirs.stdout
