"""Partitions that are set aside: nobody said that they are deleted, and nobody knows them any more.

Their directories are renamed to `<topic>-<partition>.<topic id>-stray`, as Kafka names them, so that a topic of the
same name finds its place free. `stray.properties` in the directory keeps what the checkpoints said of the partition,
and since when it is there: the partition can be taken back as it was, by whoever knows its topic id.
"""

from __future__ import annotations

import os
import re
import uuid
from typing import Final, NamedTuple

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.partition_metadata import cut_name
from barnabas.log.log_progress import LogProgress, log_progress
from barnabas.log.small_files import is_directory, read_whole, remove_quietly, write_atomically

SUFFIX: Final = "-stray"
FILE_NAME: Final = "stray.properties"

_NAME: Final = re.compile(rf"^(?P<topic>.+)-(?P<partition>\d+)\.(?P<topic_id>[0-9a-f]{{32}}){SUFFIX}$")


class StrayKey(NamedTuple):
    """What a stray partition is found by."""

    topic_id: uuid.UUID
    partition: int


class StrayFacts(NamedTuple):
    """What is to be known of a partition while it is set aside."""

    topic: str
    since_ms: int
    """When it was set aside, in ms since 1970."""
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    first_dirty_offset: int = -1
    """How far the log is compacted; -1 for one that never was."""


def stray_name(topic: str, key: StrayKey) -> str:
    """The name of the directory of a partition that is set aside."""
    return cut_name(topic, f"-{key.partition}.{key.topic_id.hex}{SUFFIX}")


def parse_stray_name(name: str) -> StrayKey | None:
    """Which partition is set aside in the directory; None when it is another kind of directory."""
    match = _NAME.match(name)
    return None if match is None else StrayKey(uuid.UUID(hex=match["topic_id"]), int(match["partition"]))


def write_facts(files: Files, directory: str, facts: StrayFacts) -> None:
    """Write the file, durable."""
    text = "".join(f"{name}={value}\n" for name, value in facts._asdict().items())
    write_atomically(files, os.path.join(directory, FILE_NAME), text.encode(), sync=True)


def read_facts(files: Files, directory: str) -> StrayFacts:
    """What the file says. Without one, or with one that cannot be read, the directory's own name and time."""
    try:
        lines = read_whole(files, os.path.join(directory, FILE_NAME)).decode().splitlines()
        fields = dict(line.split("=", 1) for line in lines)
        return StrayFacts(fields.pop("topic"), *(int(fields[name]) for name in StrayFacts._fields[1:]))
    except (FileNotFoundError, ValueError, KeyError):
        match = _NAME.match(os.path.basename(directory))
        assert match is not None, f"{directory} is not the directory of a stray partition"
        return StrayFacts(match["topic"], files.stat(directory).st_mtime_ns // 1_000_000)


class FoundStray(NamedTuple):
    """A partition that was set aside, as a start found it."""

    directory: str
    """The path of its directory."""
    facts: StrayFacts

    def progress(self, files: Files) -> LogProgress:
        """How far its log is; asked only where another copy may have more. Raises OSError."""
        return log_progress(files, self.directory)


def find_strays(files: Files, path: str) -> dict[StrayKey, FoundStray]:
    """Every partition that is set aside in a log directory. Raises OSError."""
    found = {}
    for name in sorted(files.listdir(path)):
        key, directory = parse_stray_name(name), os.path.join(path, name)
        if key is not None and is_directory(files, directory):
            found[key] = FoundStray(directory, read_facts(files, directory))
    return found


def remove_facts(files: Files, directory: str) -> None:
    """The partition was taken back."""
    remove_quietly(files, os.path.join(directory, FILE_NAME))
