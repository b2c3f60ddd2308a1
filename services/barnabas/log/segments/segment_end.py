"""Where a segment ends, by the headers of its batches from the last index entry on."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.kernel.files import Files
from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.scan import scan_headers
from barnabas.log.segments.segment import LOG_SUFFIX, file_name
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.records.batch import MAGIC, NO_LEADER_EPOCH


class SegmentEnd(NamedTuple):
    """Where the last whole batch of a segment ends, in bytes, the offset after it, and its leader epoch: -1 if there is
    no batch.
    """

    position: int
    next_offset: int
    leader_epoch: int


def read_end(files: Files, directory: str, base_offset: int) -> SegmentEnd:
    """The end of the segment of this base offset in a directory. Raises OSError."""
    file = SegmentFile(files, f"{directory}/{file_name(base_offset, LOG_SUFFIX)}")
    size = file.size()
    position = _last_indexed(
        files, f"{directory}/{file_name(base_offset, OffsetIndex.suffix)}", file, base_offset
    )
    next_offset, epoch = base_offset, NO_LEADER_EPOCH
    for scanned in scan_headers(file, position, size):
        if scanned.header.magic != MAGIC or scanned.header.next_offset <= next_offset:
            break
        position = scanned.position + scanned.header.size_in_bytes
        next_offset, epoch = scanned.header.next_offset, scanned.header.partition_leader_epoch
    return SegmentEnd(position, next_offset, epoch)


def _last_indexed(files: Files, path: str, file: SegmentFile, base_offset: int) -> int:
    """The position of the batch that the last index entry names; 0 where there is none, or it names another."""
    try:
        index = SegmentFile(files, path)
    except FileNotFoundError:
        return 0
    size, entry_size = index.size(), OffsetIndex.entry.size
    if not size or size % entry_size:
        return 0
    relative, position = OffsetIndex.entry.unpack(index.read(size - entry_size, entry_size))
    named = next(scan_headers(file, position, file.size()), None) if position >= 0 else None
    return position if named is not None and named.header.last_offset == base_offset + relative else 0
