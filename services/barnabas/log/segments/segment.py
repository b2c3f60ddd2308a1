"""One segment: a file of record batches, its two indexes and its list of aborted transactions.

Positions are bytes in the `.log` file, offsets are absolute. Of batches only headers are read here, and what their
checksums cover; records are never decoded.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas.kernel.files import Files
from barnabas.kernel.kafka_values import INT_MAX
from barnabas.kernel.logs import get_logger
from barnabas.log.segments.index_file import read_entries
from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.open_segment import Cut, OpenSegment
from barnabas.log.segments.scan import CheckedScan, ScannedBatch, scan_headers
from barnabas.log.segments.segment_cache import SegmentCache
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.log.segments.time_index import TimeIndex
from barnabas.log.segments.transaction_index import TransactionIndex
from barnabas.log.small_files import not_there, remove_quietly, sync_path
from barnabas.records.batch import NO_TIMESTAMP, Buffer

logger = get_logger("log.segment")

LOG_SUFFIX = ".log"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
TEMPORARY_SUFFIX = ".tmp"
REWRITTEN_BYTES_MAX = 64 * 1024
"""Up to this size recovery writes a segment again where it would otherwise wait to read it from the disk."""
POSITION_HINTS_MAX = 64
"""Batch boundaries remembered per segment, so that a consumer's next fetch needs no lookup."""


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's name for a file of the segment: the base offset in 20 digits."""
    return f"{base_offset:020d}{suffix}"


OnBatch = Callable[[CheckedScan, ScannedBatch], None]
"""What recovery tells of the batches that it stops at."""


