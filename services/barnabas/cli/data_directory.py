"""The data directory of a cluster on one machine: who holds it, what lies in it, where its sockets are.

DIR/.lock          held (flock) by the supervisor and, through inheritance, by every process it started
DIR/controller/    the controller's metadata store
DIR/node-N/        the log of storage node N
DIR/run/           written anew at each start: a properties file per service, `sockets` -> their sockets; and what
                   stays, `clock.json`: how far a test has moved the time of this cluster
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from barnabas.cli.options import UpRefused

SOCKET_PATH_BYTES_MAX: Final = 107
"""Linux's limit for the path of a unix socket (sun_path without its closing zero)."""

SOCKET_NAME_BYTES_MAX: Final = 32
"""Room that a socket's own name takes in that path."""

ORPHAN_WAIT_SECONDS: Final = 5.0
"""How long processes of a killed supervisor, which the kernel is ending, may still hold the lock."""

_NODE_DIRECTORY = re.compile(r"node-([1-9][0-9]*)")


class DataDirectory:
    """Owns the lock on a data directory, its `run` folder and the folder of its sockets, from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_descriptor = -1
        self._sockets: Path | None = None

    @property
    def run(self) -> Path:
        return self.path / "run"

    @property
    def sockets(self) -> Path:
        """A short path (see SOCKET_PATH_BYTES_MAX) that only this user can enter."""
        assert self._sockets is not None, "the data directory is not open"
        return self._sockets

    @property
    def is_new(self) -> bool:
        """Whether no cluster was ever here."""
        return not (self.path / ".lock").exists()

    def open(self, nodes: int) -> None:
        """Take the lock and prepare `run` for a cluster of `nodes` storage nodes; raises UpRefused."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.lock_descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._take_lock()
            self._check_nodes(nodes)
            self._prepare_run()
        except OSError as error:
            self.close()
            raise UpRefused(
                f"cannot use the data dir {self.path} ({error.strerror}: {error.filename}): choose a --data-dir "
                "that you may write"
            ) from error
        except UpRefused:
            self.close()
            raise

    def close(self) -> None:
        """Remove the sockets and let go of the lock."""
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
            (self.run / "sockets").unlink(missing_ok=True)
            self._sockets = None
        if self.lock_descriptor >= 0:
            os.close(self.lock_descriptor)
            self.lock_descriptor = -1

    def _take_lock(self) -> None:
        deadline = time.monotonic() + ORPHAN_WAIT_SECONDS
        while not self._try_lock():
            holder = os.pread(self.lock_descriptor, 32, 0).decode(errors="replace").strip()
            if _is_running(holder) or time.monotonic() > deadline:
                raise UpRefused(
                    f"the data dir {self.path} is in use by another `barnabas up` (process {holder or 'unknown'}): "
                    "stop it, or choose another --data-dir"
                )
            time.sleep(0.02)
        os.ftruncate(self.lock_descriptor, 0)
        os.pwrite(self.lock_descriptor, f"{os.getpid()}\n".encode(), 0)

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self.lock_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _check_nodes(self, nodes: int) -> None:
        left_out = [number for number in self._nodes_found() if number > nodes]
        if left_out:
            names = ", ".join(f"node-{number}" for number in left_out)
            raise UpRefused(
                f"the data dir {self.path} also holds {names}, whose partitions would be offline with --nodes "
                f"{nodes}: start it with --nodes {max(left_out)}"
            )

    def _nodes_found(self) -> list[int]:
        matches = (_NODE_DIRECTORY.fullmatch(entry.name) for entry in self.path.iterdir() if entry.is_dir())
        return sorted(int(match[1]) for match in matches if match)

    def _prepare_run(self) -> None:
        self.run.mkdir(exist_ok=True)
        link = self.run / "sockets"
        if link.is_symlink():  # a killed supervisor could not remove its sockets
            stale = Path(os.readlink(link))
            if stale.name.startswith("barnabas-"):
                shutil.rmtree(stale, ignore_errors=True)
            link.unlink()
        for stale_config in self.run.glob("*.properties"):
            stale_config.unlink()
        self._sockets = Path(tempfile.mkdtemp(prefix="barnabas-", dir=_short_temporary_directory()))
        link.symlink_to(self._sockets)


def _short_temporary_directory() -> str:
    preferred = tempfile.gettempdir()
    room = SOCKET_PATH_BYTES_MAX - SOCKET_NAME_BYTES_MAX - len("/barnabas-12345678/")
    return preferred if len(os.fsencode(preferred)) <= room else "/tmp"


def _is_running(pid: str) -> bool:
    return pid.isdigit() and Path(f"/proc/{pid}").exists()
