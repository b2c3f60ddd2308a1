"""What `dump-log` finds: entries as plain data, and the lines that Kafka's tool prints for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Entry = dict[str, Any]
"""One batch, index entry, producer, ...; the key "type" says which."""


@dataclass
class Findings:
    """What is wrong with a file, one line each."""

    path: str
    faults: list[str] = field(default_factory=list)

    def add(self, fault: str) -> None:
        self.faults.append(f"{self.path}: {fault}")


def to_text(entry: Entry, *, skips_record_metadata: bool = False) -> str:
    """The line, or with records the lines, of one entry."""
    return _TEXTS[entry["type"]](entry, skips_record_metadata)


def _batch(entry: Entry, skips_record_metadata: bool) -> str:
    horizon = entry["deleteHorizonMs"]
    line = (
        f"baseOffset: {entry['baseOffset']} lastOffset: {entry['lastOffset']} count: {entry['count']} "
        f"baseSequence: {entry['baseSequence']} lastSequence: {entry['lastSequence']} "
        f"producerId: {entry['producerId']} producerEpoch: {entry['producerEpoch']} "
        f"partitionLeaderEpoch: {entry['partitionLeaderEpoch']} isTransactional: {_flag(entry['isTransactional'])} "
        f"isControl: {_flag(entry['isControl'])} deleteHorizonMs: {_optional(horizon)} position: {entry['position']} "
        f"{entry['timestampType']}: {entry['timestamp']} size: {entry['size']} magic: {entry['magic']} "
        f"compresscodec: {entry['compressionCodec']} crc: {entry['crc']} isvalid: {_flag(entry['isValid'])}"
    )
    records = [
        _record(entry, record, skips_record_metadata)
        for record in entry.get("records", ())
        if not (skips_record_metadata and entry["isControl"])
    ]
    return "\n".join([line, *records])


def _record(batch: Entry, record: Mapping[str, Any], skips_metadata: bool) -> str:
    words = []
    if not skips_metadata:
        words = [
            f"offset: {record['offset']} {batch['timestampType']}: {record['timestamp']} "
            f"keySize: {record['keySize']} valueSize: {record['valueSize']} sequence: {record['sequence']} "
            f"headerKeys: [{','.join(record['headerKeys'])}]"
        ]
    if "marker" in record:
        words.append(f"endTxnMarker: {record['marker']} coordinatorEpoch: {record['coordinatorEpoch']}")
    if "key" in record and record["key"] is not None:
        words.append(f"key: {_shown(record['key'])}")
    if "value" in record and record["value"] is not None:
        words.append(f"payload: {_shown(record['value'])}")
    return "| " + " ".join(words)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _producer(entry: Entry, _: bool) -> str:
    opened = entry["currentTxnFirstOffset"]
    line = (
        f"producerId: {entry['producerId']} producerEpoch: {entry['producerEpoch']} "
        f"coordinatorEpoch: {entry['coordinatorEpoch']} currentTxnFirstOffset: {_optional(opened)} "
        f"lastTimestamp: {entry['lastTimestamp']} "
    )
    if entry["lastOffset"] is None:
        return line
    return line + (
        f"firstSequence: {entry['firstSequence']} lastSequence: {entry['lastSequence']} "
        f"lastOffset: {entry['lastOffset']} offsetDelta: {entry['offsetDelta']} timestamp: {entry['timestamp']}"
    )


def _pairs(entry: Entry, _: bool) -> str:
    return " ".join(f"{key}: {value}" for key, value in entry.items() if key not in ("type", "file"))


def _note(entry: Entry, _: bool) -> str:
    return str(entry["text"])


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


_TEXTS: Final[dict[str, Callable[[Entry, bool], str]]] = {
    "batch": _batch,
    "producer": _producer,
    "offset": _pairs,
    "timestamp": _pairs,
    "abortedTransaction": _pairs,
    "epoch": _pairs,
    "checkpoint": _pairs,
    "property": _pairs,
    "note": _note,
}
