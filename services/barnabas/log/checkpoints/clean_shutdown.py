"""`.kafka_cleanshutdown`: that a log directory was closed properly, and under which broker epoch (KIP-966)."""

from __future__ import annotations

import contextlib
import json
import os

from barnabas.log.segments.segment_file import remove_quietly, sync_directory, write_atomically

FILE_NAME = ".kafka_cleanshutdown"
UNKNOWN_BROKER_EPOCH = -1


def write_marker(directory: str, broker_epoch: int = UNKNOWN_BROKER_EPOCH) -> None:
    """The last thing that closing does; durable. Raises OSError; then there is none."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    path = os.path.join(directory, FILE_NAME)
    try:
        write_atomically(path, text.encode(), sync=True)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def take_marker(directory: str) -> bool:
    """Whether the marker was there; it is removed, durably, before anything is written."""
    path = os.path.join(directory, FILE_NAME)
    if not os.path.exists(path):
        return False
    remove_quietly(path)
    sync_directory(directory)
    return True
