"""What lies in the directory of a partition: whether there is a log, and how far it is."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.kernel.files import Files
from barnabas.log.segments.segment import LOG_SUFFIX, file_name
from barnabas.log.segments.segment_end import read_end
from barnabas.log.segments.segment_factory import base_offset_of
from barnabas.records.batch import NO_LEADER_EPOCH


class LogProgress(NamedTuple):
    """How far a log is, as its last segments tell."""

    leader_epoch: int
    """That of the last batch; -1 without one."""
    end_offset: int
    """The offset behind it; -1 where there is no log."""

    def is_behind(self, other: LogProgress) -> bool:
        """Whether, of two copies of a partition, the other one has more (KIP-101), whichever was touched later.

        One without a batch has no epoch to go by. What was before its end counted, and was deleted: a copy that ends
        there, or earlier, is older, and one that ends later has something to lose.
        """
        if NO_LEADER_EPOCH in (self.leader_epoch, other.leader_epoch):
            return self.end_offset < other.end_offset
        return self < other


NO_LOG: Final = LogProgress(NO_LEADER_EPOCH, -1)


def has_log(files: Files, directory: str) -> bool:
    """Whether there is anything of a log, also one that a crash left half cut; False also without the directory.
    Raises OSError.
    """
    try:
        return any(LOG_SUFFIX in name for name in files.listdir(directory))
    except FileNotFoundError:
        return False


def may_have_log(files: Files, directory: str) -> bool:
    """The same as far as a start can tell: where it cannot be listed there may be, and whoever opens it hears of it."""
    try:
        return has_log(files, directory)
    except OSError:
        return True


def is_unused(files: Files, directory: str) -> bool:
    """Whether the log in a directory never had a record: it is as it was created. Raises OSError."""
    logs = [name for name in files.listdir(directory) if LOG_SUFFIX in name]
    return all(
        name == file_name(0, LOG_SUFFIX) and files.stat(f"{directory}/{name}").st_size == 0 for name in logs
    )


def log_progress(files: Files, directory: str) -> LogProgress:
    """How far the log in a directory is. Raises OSError."""
    try:
        found = map(base_offset_of, files.listdir(directory))
    except FileNotFoundError:
        return NO_LOG
    bases = sorted((base for base in found if base is not None), reverse=True)
    for base in bases:
        end = read_end(files, directory, base)
        if end.position:
            return LogProgress(end.leader_epoch, max(end.next_offset, bases[0]))
    return LogProgress(NO_LEADER_EPOCH, bases[0]) if bases else NO_LOG
