"""The cluster that the log directories of a node belong to."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.meta_properties import read_meta_properties
from barnabas.log.errors import LogStoreError


def find_cluster_id(files: Files, paths: Sequence[str]) -> str:
    """The cluster that the directories belong to; empty when all that can be read are new. Raises LogStoreError."""
    failed = []
    for path in paths:
        try:
            properties = read_meta_properties(files, path)
        except LogStoreError as error:
            if not is_disk_failure(error):
                raise
            failed.append(error)
            continue
        if properties is not None:
            return properties.cluster_id
    if len(failed) == len(paths):
        raise failed[0]
    return ""


def is_disk_failure(error: LogStoreError) -> bool:
    """Whether a directory cannot be used because its disk refuses, not because of what it holds."""
    return isinstance(error.__cause__, OSError)
