"""Directories of partitions that are deleted: renamed first, so that none comes back half after a crash.

They are named `<topic>-<partition>.<unique>-delete`, as Kafka names them; nothing else has that name.
"""

from __future__ import annotations

import os
import uuid
from typing import Final

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.partition_metadata import directory_name
from barnabas.log.small_files import is_directory

SUFFIX: Final = "-delete"


def deleted_name(topic: str, partition: int, unique: uuid.UUID) -> str:
    """The name of the directory of a partition that is deleted."""
    return f"{directory_name(topic, partition)}.{unique.hex}{SUFFIX}"


def remove_deleted(files: Files, path: str) -> None:
    """What a crash has left of deletions in the log directory `path`. Raises OSError."""
    for name in files.listdir(path):
        directory = os.path.join(path, name)
        if name.endswith(SUFFIX) and is_directory(files, directory):
            files.remove_tree(directory)
