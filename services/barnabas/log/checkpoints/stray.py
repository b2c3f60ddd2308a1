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
from barnabas.log.segments.segment import LOG_SUFFIX, file_name
from barnabas.log.small_files import is_directory, read_whole, remove_quietly, write_atomically
from barnabas.records.batch import iterate_headers

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


def find_strays(files: Files, path: str) -> dict[StrayKey, StrayFacts]:
    """Every partition that is set aside in a log directory. Raises OSError."""
    found = {}
    for name in sorted(files.listdir(path)):
        key = parse_stray_name(name)
        if key is not None and is_directory(files, os.path.join(path, name)):
            found[key] = read_facts(files, os.path.join(path, name))
    return found


def is_unused(files: Files, directory: str) -> bool:
    """Whether the log in a directory never had a record: it is as it was created."""
    logs = [name for name in files.listdir(directory) if LOG_SUFFIX in name]
    return all(
        name == file_name(0, LOG_SUFFIX) and files.stat(f"{directory}/{name}").st_size == 0 for name in logs
    )


def log_progress(files: Files, directory: str) -> tuple[int, int]:
    """(leader epoch of the last batch, offset behind it) of the log in a directory, as far as its last segment tells:
    of two copies of a partition the one with more of it (KIP-101), whichever was touched later. Raises OSError.
    """
    bases = [int(name[: -len(LOG_SUFFIX)]) for name in files.listdir(directory) if name.endswith(LOG_SUFFIX)]
    epoch, end = -1, max(bases, default=0)
    for base in sorted(bases, reverse=True):
        for _, header in iterate_headers(
            read_whole(files, os.path.join(directory, file_name(base, LOG_SUFFIX)))
        ):
            epoch, end = header.partition_leader_epoch, header.base_offset + header.last_offset_delta + 1
        if epoch >= 0:
            break
    return epoch, end


def remove_facts(files: Files, directory: str) -> None:
    """The partition was taken back."""
    remove_quietly(files, os.path.join(directory, FILE_NAME))
