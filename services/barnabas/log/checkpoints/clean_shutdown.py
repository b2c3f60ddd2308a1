"""`.kafka_cleanshutdown`: that a log directory was closed properly, and under which broker epoch (KIP-966).

As Kafka's, with one thing more: which log directories of the node held nothing then. An operator may take those away.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from typing import Any, Final, NamedTuple

from barnabas.kernel.files import Files
from barnabas.log.checkpoints.partition_metadata import uuid_from_text, uuid_to_text
from barnabas.log.small_files import read_whole, remove_quietly, sync_directory, write_atomically

FILE_NAME = ".kafka_cleanshutdown"
UNKNOWN_BROKER_EPOCH = -1
"""Of a process that was never registered; markers of earlier releases say the same."""


class CleanShutdown(NamedTuple):
    """What the file says."""

    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    """That of the process which closed the directory; unknown also where records are gone since."""
    empty_log_directories: frozenset[uuid.UUID] = frozenset()
    """The ids of the node's log directories that held nothing then."""


UNKNOWN_PROCESS: Final = CleanShutdown()
"""Said of one that was never registered."""


def write_marker(files: Files, directory: str, marker: CleanShutdown) -> None:
    """The last thing that closing does; durable. Raises OSError; then there is none."""
    fields: dict[str, Any] = {"version": 0, "brokerEpoch": marker.broker_epoch}
    if marker.empty_log_directories:
        fields["emptyLogDirectories"] = sorted(map(uuid_to_text, marker.empty_log_directories))
    text = json.dumps(fields, separators=(",", ":"))
    path = os.path.join(directory, FILE_NAME)
    try:
        write_atomically(files, path, text.encode(), sync=True)
    except OSError:
        with contextlib.suppress(OSError):
            files.unlink(path)
        raise


def read_marker(files: Files, directory: str) -> CleanShutdown | None:
    """What it says; None if the directory was not closed properly. Raises OSError."""
    try:
        text = read_whole(files, os.path.join(directory, FILE_NAME))
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(text)
        epoch, empty = fields["brokerEpoch"], fields.get("emptyLogDirectories", [])
        return CleanShutdown(
            epoch if type(epoch) is int and epoch >= 0 else UNKNOWN_BROKER_EPOCH,
            frozenset(map(uuid_from_text, empty)),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return UNKNOWN_PROCESS  # Kafka's were empty once


def remove_marker(files: Files, directory: str) -> None:
    """Durably, if there is one; to be done before anything is written. Raises OSError."""
    remove_quietly(files, os.path.join(directory, FILE_NAME))
    sync_directory(files, directory)
