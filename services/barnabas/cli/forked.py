"""The first start of a cluster's services: forked from one process that has imported what all of them need.

Interpreters that each import gRPC, the protocol and themselves take most of a start, and both cores with it. So
the supervisor imports what several of them need, once and for the memory of one, and forks them; what only one of them
needs it imports itself, while the others do the same. This happens before the supervisor has an event loop, a thread or
a socket of its own, because a fork copies none of them well. A service that ends later is started again by `child.py`,
in an interpreter of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from barnabas.cli.child import STDERR_DESCRIPTOR, ServiceSpec, bind_readiness_socket, die_with
from barnabas.kernel.allocator import collection_put_off
from barnabas.kernel.service import import_health, prepare_imports, run_service

START_ORDER: Final = ("controller", "storage", "gateway", "broker", "coordinator")
"""The controller first: all others wait for it. The coordinator last: it has least to do before it is ready."""

CAN_FORK: Final = sys.platform == "linux"
"""Elsewhere system libraries start threads by themselves, and a fork of those may hang."""

PR_SET_NAME: Final = 15
FIRST_PRIVATE_DESCRIPTOR: Final = 3


class ForkedProcess:
    """A child of ours that no library started; like `asyncio.subprocess.Process`, as far as a supervisor needs."""

    def __init__(self, pid: int, readiness: socket.socket) -> None:
        """`readiness` is bound to the address that the child tells when it is ready."""
        self.pid = pid
        self.readiness = readiness
        self._descriptor = os.pidfd_open(pid)
        self._status: int | None = None
        self._is_watched = False
        self._gone = asyncio.Event()

    async def wait(self) -> int:
        """The exit status, or the negative number of the signal that ended the process."""
        if not self._is_watched:
            self._is_watched = True
            asyncio.get_running_loop().add_reader(self._descriptor, self._reap)
        await self._gone.wait()
        assert self._status is not None
        return self._status

    def send_signal(self, number: int) -> None:
        """Raises ProcessLookupError once the process is gone."""
        if self._status is not None:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        _, status = os.waitpid(self.pid, 0)
        self._status = os.waitstatus_to_exitcode(status)
        self._gone.set()


def fork_services(
    specs: Iterable[ServiceSpec], sockets: Path, lock_descriptor: int
) -> dict[str, ForkedProcess]:
    """Fork every service; returns the processes by the services' names. Nothing elsewhere than on Linux.

    To be called before this process has an event loop or threads. What the services print goes to our stderr.
    """
    if not CAN_FORK:
        return {}
    prepare_imports()
    ordered = sorted(specs, key=lambda spec: START_ORDER.index(spec.service))
    instances = Counter(package for spec in ordered for package in _packages(spec))
    forked = {}
    with collection_put_off():
        _import_shared()
        for spec in ordered:
            for package in _packages(spec):
                if instances[package] > 1:
                    importlib.import_module(f"barnabas.{package}.service")
            forked[spec.name] = _fork(spec, sockets, lock_descriptor)
    return forked


def _packages(spec: ServiceSpec) -> tuple[str, ...]:
    """Those of the services in the process: its own, which may not import what it hosts before it is asked to."""
    return (spec.package, *(kind for kind, _ in spec.hosted))


def _import_shared() -> None:
    """What every kind of service needs: once, before the first fork."""
    import uvloop  # noqa: F401

    import barnabas.metadata.effective
    import barnabas.metadata.subscription_metrics  # noqa: F401

    import_health()
    importlib.import_module(
        "barnabas.rpc.network"
    )  # loaded, not used: that is for a service's `__main__` alone


def _fork(spec: ServiceSpec, sockets: Path, lock_descriptor: int) -> ForkedProcess:
    path = str(sockets / f"{spec.name}.notify")
    readiness = bind_readiness_socket(path)
    parent = os.getpid()
    gc.freeze()  # a collection in the child would write to each object, and so copy every page
    pid = os.fork()
    if pid == 0:
        _become(spec, path, lock_descriptor, parent)
    return ForkedProcess(pid, readiness)


def _become(spec: ServiceSpec, notify_path: str, lock_descriptor: int, parent: int) -> NoReturn:
    """Be the service, to the end of this process; nothing of the supervisor runs in it any more."""
    status = 1
    try:
        die_with(parent)
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the supervisor blocks those that would stop it
        ctypes.CDLL(None).prctl(PR_SET_NAME, spec.name.encode())
        _keep_only(spec.descriptors(lock_descriptor))
        os.environ.update({**spec.variables, "NOTIFY_SOCKET": notify_path})
        sys.argv = [spec.name, *spec.arguments]
        gc.enable()
        start = importlib.import_module(f"barnabas.{spec.package}.__main__")
        run_service(spec.service, start.load, getattr(start, "HOSTED", ()))
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # as the interpreter would at its end
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _keep_only(descriptors: Iterable[int]) -> None:
    """Of our descriptors, a service has stderr, which is its stdout too, and these."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(STDERR_DESCRIPTOR, 1)  # stdout carries the ready line and nothing else
    first = FIRST_PRIVATE_DESCRIPTOR
    for kept in sorted(descriptors):
        os.closerange(first, kept)
        first = kept + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
