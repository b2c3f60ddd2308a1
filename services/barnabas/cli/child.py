"""One service as a child process: how it is started, how it says that it is ready, and that it never outlives us.

Children die with the supervisor even when that is killed with SIGKILL: each asks the kernel (PR_SET_PDEATHSIG)
for a SIGKILL of its own when its parent is gone. A signal and not a pipe that the child watches, because a child
that is stuck cannot watch anything; SIGKILL, because a log must survive it anyway. Until the last child is gone it
holds the inherited lock on the data directory, so that no second cluster can start beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.cli.kept_ports import KeptPorts

PR_SET_PDEATHSIG: Final = 1
_PRCTL: Final = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
PACKAGES: Final = {"broker": "host"}
"""Kinds of process whose package has another name."""

NOTIFICATION_BYTES_MAX: Final = 4096
STDERR_DESCRIPTOR: Final = 2


@dataclass(frozen=True)
class ServiceSpec:
    """What to run: `name` is the instance (storage-1), `service` its kind (storage).

    `arguments` are those of `command` that are the service's own. `aliases` are the names of what the process hosts,
    `ports` those of clients that it alone serves, and `kept` what keeps them bound from one process to the next.
    """

    name: str
    service: str
    command: tuple[str, ...]
    http_socket: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    kept: KeptPorts | None = None

    @property
    def package(self) -> str:
        """The package of the kind."""
        return PACKAGES.get(self.service, self.service)

    @property
    def hosted(self) -> tuple[tuple[str, str], ...]:
        """Kind and name of each service within, where the process hosts several."""
        return tuple((alias.rpartition("-")[0], alias) for alias in self.aliases)

    @property
    def variables(self) -> Mapping[str, str]:
        """What its process finds in its environment beside ours."""
        return {**self.environment, **(self.kept.environment if self.kept is not None else {})}

    def descriptors(self, lock_descriptor: int) -> tuple[int, ...]:
        """What its process inherits beside the standard ones; a `lock_descriptor` of -1 is none."""
        kept = self.kept.descriptors if self.kept is not None else ()
        return kept if lock_descriptor < 0 else (lock_descriptor, *kept)


async def start_child(
    spec: ServiceSpec, notify_path: str, lock_descriptor: int
) -> asyncio.subprocess.Process:
    """Start `spec`, with its readiness going to `notify_path` and what it prints to our stderr."""
    return await asyncio.create_subprocess_exec(
        *spec.command,
        env={**os.environ, **spec.variables, "NOTIFY_SOCKET": notify_path},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=STDERR_DESCRIPTOR,  # stdout carries the ready line and nothing else
        pass_fds=spec.descriptors(lock_descriptor),
        # Ctrl-C reaches every process of the terminal's group: children stop when told to, in order.
        start_new_session=True,
        preexec_fn=functools.partial(die_with, os.getpid()),
    )


def bind_readiness_socket(path: str) -> socket.socket:
    """Where sd_notify messages of one child arrive, from now on."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sock.bind(path)
    return sock


@contextlib.contextmanager
def watch_readiness(sock: socket.socket, on_ready: Callable[[bool], None]) -> Iterator[None]:
    """Read what a child says of itself while the context is open; closes and unlinks `sock` at its end.

    `on_ready` gets True for READY=1 and False for STOPPING=1.
    """
    loop = asyncio.get_running_loop()

    def receive() -> None:
        with contextlib.suppress(BlockingIOError):
            for line in sock.recv(NOTIFICATION_BYTES_MAX).splitlines():
                if line in (b"READY=1", b"STOPPING=1"):
                    on_ready(line == b"READY=1")

    loop.add_reader(sock, receive)
    try:
        yield
    finally:
        loop.remove_reader(sock)
        path = sock.getsockname()
        sock.close()
        os.unlink(path)


def describe_exit(status: int) -> str:
    """`exited with status 1`, `was killed by SIGKILL`."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def die_with(parent: int) -> None:
    """In a child: end when `parent` does, even if that is killed; does nothing where the kernel has no such thing.

    It runs between fork and exec: nothing here may block or import.
    """
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # the parent died before the kernel knew of our wish
            os._exit(1)
