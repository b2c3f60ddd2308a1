"""`.index` and `.timeindex`: their entries, and whether they say what the segment beside them says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.cli.dump.entries import Entry, Findings
from barnabas.kernel.files import SystemFiles
from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.scan import scan_headers
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.log.segments.time_index import TimeIndex
from barnabas.records.batch import NO_TIMESTAMP


class IndexFlags(NamedTuple):
    """--index-sanity-check: the check of a broker's start alone; --verify-index-only: faults alone."""

    only_checks_sanity: bool = False
    only_verifies: bool = False


class _Batch(NamedTuple):
    base_offset: int
    last_offset: int
    max_timestamp: int


def read_offset_index(path: str, flags: IndexFlags, findings: Findings) -> Iterator[Entry]:
    """The entries of an offset index, each compared with the batch at its position."""
    index = OffsetIndex(
        SystemFiles(), path, _base_offset(path), 0, _entries(path, OffsetIndex.entry.size, findings)
    )
    log = Path(path).with_suffix(".log")
    if flags.only_checks_sanity:
        yield from _sanity(
            path, index.is_sane(log.stat().st_size if log.exists() else 0), len(index), findings
        )
        return
    if not index.entries:
        yield {"type": "note", "file": path, "text": f"{path} is empty."}
        return
    batches = _batches(log, findings)
    previous = -1
    for relative, position in OffsetIndex.entry.iter_unpack(index.entries):
        offset = index.base_offset + relative
        batch = batches.get(position)
        if relative == 0 and position == 0 and len(index.entries) > OffsetIndex.entry.size and previous >= 0:
            return  # the file of a running Kafka broker is preallocated: zeros follow the last entry
        if batch is None:
            findings.add(f"offset {offset} is indexed at position {position}, where no batch begins")
        elif batch.last_offset != offset:
            findings.add(
                f"position {position} is indexed as offset {offset}, the log has {batch.last_offset}"
            )
        if offset <= previous:
            findings.add(f"offset {offset} follows offset {previous}")
        previous = offset
        if not flags.only_verifies:
            yield {"type": "offset", "file": path, "offset": offset, "position": position}


def read_time_index(path: str, flags: IndexFlags, findings: Findings) -> Iterator[Entry]:
    """The entries of a time index, each compared with the batch that holds its offset."""
    index = TimeIndex(
        SystemFiles(), path, _base_offset(path), 0, _entries(path, TimeIndex.entry.size, findings)
    )
    if flags.only_checks_sanity:
        yield from _sanity(path, index.is_sane(), len(index), findings)
        return
    batches = sorted(_batches(Path(path).with_suffix(".log"), findings).values())
    previous = NO_TIMESTAMP
    at = 0
    for timestamp, relative in TimeIndex.entry.iter_unpack(index.entries):
        offset = index.base_offset + relative
        if timestamp == 0 and relative == 0 and previous > NO_TIMESTAMP:
            return  # preallocated, as above
        while at < len(batches) and batches[at].last_offset < offset:
            at += 1
        if at == len(batches) or batches[at].base_offset > offset:
            findings.add(f"timestamp {timestamp} is indexed at offset {offset}, which the log does not have")
        elif batches[at].max_timestamp != timestamp:
            findings.add(
                f"offset {offset} is indexed with timestamp {timestamp}, the log has {batches[at].max_timestamp}"
            )
        if timestamp <= previous:
            findings.add(f"timestamp {timestamp} follows timestamp {previous}")
        previous = timestamp
        if not flags.only_verifies:
            yield {"type": "timestamp", "file": path, "timestamp": timestamp, "offset": offset}


def _sanity(path: str, is_sane: bool, count: int, findings: Findings) -> Iterator[Entry]:
    if not is_sane:
        findings.add("the index is not sane: remove it, and a broker builds it anew")
    else:
        text = f"{path} passed sanity check." if count else f"{path} is empty."
        yield {"type": "note", "file": path, "text": text}


def _entries(path: str, size: int, findings: Findings) -> bytes:
    data = Path(path).read_bytes()
    if len(data) % size:
        findings.add(f"its {len(data)} bytes are no whole number of entries of {size} bytes")
    return data[: len(data) - len(data) % size]


def _base_offset(path: str) -> int:
    return int(os.path.basename(path).split(".")[0])


def _batches(log: Path, findings: Findings) -> dict[int, Any]:
    """Position to batch, of the segment beside the index."""
    if not log.exists():
        findings.add(f"the segment {log.name} is not beside it")
        return {}
    file = SegmentFile(SystemFiles(), str(log))
    return {
        scanned.position: _Batch(
            scanned.header.base_offset, scanned.header.last_offset, scanned.header.max_timestamp
        )
        for scanned in scan_headers(file, 0, file.size())
    }
