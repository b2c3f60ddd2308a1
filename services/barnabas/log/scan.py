"""Walks over the batches of a segment file: by header only, or with every check that recovery makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.log.segment_file import SegmentFile
from barnabas.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    crc_of_tail,
    parse_header,
)

HEADER_WALK_BYTES = 8 * 1024
"""Bytes read at a time where only headers count: two index intervals."""
RECOVERY_WALK_BYTES = 1024 * 1024
"""Bytes read at a time where whole batches are checked; a larger batch is read whole."""


class ScannedBatch(NamedTuple):
    """A batch and where it stands."""

    position: int
    header: BatchHeader


def scan_headers(file: SegmentFile, start: int, end: int, *, nowait: bool = False) -> Iterator[ScannedBatch]:
    """Every whole batch from the batch boundary `start` up to `end`; stops at what cannot be a batch.

    Reads small windows, so neither a walk over small batches nor one over large ones reads much more than headers.
    Raises BlockingIOError with `nowait` when it would wait for the disk.
    """
    window, window_start, position = b"", start, start
    while position + HEADER_SIZE <= end:
        at = position - window_start
        if at + HEADER_SIZE > len(window):
            window = file.read(position, min(HEADER_WALK_BYTES, end - position), nowait=nowait)
            window_start, at = position, 0
            if len(window) < HEADER_SIZE:
                return
        header = parse_header(window, at)
        size = header.batch_length + LOG_OVERHEAD
        if size < HEADER_SIZE or position + size > end:
            return
        yield ScannedBatch(position, header)
        position += size


class CheckedScan:
    """Iterates over the batches that are whole and right; `valid_bytes` and `stopped_by` say where and why it
    ended.

    A batch is right when its size fits, its magic is 2, its CRC matches and its offsets rise and lie in the
    segment.
    """

    def __init__(self, file: SegmentFile, base_offset: int, size: int) -> None:
        self.file = file
        self.size = size
        self.valid_bytes = 0
        self.next_offset = base_offset
        self.stopped_by = ""
        self._base_offset = base_offset
        self._window = b""
        self._window_start = 0

    def __iter__(self) -> Iterator[ScannedBatch]:
        while self.valid_bytes < self.size:
            header = self._checked_header()
            if header is None:
                return
            position = self.valid_bytes
            self.valid_bytes += header.size_in_bytes
            self.next_offset = header.next_offset
            yield ScannedBatch(position, header)

    def batch(self, scanned: ScannedBatch) -> bytes:
        """The bytes of the batch that was yielded last."""
        return self._bytes(scanned.position, scanned.header.size_in_bytes)

    def _checked_header(self) -> BatchHeader | None:
        position, remaining = self.valid_bytes, self.size - self.valid_bytes
        if remaining < HEADER_SIZE:
            self.stopped_by = "a batch header is cut"
            return None
        header = parse_header(self._bytes(position, HEADER_SIZE))
        size = header.size_in_bytes
        if size < HEADER_SIZE or size > remaining:
            self.stopped_by = f"a batch of {size} bytes does not fit the {remaining} bytes left"
        elif header.magic != MAGIC:
            self.stopped_by = f"a batch has magic {header.magic}"
        elif header.base_offset < self.next_offset or header.last_offset_delta < 0:
            self.stopped_by = f"offset {header.base_offset} follows offset {self.next_offset - 1}"
        elif header.last_offset - self._base_offset > 0x7FFFFFFF:
            self.stopped_by = f"offset {header.last_offset} is too far from the segment's base"
        elif crc_of_tail(self._bytes(position, size)[CRC_START:]) != header.crc:
            self.stopped_by = f"the CRC of the batch at offset {header.base_offset} is wrong"
        else:
            return header
        return None

    def _bytes(self, position: int, length: int) -> bytes:
        at = position - self._window_start
        if at + length > len(self._window):
            wanted = min(max(RECOVERY_WALK_BYTES, length), self.size - position)
            self._window, self._window_start, at = self.file.read(position, wanted), position, 0
        return self._window[at : at + length]
