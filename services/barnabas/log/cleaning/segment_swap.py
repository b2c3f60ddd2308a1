"""The files of a compacted segment take the place of those that it was made of; a crash may come at any step.

    1. `.cleaned` becomes `.swap`, `.log` last: from then on the swap counts, whatever happens.
    2. The old segments become `.deleted`, the one with the new segment's name last and its `.log` last.
    3. `.swap` goes from the names, `.log` last.

So an `.index.swap` without its `.log.swap` belongs to a swap that had not begun, and as long as the old `.log`
stands beside `.log.swap` the old files of that name have not all gone. `interrupted` goes on from any of these.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from barnabas.kernel.files import Files
from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    Segment,
    file_name,
)
from barnabas.log.segments.time_index import TimeIndex
from barnabas.log.segments.transaction_index import TransactionIndex
from barnabas.log.small_files import remove_quietly

SWAP_SUFFIX = ".swap"
SWAPPED_SUFFIXES = (OffsetIndex.suffix, TimeIndex.suffix, TransactionIndex.suffix, LOG_SUFFIX)
"""A segment's files in the order in which they are renamed."""


def begin_swap(files: Files, directory: str, base_offset: int) -> None:
    """The first step, for the `.cleaned` files of `base_offset`. Raises OSError; the swap has not begun then."""
    # An index of a swap that did not begin must not be taken for one of this.
    for suffix in SWAPPED_SUFFIXES:
        remove_quietly(files, os.path.join(directory, file_name(base_offset, suffix) + SWAP_SUFFIX))
    rename_all(files, directory, base_offset, CLEANED_SUFFIX, SWAP_SUFFIX)


def finish_swap(files: Files, directory: str, base_offset: int, old: Sequence[Segment]) -> list[str]:
    """Put the `.swap` files of `base_offset` in the place of the `old` segments; returns the files to remove.

    `old[0]` has the same base offset; its producer snapshot stays, being the state before its first record. Raises
    OSError; then only opening the log anew knows how to go on.
    """
    marked: list[str] = []
    for segment in reversed(old):
        if segment.base_offset != base_offset:
            marked += _mark_deleted(files, segment.path(SNAPSHOT_SUFFIX))
        for suffix in SWAPPED_SUFFIXES:
            marked += _mark_deleted(files, segment.path(suffix))
    take_final_names(files, directory, base_offset)
    return marked


def take_final_names(files: Files, directory: str, base_offset: int) -> None:
    """The last step of a swap. Raises OSError."""
    rename_all(files, directory, base_offset, SWAP_SUFFIX, "")


def remove_cleaned(files: Files, directory: str, base_offset: int) -> None:
    """Remove what was written of a compacted segment that is not wanted any more."""
    for suffix in SWAPPED_SUFFIXES:
        remove_quietly(files, os.path.join(directory, file_name(base_offset, suffix) + CLEANED_SUFFIX))


def rename_all(files: Files, directory: str, base_offset: int, old_stage: str, new_stage: str) -> None:
    """Give a segment's files other ends of their names, the `.log` last. Raises OSError."""
    for suffix in SWAPPED_SUFFIXES:
        path = os.path.join(directory, file_name(base_offset, suffix))
        # There need be no .txnindex; after a crash, files before .log may have been renamed already.
        missing_is_fine = (
            contextlib.nullcontext() if suffix == LOG_SUFFIX else contextlib.suppress(FileNotFoundError)
        )
        with missing_is_fine:
            files.rename(path + old_stage, path + new_stage)


def _mark_deleted(files: Files, path: str) -> list[str]:
    try:
        files.rename(path, path + DELETED_SUFFIX)
    except FileNotFoundError:
        return []
    return [path + DELETED_SUFFIX]
