"""A disk of its own for one service, small enough to be filled: a tmpfs that only this service sees."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

MOUNT: Final = 'mount -t tmpfs -o size="$0" tmpfs "$1" && shift && exec "$@"'
_PAGE: Final = 4096


class SmallDisk:
    """Owns what fills the disk. The disk itself goes when the service does: nothing is left mounted."""

    def __init__(self, path: Path, size: str) -> None:
        path.mkdir(parents=True)
        self._path = path
        self._filler = Path()
        self.wrapper = ("unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, size, str(path))
        """Put before the service's command."""

    def fill(self, service_pid: int) -> None:
        """Take all that is free, so that the service cannot write another page."""
        self._filler = Path(f"/proc/{service_pid}/root{self._path}/filler")
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(_PAGE))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        """Give it back."""
        os.truncate(self._filler, 0)
