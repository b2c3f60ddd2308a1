"""Closing the logs of a directory, several at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import Files
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.checkpoints.partition_metadata import parse_directory_name
from barnabas.log.errors import storage_errors
from barnabas.log.partition_log import PartitionLog
from barnabas.log.small_files import sync_file_system

CLOSING_THREADS = 16
"""Logs that are closed at once. Closing is waiting for syncs, and one commit of a journal serves all that wait."""

KeyT = TypeVar("KeyT")


def close_logs(
    path: str, logs: Mapping[KeyT, PartitionLog], environment: Environment
) -> dict[KeyT, KafkaError | None]:
    """Close every log of the directory `path`; returns what failed, by log. Several at once, for they mostly wait for
    syncs, and the file system does those of many files together: thousands have to fit the time that a stop is given.
    Raises KAFKA_STORAGE_ERROR, with none closed, where the machine grants no thread for it.
    """
    with contextlib.suppress(OSError):  # the sync of each log says whether it is on the disk
        sync_file_system(environment.files, path)
    logs = dict(logs)
    with storage_errors(path), environment.threads.executor("close", CLOSING_THREADS) as closing:
        errors = list(closing.map(_close_log, list(logs.values())))
    return dict(zip(logs, errors, strict=True))


def check_all_closed(files: Files, path: str, is_closed_properly: Callable[[PartitionKey], bool]) -> None:
    """Raises KAFKA_STORAGE_ERROR for a partition on disk that was not closed properly, and OSError."""
    for name in files.listdir(path):
        key = parse_directory_name(name)
        if key is not None and not is_closed_properly(key):
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"{os.path.join(path, name)} was not opened and closed properly",
            )


def _close_log(log: PartitionLog) -> KafkaError | None:
    try:
        log.close()
    except KafkaError as error:
        return error
    return None