class AppendedBatch(NamedTuple):
    """What the indexes need to know of a batch that was written; `size` in bytes, `max_timestamp` in ms."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    size: int


class Segment:
    """Owner of one segment's size, greatest timestamp and indexes; changes come from the partition log only."""

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        size: int,
        index_bytes_max: int,
        index_interval_bytes: int,
        created_ms: int,
        cache: SegmentCache,
        jitter_ms: int = 0,
        stage: str = "",
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.stage = stage
        """What the names of all its files end with while it is not part of the log (`.cleaned`)."""
        self.size = size
        self.index_bytes_max = index_bytes_max
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.transaction_index = TransactionIndex(self.files, self.path(TransactionIndex.suffix))
        self._cache = cache
        self.is_flushed = False
        """Whether the disk is known to have all of it, indexes included."""
        self.are_indexes_doubtful = False
        """Whether the index files may be wrong (a crash came first, a write failed): they are built anew at opening."""
        self._open: OpenSegment | None = None
        self._retired: OpenSegment | None = None
        self._loading = threading.Lock()
        self._writing_indexes = threading.Lock()
        self._pinned = False
        """Whether it stays open whatever the cache says: it is active, or retired."""
        self._is_deleted = False
        self._maximum: tuple[int, int] | None = None
        self._first_timestamp: int | None = None
        self._last_indexed_position = 0
        self.hints: dict[int, int] = {}
        """Offset to position, of batches that readers will ask for; a new dictionary where positions change."""

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}{self.stage}"

    # -- opening ------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def open(self) -> OpenSegment:
        """The segment's descriptor and indexes; an index that is missing or does not fit the log is built anew."""
        opened = self._open
        if opened is None:
            with self._loading:
                opened = self._retired or self._open or self._load()
                self._open = opened
        if not self._pinned:
            self._cache.touch(self)
        return opened

    def _load(self) -> OpenSegment:
        self._check_names()
        file = SegmentFile(self.files, self.path(LOG_SUFFIX))
        offsets = read_entries(self.files, self.path(OffsetIndex.suffix), OffsetIndex.entry.size)
        times = read_entries(self.files, self.path(TimeIndex.suffix), TimeIndex.entry.size)
        opened = self._with_indexes(file, offsets or b"", times or b"")
        sane = opened.offset_index.is_sane(self.size) and opened.time_index.is_sane()
        # Times are those of records: an index without, or of a segment without, is a former one's.
        sane = sane and bool(self.size) == bool(times)
        if offsets is None or times is None or not sane or self.are_indexes_doubtful:
            # Until it is done: one that is written half, or not at all, may look as if it were right.
            self.are_indexes_doubtful = True
            former, opened = opened.offset_index, self._with_indexes(file, b"", b"")
            opened.forget_index_files()
            indexed = opened.build_indexes(former, self.size, self.index_interval_bytes)
            with self._writing_indexes:
                self._check_names()
                opened.offset_index.flush()
                opened.time_index.flush()
            # Nobody sees that of a part, which would hide the records of the rest from look-ups by time.
            self._maximum, self.are_indexes_doubtful = indexed.maximum, False
        self._last_indexed_position = opened.offset_index.last_position()
        self._check_names()
        return opened

    def _check_names(self) -> None:
        """Raises FileNotFoundError once the segment was dropped: what has its files' names may be another's."""
        if self._is_deleted:
            raise not_there(self.path(LOG_SUFFIX))

    def _with_indexes(self, file: SegmentFile, offsets: bytes, times: bytes) -> OpenSegment:
        return OpenSegment(
            file,
            OffsetIndex(
                self.files, self.path(OffsetIndex.suffix), self.base_offset, self.index_bytes_max, offsets
            ),
            TimeIndex(self.files, self.path(TimeIndex.suffix), self.base_offset, self.index_bytes_max, times),
        )

    def create_files(self) -> None:
        """Create the segment's files, empty, and keep it open as the active one. Raises OSError; some of the files
        may then be there.
        """
        file = SegmentFile(self.files, self.path(LOG_SUFFIX), create=True)
        self.transaction_index.clear()
        self._open = self._with_indexes(file, b"", b"")
        self._open.offset_index.clear()
        self._open.time_index.clear()
        self.flush_indexes()
        self.transaction_index.start_empty()
        self._pinned = True

    def remove_files(self) -> None:
        """Remove what `create_files` made; the `.log` last, by which the rest is known. Raises OSError."""
        for suffix in (OffsetIndex.suffix, TimeIndex.suffix, TransactionIndex.suffix, LOG_SUFFIX):
            remove_quietly(self.files, self.path(suffix))

    def pin(self) -> None:
        """Keep the segment open: it is the active one. An append then finds in memory all that it asks for, and what
        its indexes have in memory alone stays.
        """
        self._pinned = True
        self._cache.forget(self)
        self.open()
        self.maximum()
        self.first_timestamp()
        self.transaction_index.entries()

    def unpin(self) -> None:
        """Leave it to the cache how long the segment stays open."""
        self._pinned = False
        self._cache.touch(self)

    def evict(self) -> None:
        """The cache has no room for it: let go of it, unless it is pinned, or its indexes are not written."""
        opened = self._open
        if not self._pinned and opened is not None and opened.are_indexes_written:
            self.release()

    def release(self) -> None:
        """Let go of descriptor and indexes; the next use opens them again."""
        self._open = None
        self.hints = {}

    def retire(self) -> None:
        """Other files take the segment's names: whoever still reads it goes on with the ones that it has now."""
        self.transaction_index.entries()
        with self._loading:
            self._retired = self._open or self._load()
        self._pinned = True
        self._cache.forget(self)

    def keep(self) -> None:
        """Its names stay its own after all: undoes `retire`."""
        self._retired = None
        self.unpin()

    @contextlib.contextmanager
    def hold_names(self) -> Iterator[None]:
        """Nobody opens a file of it meanwhile: what readers may come to ask for by its name later is read before."""
        self.transaction_index.entries()
        with self._loading:
            yield

    def follow(self, directory: str) -> None:
        """Its files are in `directory` now; within `hold_names`, and that of the lock of upkeep."""
        self.directory = directory
        self.transaction_index.path = self.path(TransactionIndex.suffix)
        for opened in filter(None, (self._open, self._retired)):
            opened.offset_index.path = self.path(OffsetIndex.suffix)
            opened.time_index.path = self.path(TimeIndex.suffix)

    # -- writing ------------------------------------------------------------------------------------------------

    def append(
        self, parts: Sequence[Buffer], batches: Sequence[tuple[int, int, int, int]], length: int
    ) -> None:
        """Write `parts` (`length` bytes, the `batches` back to back) at the end; each is an AppendedBatch, or a tuple
        of the same values.

        Raises OSError; bytes behind `size` may then stand in the file, which `remove_rest` has to remove before the
        next append. Once the bytes are written nothing fails: indexes only grow in memory.
        """
        opened = self._open or self.open()
        position = self.size
        opened.file.write(parts, position, length)
        self.is_flushed = False
        hints = self.hints
        if len(hints) >= POSITION_HINTS_MAX:
            hints.clear()
        hints[batches[0][0]] = position
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = batches[0][2]
        for _, last_offset, max_timestamp, size in batches:
            self._index(opened, position, last_offset, max_timestamp)
            position += size
        # Last, so that a reader in another thread never sees a size that is not written.
        self.size = position

    def remove_rest(self) -> None:
        """Remove what an append that failed may have left behind the end. Raises OSError."""
        self.open().file.truncate(self.size)

    def _index(self, opened: OpenSegment, position: int, last_offset: int, max_timestamp: int) -> None:
        maximum = self._maximum
        if maximum is None:
            maximum = self._maximum = opened.time_index.last()
        if max_timestamp > maximum[0]:
            maximum = self._maximum = (max_timestamp, last_offset)
        if position - self._last_indexed_position > self.index_interval_bytes:
            opened.offset_index.append(last_offset, position)
            opened.time_index.append_if_later(*maximum)
            self._last_indexed_position = position

    def should_roll(
        self, length: int, last_offset: int, max_timestamp: int, now_ms: int, limits: RollLimits
    ) -> bool:
        """Whether `length` more bytes up to `last_offset` belong in a new segment."""
        size = self.size
        if size == 0:
            return last_offset - self.base_offset > INT_MAX
        if size + length > limits.segment_bytes or last_offset - self.base_offset > INT_MAX:
            return True
        if size - self._last_indexed_position > self.index_interval_bytes:
            # Only then the append adds to the indexes.
            opened = self._open or self.open()
            if opened.offset_index.is_full or opened.time_index.is_full:
                return True
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp()
        waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return waited > limits.segment_ms - self.jitter_ms

    def finish(self) -> None:
        """The last time index entry, and the indexes written: before a roll and before closing. Raises OSError."""
        opened = self._open or self.open()
        timestamp, offset = self.maximum()
        if timestamp >= 0:
            opened.time_index.append_if_later(timestamp, offset)
        self.flush_indexes()

    def flush_indexes(self) -> None:
        """Write the index entries so far. Raises OSError."""
        with self._writing_indexes:
            opened = self._open
            if opened is not None:
                opened.offset_index.flush()
                opened.time_index.flush()
            self.transaction_index.flush()

    def sync(self) -> None:
        """Make a finished segment durable: data first, then what can be rebuilt from it. Raises SyncError, OSError."""
        self.open().file.sync()
        self.flush_indexes()
        for suffix in (OffsetIndex.suffix, TimeIndex.suffix, TransactionIndex.suffix, SNAPSHOT_SUFFIX):
            sync_path(self.files, self.path(suffix))
        self.is_flushed = True

    def sync_data(self) -> None:
        """Make the batches of the active segment durable: after a crash its indexes are built anew."""
        self.open().file.sync()

    # -- recovery and truncation --------------------------------------------------------------------------------

    def recover(self, on_batch: OnBatch, *, is_active: bool) -> CheckedScan:
        """Check every batch and rebuild the indexes. Returns the finished scan; the segment ends where it ended: if
        that is before the file's end, `cut` has to follow. `on_batch` gets the scan's `landmarks`.

        Nothing is synced here, but a later sync vouches for what was checked: after a sync that failed, memory may
        hold what the disk does not, without knowing it. So a large segment is read from the disk, but for what memory
        still has to write, and a small one, which is cheaper, is handed to memory to be written again. The indexes of
        the active segment reach their files when it is flushed or rolled: until then a crash builds them anew.
        """
        self.release()
        self.is_flushed = False
        file = SegmentFile(self.files, self.path(LOG_SUFFIX))
        size = file.size()
        is_small = size <= REWRITTEN_BYTES_MAX
        if not is_small:
            file.forget_cached()
        opened = self._with_indexes(file, b"", b"")
        opened.forget_index_files()
        scan = CheckedScan(file, self.base_offset, size)
        self.transaction_index.clear()
        self._last_indexed_position = 0
        for scanned in scan.landmarks(self.index_interval_bytes):
            self._maximum = scan.maximum
            self._index(opened, scanned.position, scanned.header.last_offset, NO_TIMESTAMP)
            on_batch(scan, scanned)
        self._maximum = scan.maximum
        if is_small and scan.valid_bytes:
            file.write([file.read(0, scan.valid_bytes)], 0, scan.valid_bytes)
        self.size = scan.valid_bytes
        self._first_timestamp = None
        self._open = opened
        if not is_active:
            self.finish()
        return scan

    def cut(self) -> None:
        """Drop what the file holds behind the segment's end, durably: it must not come back behind new records."""
        file = self.open().file
        file.truncate(self.size)
        file.sync()

    def find_cut(self, offset: int) -> Cut:
        """Where to `cut_at` so that every batch goes that reaches `offset`: the next offset is then at most `offset`.

        What a damaged batch has in doubt goes as well: the end may then come out lower than any batch would have it.
        Raises OSError.
        """
        self.transaction_index.entries()
        cut = self.open().find_cut(offset, self.size)
        if cut.is_early:
            logger.warning(
                "a batch is damaged: more is cut than was asked for, to be copied again",
                segment=self.path(LOG_SUFFIX),
                asked=offset,
                log_end_offset=cut.next_offset,
            )
        return cut

    def cut_at(self, cut: Cut) -> None:
        """Drop the batches from there on, and all that the file has behind them, durably.

        Raises OSError: file, size and indexes may then disagree, and the log has to be opened anew.
        """
        indexed = self.open().cut_indexes(cut.next_offset, cut.position)
        self.size = cut.position
        self.cut()
        self.is_flushed = False
        self.hints = {}
        if cut.position == 0:
            self._first_timestamp = None
        self._maximum, self._last_indexed_position = indexed
        self.transaction_index.truncate_to(cut.next_offset)

    # -- reading ------------------------------------------------------------------------------------------------

    def find(self, offset: int, *, nowait: bool = False) -> ScannedBatch | None:
        """The first batch that ends at or after `offset`; None when the segment ends before it."""
        opened = self._open or self.open()
        start = self.hints.get(offset)
        if start is None:
            start = opened.offset_index.position_for(offset)
        for scanned in scan_headers(opened.file, start, self.size, nowait=nowait):
            if scanned.header.last_offset >= offset:
                return scanned
        return None

    def position_of(self, offset: int, *, nowait: bool = False) -> int:
        """Where the first batch that ends at or after `offset` begins; the segment's size when there is none."""
        hint = self.hints.get(offset)
        if hint is not None:
            return hint
        found = self.find(offset, nowait=nowait)
        return self.size if found is None else found.position

    def boundary_not_after(self, start: int, limit: int, *, nowait: bool = False) -> tuple[int, int | None]:
        """(position, offset) after the last whole batch that ends at or before `limit`, the first batch at least.

        `start` is a batch boundary before `limit`; the offset is None where no header had to be read to know.
        """
        opened = self._open or self.open()
        end = max(start, opened.offset_index.position_not_after(limit))
        next_offset: int | None = None
        for position, header in scan_headers(opened.file, end, self.size, nowait=nowait):
            after = position + header.size_in_bytes
            if after > limit and position > start:
                break
            end, next_offset = after, header.next_offset
            if end >= limit:
                break
        return end, next_offset

    def maximum(self) -> tuple[int, int]:
        """(timestamp in ms, last offset of the first batch that has it); (-1, base offset) without timestamps."""
        maximum = self._maximum
        if maximum is None:
            maximum = self._maximum = self.open().time_index.last()
        return maximum

    def largest_timestamp(self) -> int:
        """The greatest timestamp in ms; of the file's last change when its records have none."""
        timestamp, _ = self.maximum()
        if timestamp >= 0:
            return timestamp
        return self.files.stat(self.path(LOG_SUFFIX)).st_mtime_ns // 1_000_000

    def first_timestamp(self) -> int:
        """The max timestamp in ms of the first batch, from which the segment's age counts; -1 when empty."""
        if self._first_timestamp is None:
            first = next(scan_headers(self.open().file, 0, self.size), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.header.max_timestamp
        return self._first_timestamp

    # -- removal ------------------------------------------------------------------------------------------------

    def mark_deleted(self) -> list[str]:
        """Rename the segment's files out of the log; returns their new paths. Readers may finish.

        Raises OSError with the segment whole. The `.log` goes first: without its name the segment is gone, and what
        cannot be renamed after it belongs to nobody and goes when the log is opened next.
        """
        path = self.path(LOG_SUFFIX)
        marked = []
        with contextlib.suppress(FileNotFoundError):
            self.files.rename(path, path + DELETED_SUFFIX)
            marked.append(path + DELETED_SUFFIX)
        with self._writing_indexes:  # nobody writes one by its name any more
            self._is_deleted = True
        for suffix in (OffsetIndex.suffix, TimeIndex.suffix, TransactionIndex.suffix, SNAPSHOT_SUFFIX):
            path = self.path(suffix)
            with contextlib.suppress(OSError):
                self.files.rename(path, path + DELETED_SUFFIX)
                marked.append(path + DELETED_SUFFIX)
        self._cache.forget(self)
        self.release()
        return marked


class RollLimits(NamedTuple):
    """The settings that end a segment: bytes, and ms by record timestamps."""

    segment_bytes: int
    segment_ms: int


def remove_marked(files: Files, paths: Sequence[str]) -> None:
    """Remove files that `mark_deleted` renamed. What cannot be removed now goes when the log is opened next."""
    for path in paths:
        with contextlib.suppress(OSError):
            files.unlink(path)
