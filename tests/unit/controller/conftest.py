"""Fixtures of the controller's tests: one etcd for the session, a fresh store of either kind for a test."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from barnabas.controller.store.etcd import EtcdStore
from barnabas.controller.store.protocol import Store
from barnabas.controller.store.sqlite import SqliteStore
from barnabas.kernel.threads import SystemThreads

_namespaces = itertools.count()

StoreFactory = Callable[[], Awaitable[Store]]

START_SECONDS_MAX = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EtcdServer:
    """One etcd member; `stop` and `start` again to see what clients do."""

    def __init__(self, directory: Path) -> None:
        program = shutil.which("etcd")
        if program is None:
            raise AssertionError("etcd is missing: install Debian's etcd-server, these tests do not skip it")
        self._program = program
        self._directory = directory
        self._client_port, self._peer_port = free_port(), free_port()
        self.endpoint = f"127.0.0.1:{self._client_port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        client, peer = f"http://{self.endpoint}", f"http://127.0.0.1:{self._peer_port}"
        with (self._directory / "etcd.log").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--data-dir={self._directory / 'data'}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=default={peer}",
                ],
                stdout=output,
                stderr=output,
            )
        self._wait_until_healthy()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Answer nobody, and keep all connections, until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # The signal is sent, but threads that run now may answer a call or two before they are stopped.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://{self.endpoint}/health", timeout=1) as answer:
                    if b"true" in answer.read():
                        return
            except (urllib.error.URLError, OSError):
                time.sleep(0.02)
        raise AssertionError(f"etcd did not start: see {self._directory / 'etcd.log'}")


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.stop()


@pytest_asyncio.fixture(params=["sqlite", "etcd"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreFactory]:
    """Opens a connection to the test's store; asked again, one to the same data (etcd) or the same one (SQLite)."""
    opened: list[Store] = []
    if request.param == "sqlite":

        async def factory() -> Store:
            if not opened:
                opened.append(SqliteStore(tmp_path / "metadata.db", SystemThreads()))
                await opened[0].open()
            return opened[0]
    else:
        server: EtcdServer = request.getfixturevalue("etcd_server")
        namespace = f"test-{next(_namespaces)}/"

        async def factory() -> Store:
            store = EtcdStore([server.endpoint], namespace)
            await store.open()
            opened.append(store)
            return store

    yield factory
    for store in opened:
        await store.close()


@pytest_asyncio.fixture
async def store(open_store: StoreFactory) -> Store:
    return await open_store()


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def unused_port() -> int:
    return free_port()
