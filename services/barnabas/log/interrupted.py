"""What a crash leaves half done in a partition directory: removals, and segments being swapped for compacted ones.

Kafka's suffixes: `.deleted` is on its way out, `.cleaned` is a compacted segment still being written, `.swap` a
compacted segment that is complete and replaces the segments whose offsets it covers.
"""

from __future__ import annotations

import os

from barnabas.log.scan import scan_headers
from barnabas.log.segment import DELETED_SUFFIX, LOG_SUFFIX
from barnabas.log.segment_file import SegmentFile

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_TEMPORARY_SUFFIX = ".tmp"


def finish_interrupted_work(directory: str) -> None:
    """Remove what was to be removed and finish every swap that had begun. Raises OSError."""
    names = os.listdir(directory)
    for name in names:
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, _TEMPORARY_SUFFIX)):
            os.unlink(os.path.join(directory, name))
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            _remove_covered(directory, name)
    for name in swaps:
        path = os.path.join(directory, name)
        os.replace(path, path.removesuffix(SWAP_SUFFIX))


def _remove_covered(directory: str, swap_name: str) -> None:
    """Remove the segment files whose offsets the compacted segment covers."""
    base_offset = int(swap_name.removesuffix(LOG_SUFFIX + SWAP_SUFFIX))
    file = SegmentFile(os.path.join(directory, swap_name))
    end_offset = base_offset
    for _, header in scan_headers(file, 0, file.size()):
        end_offset = header.next_offset
    for name in os.listdir(directory):
        stem = name.split(".", 1)[0]
        covered = stem.isdigit() and base_offset <= int(stem) < end_offset
        if covered and not name.endswith((SWAP_SUFFIX, ".snapshot")):
            os.unlink(os.path.join(directory, name))
