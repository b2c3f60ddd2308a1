"""`.kafka_cleanshutdown`: that a log directory was closed properly, and under which broker epoch (KIP-966)."""

from __future__ import annotations

import contextlib
import json
import os

from barnabas.kernel.files import Files
from barnabas.log.small_files import exists, remove_quietly, sync_directory, write_atomically

FILE_NAME = ".kafka_cleanshutdown"
UNKNOWN_BROKER_EPOCH = -1


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


def take_marker(files: Files, directory: str) -> bool:
    """Whether the marker was there; it is removed, durably, before anything is written."""
    path = os.path.join(directory, FILE_NAME)
    if not exists(files, path):
        return False
    remove_quietly(files, path)
    sync_directory(files, directory)
    return True
