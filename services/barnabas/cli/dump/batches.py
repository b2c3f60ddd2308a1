"""The batches and records of a `.log` file."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from barnabas.cli.dump.entries import Entry, Findings
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    crc_is_valid,
    increment_sequence,
    parse_header,
)
from barnabas.records.compression import Compression
from barnabas.records.control import decode_marker
from barnabas.records.record import Record, decode_records

WINDOW_BYTES: Final = 1 << 20
Decode = Callable[[bytes], Any]


@dataclass(frozen=True)
class BatchFlags:
    """What to show of each batch. `bytes_max` ends the reading of a file, `message_bytes_max` a batch too large."""

    has_records: bool = False
    has_data: bool = False
    decodes_offsets: bool = False
    decode_key: Decode | None = None
    decode_value: Decode | None = None
    bytes_max: int = 2**31 - 1
    message_bytes_max: int = 2**31 - 1


def decode_text(data: bytes) -> str:
    """UTF-8, with what is not replaced, as Kafka's tool prints it."""
    return data.decode(errors="replace")


def decode_json(data: bytes) -> Any:
    """JSON, or the text where it is none."""
    try:
        return json.loads(data)
    except ValueError:
        return decode_text(data)


DECODERS: Final[dict[str, Decode]] = {
    "text": decode_text,
    "json": decode_json,
    "hex": bytes.hex,
    "base64": lambda data: base64.b64encode(data).decode(),
    "long": lambda data: int.from_bytes(data, "big", signed=True),
}


def read_batches(path: str, flags: BatchFlags, findings: Findings, advance: Any) -> Iterator[Entry]:
    """Every batch of a segment; what is wrong goes to `findings`. Raises OSError."""
    file = SegmentFile(SystemFiles(), path)
    size = file.size()
    position = 0
    previous = -1
    window, window_start = b"", 0
    while position < size and position < flags.bytes_max:
        if position + HEADER_SIZE > size:
            findings.add(f"{size - position} bytes after the last batch are no batch")
            return
        if position + HEADER_SIZE > window_start + len(window):
            window, window_start = file.read(position, min(WINDOW_BYTES, size - position)), position
        header = parse_header(window, position - window_start)
        length = header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC or length < HEADER_SIZE or position + length > size:
            findings.add(f"the bytes from position {position} on are no batch of format version 2")
            return
        if length > flags.message_bytes_max:
            findings.add(f"the batch at position {position} has {length} bytes: raise --max-message-size")
            return
        if position + length > window_start + len(window):
            window, window_start = (
                file.read(position, max(length, min(WINDOW_BYTES, size - position))),
                position,
            )
        at = position - window_start
        batch = window[at : at + length]
        if header.base_offset <= previous:
            findings.add(f"offset {header.base_offset} follows offset {previous}")
        previous = header.last_offset
        yield _entry(path, position, header, batch, flags, findings)
        position += length
        advance(length)


def _entry(
    path: str, position: int, header: BatchHeader, batch: bytes, flags: BatchFlags, findings: Findings
) -> Entry:
    is_valid = crc_is_valid(batch)
    if not is_valid:
        findings.add(f"the CRC of the batch at position {position} is wrong")
    entry: Entry = {
        "type": "batch",
        "file": path,
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.base_timestamp if header.has_delete_horizon else None,
        "position": position,
        "timestampType": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "timestamp": header.max_timestamp,
        "size": header.size_in_bytes,
        "magic": header.magic,
        "compressionCodec": Compression(header.compression).name.lower()
        if header.compression <= 4
        else "unknown",
        "crc": header.crc,
        "isValid": is_valid,
    }
    if flags.has_records and is_valid:
        try:
            entry["records"] = _records(header, batch, flags)
        except KafkaError as error:
            findings.add(f"the batch at position {position}: {error}")
    return entry


def _records(header: BatchHeader, batch: bytes, flags: BatchFlags) -> list[Entry]:
    records: list[Entry] = []
    for record in decode_records(batch):
        sequence = header.base_sequence
        if sequence >= 0:
            sequence = increment_sequence(sequence, record.offset - header.base_offset)
        found: Entry = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": sequence,
            "headerKeys": [key for key, _ in record.headers],
        }
        if header.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                found["marker"] = "COMMIT" if marker.committed else "ABORT"
                found["coordinatorEpoch"] = marker.coordinator_epoch
        elif flags.has_data:
            _add_data(found, record, flags)
        records.append(found)
    return records


def _add_data(found: Entry, record: Record, flags: BatchFlags) -> None:
    if flags.decodes_offsets:
        from barnabas.cli.dump.coordinator_records import decode_coordinator_record

        found["key"], found["value"] = decode_coordinator_record(record.key, record.value)
        return
    key, value = flags.decode_key or decode_text, flags.decode_value or decode_text
    found["key"] = None if record.key is None else key(record.key)
    found["value"] = None if record.value is None else value(record.value)
