"""What a crash leaves half done in a partition directory: removals, and segments being swapped for compacted ones.

Kafka's suffixes: `.deleted` is on its way out, `.cleaned` is a compacted segment still being written, `.swap` a
compacted segment that is complete and replaces the segments whose offsets it covers. See `segment_swap` for the
order in which a swap renames: `.log.swap` is there from the moment that the swap counts to its end.
"""

from __future__ import annotations

import os

from barnabas.kernel.files import Files
from barnabas.log.cleaning.segment_swap import SWAP_SUFFIX, SWAPPED_SUFFIXES, take_final_names
from barnabas.log.segments.scan import scan_headers
from barnabas.log.segments.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    file_name,
)
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.log.small_files import exists, remove_quietly

_INTERRUPTED_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)


def finish_interrupted_work(files: Files, directory: str) -> list[str]:
    """Remove what was to be removed and finish every swap that had begun; returns the files there are then.

    Raises OSError.
    """
    names = files.listdir(directory)
    if not any(name.endswith(_INTERRUPTED_SUFFIXES) for name in names):
        return names
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            files.unlink(os.path.join(directory, name))
    for name in names:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base_offset = int(name.removesuffix(LOG_SUFFIX + SWAP_SUFFIX))
            _remove_covered(files, directory, base_offset)
            take_final_names(files, directory, base_offset)
    # Those without their log: the swap had not begun, and the log stands as it was.
    for name in names:
        if name.endswith(SWAP_SUFFIX):
            remove_quietly(files, os.path.join(directory, name))
    return files.listdir(directory)


def _remove_covered(files: Files, directory: str, base_offset: int) -> None:
    """Remove the segments whose offsets the compacted segment covers, the one with its name last and `.log` last.

    Once that `.log` is gone all the others are, and the files of this name are the new segment's.
    """
    own_log = os.path.join(directory, file_name(base_offset, LOG_SUFFIX))
    if not exists(files, own_log):
        return
    file = SegmentFile(files, own_log + SWAP_SUFFIX)
    end_offset = base_offset + 1
    for _, header in scan_headers(file, 0, file.size()):
        end_offset = header.next_offset
    for name in sorted(files.listdir(directory), reverse=True):
        stem, _, suffix = name.partition(".")
        covered = stem.isdigit() and base_offset < int(stem) < end_offset
        if covered and not name.endswith(SWAP_SUFFIX) and "." + suffix != SNAPSHOT_SUFFIX:
            files.unlink(os.path.join(directory, name))
    for suffix in SWAPPED_SUFFIXES:
        remove_quietly(files, os.path.join(directory, file_name(base_offset, suffix)))
