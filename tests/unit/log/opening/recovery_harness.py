"""Logs of small segments, what they hold, and ways to harm them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.files import SystemFiles
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.records.batch import iterate_headers
from barnabas.records.record import decode_records, encode_batch

FILES = SystemFiles()
"""Of which a test lets calls fail."""
TOPIC_ID = uuid.UUID(int=7)
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200, message_timestamp_after_max_ms=2**60)
"""Segments of five batches of one record."""


def open_log(
    path: Path | str, *, clean: bool = False, config: LogConfig = CONFIG, **options: Any
) -> PartitionLog:
    return PartitionLog.open(
        str(path),
        "t",
        0,
        TOPIC_ID,
        config,
        seeded_environment(1, ManualClock(1000), files=FILES),
        clean_shutdown=clean,
        **options,
    )


def fill(log: PartitionLog, count: int, *, epoch: int = 0, producer_id: int = -1) -> None:
    for _ in range(count):
        number = log.log_end_offset
        sequence = (
            {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": number}
            if producer_id >= 0
            else {}
        )
        log.append_as_leader(
            encode_batch([(number, None, b"%d" % number + b"x" * 100, ())], **sequence), epoch
        )


def offsets(log: PartitionLog) -> list[int]:
    """Every offset that a consumer gets, each with the value that was appended under it."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 400)
        if not data:
            break
        for position, header in iterate_headers(data):
            for record in decode_records(data[position : position + header.size_in_bytes]):
                assert record.value is not None
                assert record.value.startswith(b"%dx" % record.offset)
                found.append(record.offset)
            offset = header.next_offset
    return found


def segment_path(log: PartitionLog, number: int) -> Path:
    return Path(log.directory) / f"{log.segment_base_offsets[number]:020d}.log"


def boundaries(content: bytes) -> list[int]:
    """Where the batches of a segment end, 0 first."""
    return [0, *(position + header.size_in_bytes for position, header in iterate_headers(content))]


def files(directory: str | Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


def damaged_log(path: Path) -> None:
    """A middle segment with a bad batch, segments and epochs behind it, an empty orphan, and no epochs."""
    log = open_log(path)
    fill(log, 12, producer_id=5)
    fill(log, 12, epoch=1, producer_id=5)
    middle = segment_path(log, 1)
    log.release()
    content = bytearray(middle.read_bytes())
    content[boundaries(bytes(content))[2] + 70] ^= 1
    middle.write_bytes(content)
    directory = Path(log.directory)
    (directory / "leader-epoch-checkpoint").unlink(missing_ok=True)
    (directory / f"{23:020d}.log").touch()
    (directory / f"{23:020d}.index").touch()
    (directory / f"{3:020d}.log.deleted").touch()
