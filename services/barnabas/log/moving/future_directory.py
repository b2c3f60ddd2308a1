"""The directory of a future replica, and the file that goes with it when it takes the current one's place.

It is named `<topic>-<partition>.<id>-future`, as Kafka names it. `moved.properties` in it keeps, from just before the
change of places until they say it, what the checkpoints of its log directory are to say of the partition.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from typing import Final, NamedTuple

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.partition_metadata import FILE_NAME as PARTITION_METADATA
from barnabas.log.checkpoints.partition_metadata import directory_name, ensure_topic_id
from barnabas.log.deleted_directories import GONE_SUFFIX
from barnabas.log.errors import LogStoreError, storage_errors
from barnabas.log.small_files import exists, read_whole, remove_quietly, write_atomically

SUFFIX: Final = "-future"
FILE_NAME: Final = "moved.properties"

_NAME: Final = re.compile(rf"^(?P<topic>.+)-(?P<partition>\d+)\.[0-9a-f]{{32}}{SUFFIX}$")


class MoveFacts(NamedTuple):
    """What is kept over the change of places."""

    recovery_point: int
    log_start_offset: int
    high_watermark: int
    first_dirty_offset: int
    """How far the log is compacted; -1 for one that never was."""


def future_name(topic: str, partition: int, unique: uuid.UUID) -> str:
    """The name of a future replica's directory."""
    return f"{directory_name(topic, partition)}.{unique.hex}{SUFFIX}"


def parse_future_name(name: str) -> tuple[str, int] | None:
    """(topic, partition), or None when the directory is not a future replica's."""
    match = _NAME.match(name)
    return None if match is None else (match["topic"], int(match["partition"]))


def create_future(files: Files, path: str, name: str, topic_id: uuid.UUID) -> None:
    """An empty future replica in the log directory `path`. Raises KAFKA_STORAGE_ERROR."""
    directory = os.path.join(path, name)
    with storage_errors(directory):
        files.makedirs(directory)
        ensure_topic_id(files, directory, topic_id)


def begin_anew(files: Files, path: str, name: str) -> None:
    """Nothing is in the future replica's directory but whose it is: what another process has copied may have been
    taken back or compacted since, with nobody to say so. Raises KAFKA_STORAGE_ERROR.
    """
    directory = os.path.join(path, name)
    with storage_errors(directory):
        for each in files.listdir(directory):
            if each != PARTITION_METADATA:
                remove_quietly(files, os.path.join(directory, each))


def remove_future(files: Files, path: str, name: str) -> bool:
    """The future replica is wanted no longer. Renamed first, so that a crash leaves none that goes on; returns whether
    the disk let all of it go, which another call tries again. Raises KAFKA_STORAGE_ERROR.
    """
    directory = os.path.join(path, name)
    doomed = directory.removesuffix(SUFFIX) + GONE_SUFFIX
    with storage_errors(directory):
        with contextlib.suppress(FileNotFoundError):  # it has lost the name before
            files.rename(directory, doomed)
        files.remove_tree(doomed)
        return not exists(files, doomed)


def write_facts(files: Files, directory: str, facts: MoveFacts) -> None:
    """Write the file, durable. Raises OSError."""
    text = "".join(f"{name}={value}\n" for name, value in facts._asdict().items())
    write_atomically(files, os.path.join(directory, FILE_NAME), text.encode(), sync=True)


def read_facts(files: Files, directory: str) -> MoveFacts | None:
    """What the file says; None without one. Raises OSError, and LogStoreError for one that cannot be read."""
    path = os.path.join(directory, FILE_NAME)
    try:
        lines = read_whole(files, path).decode().splitlines()
        fields = dict(line.split("=", 1) for line in lines)
        return MoveFacts(*(int(fields[name]) for name in MoveFacts._fields))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise LogStoreError(
            f"{path} cannot be read ({error!r}): remove it to have the whole log checked"
        ) from error


def remove_facts(files: Files, directory: str) -> None:
    """The checkpoints say it. Raises OSError."""
    remove_quietly(files, os.path.join(directory, FILE_NAME))
