"""`.kafka_cleanshutdown`: that a log directory was closed properly, and under which broker epoch (KIP-966)."""

from __future__ import annotations

import contextlib
import json
import os

from barnabas.kernel.files import Files
from barnabas.log.small_files import read_whole, remove_quietly, sync_directory, write_atomically

FILE_NAME = ".kafka_cleanshutdown"
UNKNOWN_BROKER_EPOCH = -1
"""Of a process that was never registered; markers of earlier releases say the same."""


def write_marker(files: Files, directory: str, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
    """The last thing that closing does; durable. Raises OSError; then there is none."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    path = os.path.join(directory, FILE_NAME)
    try:
        write_atomically(files, path, text.encode(), sync=True)
    except OSError:
        with contextlib.suppress(OSError):
            files.unlink(path)
        raise


def read_marker(files: Files, directory: str) -> int | None:
    """The broker epoch under which the directory was closed properly; None if it was not. Raises OSError."""
    try:
        text = read_whole(files, os.path.join(directory, FILE_NAME))
    except FileNotFoundError:
        return None
    try:
        epoch = json.loads(text)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return UNKNOWN_BROKER_EPOCH  # Kafka's were empty once
    return epoch if type(epoch) is int and epoch >= 0 else UNKNOWN_BROKER_EPOCH


def remove_marker(files: Files, directory: str) -> None:
    """Durably, if there is one; to be done before anything is written. Raises OSError."""
    remove_quietly(files, os.path.join(directory, FILE_NAME))
    sync_directory(files, directory)
