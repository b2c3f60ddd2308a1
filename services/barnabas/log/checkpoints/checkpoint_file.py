"""Kafka's checkpoint files: a version line, a count line, then one line of words per entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas.kernel.files import Files
from barnabas.log.errors import LogStoreError
from barnabas.log.small_files import read_whole, write_atomically

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
"""Offsets up to which each log is known to be on disk, indexes included (see `LogFlusher.recovery_checkpoint`)."""
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
"""High watermarks."""
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
"""Log start offsets, where they differ from the first segment's."""
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
"""Offsets up to which logs have been compacted."""

_VERSION = 0

PartitionKey = tuple[str, int]


def read_checkpoint(files: Files, path: str, *, columns: int) -> list[tuple[str, ...]]:
    """The rows; none for a missing or empty file. Raises LogStoreError for a file that is not a checkpoint."""
    try:
        lines = read_whole(files, path).decode().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise LogStoreError(f"{path} is not text; remove it to have it built anew") from None
    if len(lines) < 2:
        return []
    rows = [tuple(line.split(" ")) for line in lines[2:]]
    if lines[0] != str(_VERSION) or lines[1] != str(len(rows)) or not _are_well_formed(rows, columns):
        raise LogStoreError(f"{path} is malformed; remove it to have it built anew")
    return rows


def _are_well_formed(rows: Iterable[Sequence[str]], columns: int) -> bool:
    """Whether each row has as many words, the last two of them numbers. A node reads thousands of files."""
    for row in rows:
        if len(row) != columns:
            return False
        if not (row[-1].removeprefix("-").isdigit() and row[-2].removeprefix("-").isdigit()):
            return False
    return True


def write_checkpoint(files: Files, path: str, rows: Iterable[Sequence[str]], *, sync: bool) -> None:
    """Replace the file in one step; with `sync` it survives a power cut."""
    lines = [" ".join(row) for row in rows]
    text = "\n".join([str(_VERSION), str(len(lines)), *lines]) + "\n"
    write_atomically(files, path, text.encode(), sync=sync)


def read_offsets(files: Files, path: str) -> dict[PartitionKey, int]:
    """(topic, partition) to offset."""
    return {
        (topic, int(partition)): int(offset)
        for topic, partition, offset in read_checkpoint(files, path, columns=3)
    }


def write_offsets(files: Files, path: str, offsets: Mapping[PartitionKey, int]) -> None:
    """The inverse of `read_offsets`, durable."""
    rows = [(topic, str(partition), str(offset)) for (topic, partition), offset in sorted(offsets.items())]
    write_checkpoint(files, path, rows, sync=True)
