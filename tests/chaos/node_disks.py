"""A disk of its own for each storage node, which can be filled and emptied: a tmpfs that outlives the node's process.

It stands in a mount namespace that a process of ours holds open; services enter that, and nothing is left mounted.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from chaos_processes import wait_for

MOUNT: Final = 'mount -t tmpfs -o size="$0" tmpfs "$1" && touch "$1/mounted" && exec sleep infinity'
WAIT_SECONDS: Final = 20.0
_PIECE: Final = 65_536
_PAGE: Final = 4_096


class NodeDisk:
    """Owns the namespace, and with it what is in it; `data_dir` is what a node in it is told."""

    def __init__(self, mount_point: Path, size: str) -> None:
        mount_point.mkdir(parents=True)
        self.data_dir = mount_point / "log"
        self._holder = subprocess.Popen(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, size, str(mount_point)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._root = Path(f"/proc/{self._holder.pid}/root")
        self._inside = self._root / mount_point.relative_to("/")
        wait_for((self._inside / "mounted").exists, "a tmpfs is mounted", WAIT_SECONDS)
        self.wrapper = (
            "nsenter",
            f"--user=/proc/{self._holder.pid}/ns/user",
            f"--mount=/proc/{self._holder.pid}/ns/mnt",
            "--preserve-credentials",
            f"--wd={Path.cwd()}",
        )
        """Put before the command of a service that is to have this disk."""

    @property
    def files(self) -> Path:
        """The node's data as they are seen from outside."""
        return self._inside / "log"

    def fill(self) -> None:
        """Take all that is free."""
        with (self._inside / "filler").open("ab", buffering=0) as file:
            for piece in (_PIECE, _PAGE):
                try:
                    while True:
                        file.write(bytes(piece))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give it back."""
        os.truncate(self._inside / "filler", 0)

    def empty(self) -> None:
        """Lose all that the node has; it must not be running."""
        shutil.rmtree(self.files)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
