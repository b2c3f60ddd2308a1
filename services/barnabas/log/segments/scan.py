"""Walks over the batches of a segment file: by header only, or with every check that recovery makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from google_crc32c import extend as crc32c_extended
from google_crc32c import value as crc32c

from barnabas.kernel.kafka_values import INT_MAX
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    parse_header,
)

HEADER_WALK_BYTES = 8 * 1024
"""Bytes read at a time where only headers count: two index intervals."""
RECOVERY_WALK_BYTES = 1024 * 1024
"""Bytes read at a time where whole batches are checked; a larger batch is read whole."""
_LARGE_BYTES = 16 * RECOVERY_WALK_BYTES
"""A batch that says that it is larger is held in memory only once that is known: a length may be damaged."""
EVERY_BATCH = -1
"""The index interval of a walk that stops at every batch."""


class ScannedBatch(NamedTuple):
    """A batch and where it stands."""

    position: int
    header: BatchHeader


def scan_headers(file: SegmentFile, start: int, end: int, *, nowait: bool = False) -> Iterator[ScannedBatch]:
    """Every whole batch from the batch boundary `start` up to `end`; stops at what cannot be a batch.

    Reads small windows, so neither a walk over small batches nor one over large ones reads much more than headers.
    Raises BlockingIOError with `nowait` when it would wait for the disk.
    """
    window: Buffer = b""
    window_start = position = start
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


def checksum_of(file: SegmentFile, position: int, size: int) -> int:
    """CRC-32C of what is checked of the batch of `size` bytes at `position`, read part by part. Raises OSError."""
    crc, end = 0, position + size
    for start in range(position + CRC_START, end, RECOVERY_WALK_BYTES):
        crc = crc32c_extended(crc, file.read(start, min(RECOVERY_WALK_BYTES, end - start)))
    return int(crc)


class CheckedScan:
    """A walk over the batches that are whole and right; `valid_bytes` and `stopped_by` say where and why it ended.

    A batch is right when its size fits, its magic is 2, its CRC matches and its offsets rise and lie in the
    segment. The attributes are true whenever the walk stands at a batch, and at its end.
    """

    def __init__(self, file: SegmentFile, base_offset: int, size: int) -> None:
        self.file = file
        self.size = size
        self.valid_bytes = 0
        self.next_offset = base_offset
        self.stopped_by = ""
        self.maximum = NO_TIMESTAMP, base_offset
        """(greatest timestamp in ms, last offset of the first batch that has it) so far."""
        self._base_offset = base_offset
        self._window = b""
        self._window_start = 0

    def __iter__(self) -> Iterator[ScannedBatch]:
        """Every batch."""
        return self.landmarks(EVERY_BATCH)

    def landmarks(self, index_interval_bytes: int) -> Iterator[ScannedBatch]:
        """Checks every batch, but stops only where recovery has something to note.

        Those are the batches that get an index entry, those that a producer numbered, and the first of each leader
        epoch. Of a log of small batches that is few, and a stop costs more than a check.
        """
        window, window_start = b"", 0
        position, next_offset, size = 0, self.next_offset, self.size
        offset_max = self._base_offset + INT_MAX
        greatest, greatest_at = self.maximum
        known_epoch, indexed, batch_size = NO_LEADER_EPOCH, 0, HEADER_SIZE
        unpack = HEADER.unpack_from
        while position < size:
            at = position - window_start
            if at + HEADER_SIZE > len(window):
                # The batch is likely as large as the one before it: then one read brings it whole.
                window, window_start, at = self._read(position, batch_size), position, 0
                if len(window) < HEADER_SIZE:
                    self.stopped_by = f"a batch header is cut after {len(window)} bytes"
                    break
            fields = unpack(window, at)
            base_offset, batch_length, epoch, magic, crc, _, delta, _, timestamp, producer_id, _, _, _ = (
                fields
            )
            batch_size = batch_length + LOG_OVERHEAD
            last_offset = base_offset + delta
            fits = HEADER_SIZE <= batch_size <= size - position
            if fits and batch_size > _LARGE_BYTES:
                fits = checksum_of(self.file, position, batch_size) == crc
            if fits and at + batch_size > len(window):
                window, window_start, at = self._read(position, batch_size), position, 0
            if not (
                fits
                and magic == MAGIC
                and next_offset <= base_offset <= last_offset <= offset_max
                and crc32c(window[at + CRC_START : at + batch_size]) == crc
            ):
                self.stopped_by = _fault(BatchHeader._make(fields), next_offset, offset_max, size - position)
                break
            next_offset = last_offset + 1
            if timestamp > greatest:
                greatest, greatest_at = timestamp, last_offset
            started, position = position, position + batch_size
            if producer_id >= 0 or epoch != known_epoch or started - indexed > index_interval_bytes:
                if started - indexed > index_interval_bytes:
                    indexed = started
                known_epoch = epoch
                self.valid_bytes, self.next_offset = position, next_offset
                self.maximum = greatest, greatest_at
                self._window, self._window_start = window, window_start
                yield ScannedBatch(started, BatchHeader._make(fields))
        self.valid_bytes, self.next_offset = position, next_offset
        self.maximum = greatest, greatest_at

    def batch(self, scanned: ScannedBatch) -> bytes:
        """The bytes of the batch at which the walk stands."""
        at = scanned.position - self._window_start
        return self._window[at : at + scanned.header.size_in_bytes]

    def _read(self, position: int, length: int) -> bytes:
        """At least `length` bytes from `position`, where the file has them; the disk then goes on by itself."""
        wanted = min(max(RECOVERY_WALK_BYTES, length), self.size - position)
        window = self.file.read(position, wanted)
        if position + wanted < self.size:
            self.file.expect_read(position + wanted, RECOVERY_WALK_BYTES)
        return window


def _fault(header: BatchHeader, next_offset: int, offset_max: int, remaining: int) -> str:
    """What is wrong with a batch, in words; its CRC if nothing else is."""
    size = header.size_in_bytes
    if not any(header):
        return f"{remaining} bytes that begin with zeros follow the last batch"
    if not HEADER_SIZE <= size <= remaining:
        return f"a batch of {size} bytes does not fit the {remaining} bytes left"
    if header.magic != MAGIC:
        return f"a batch has magic {header.magic}"
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        return f"offset {header.base_offset} follows offset {next_offset - 1}"
    if header.last_offset > offset_max:
        return f"offset {header.last_offset} is too far from the segment's base"
    return f"the CRC of the batch at offset {header.base_offset} is wrong"
