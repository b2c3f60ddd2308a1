"""The lock that keeps a log directory to one process."""

from __future__ import annotations

import fcntl
import os
from typing import Final

from barnabas.kernel.files import Files
from barnabas.log.errors import LogStoreError

LOCK_FILE: Final = ".lock"


def take_lock(files: Files, path: str) -> int:
    """Hold the directory until the descriptor is closed, or the process ends in whatever way."""
    fd = files.open(os.path.join(path, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        files.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        files.close(fd)
        raise LogStoreError(
            f"{path} is in use by another process; stop it or give this one its own"
        ) from None
    return fd
