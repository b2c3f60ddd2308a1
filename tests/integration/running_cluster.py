"""A real cluster for tests: `barnabas up` as a subprocess on free ports, and the handles to hurt it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

READY_SECONDS_MAX: Final = 60.0
"""Far above what a start takes: a loaded machine is no failure, a start that never ends is."""

STOP_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.02
LOG_BYTES_SHOWN: Final = 20_000

PORTS: Final = range(20_000, 32_000)
"""Below the ports that the system gives to outgoing connections, which could take one between check and use."""


@dataclass(frozen=True)
class Service:
    """One row of `/services`."""

    name: str
    service: str
    pid: int | None
    ready: bool
    restarts: int


class Cluster:
    """Owns one supervisor process and its data directory, from `start` to `close`.

    `bootstrap` is what a client is given, `http` the base URL of the supervisor's endpoints.
    """

    def __init__(self, *, nodes: int = 1, advertise: str = "port", flags: tuple[str, ...] = ()) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="barnabas-test-"))
        self.data_dir = self._folder / "data"
        self.nodes = nodes
        self.port = free_ports(nodes + 1)
        self.http_port = self.port + nodes
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.http = f"http://127.0.0.1:{self.http_port}"
        self._flags = ("--nodes", str(nodes), "--advertise", advertise, *flags)
        self._log = self._folder / "log"
        self._output = self._folder / "stdout"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start and wait until everything is ready; raises AssertionError with the log when that fails."""
        assert self._process is None, "the cluster runs already"
        command = [sys.executable, "-m", "barnabas", "up", "--data-dir", str(self.data_dir)]
        command += ["--port", str(self.port), "--http-port", str(self.http_port), *self._flags]
        with self._log.open("ab") as log, self._output.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=log)
        try:
            self.wait_ready()
        except AssertionError:
            self.kill_supervisor()
            raise
        return self

    def wait_ready(self, seconds: float = READY_SECONDS_MAX) -> None:
        """Wait until the ready line is there and `/readyz` answers 200, also after a service was killed."""
        deadline = time.monotonic() + seconds
        while not (self.ready_line() and self._get("/readyz")[0] == 200):
            assert self._process is not None, "the cluster was stopped"
            status = self._process.poll()
            assert status is None, f"barnabas up ended with status {status}:\n{self.log()}"
            assert time.monotonic() < deadline, (
                f"not ready after {seconds:g} s: {self._get('/readyz')[1]}\n{self.log()}"
            )
            time.sleep(POLL_SECONDS)

    def ready_line(self) -> str:
        """The line that says that the cluster is ready; empty until then."""
        return next((line for line in self._output.read_text().splitlines() if " is ready: " in line), "")

    def services(self) -> dict[str, Service]:
        """Every service by name: controller, storage-1, coordinator-1, gateway-1."""
        status, body = self._get("/services")
        assert status == 200, body
        return {row["name"]: Service(**row) for row in json.loads(body)}

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to one service; returns its pid. The supervisor starts it again by itself."""
        pid = self.services()[name].pid
        assert pid is not None, f"{name} is not running now"
        os.kill(pid, number)
        return pid

    def kill_and_wait(self, name: str) -> None:
        """Kill one service with SIGKILL and return when the cluster is ready with another process in its place."""
        pid = self.kill(name)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while self.services()[name].pid in (pid, None):
            assert time.monotonic() < deadline, f"{name} was not started again:\n{self.log()}"
            time.sleep(POLL_SECONDS)
        self.wait_ready()

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Stop as Ctrl-C does and return the exit status; the data stays."""
        assert self._process is not None, "the cluster is stopped already"
        self._process.send_signal(number)
        status = self._process.wait(STOP_SECONDS_MAX)
        self._process = None
        return status

    def restart(self) -> None:
        """Stop cleanly and start again on the same data."""
        status = self.stop()
        assert status == 0, f"barnabas up ended with status {status}:\n{self.log()}"
        self.start()

    def kill_supervisor(self) -> None:
        """SIGKILL the supervisor, and with it every service at once: what a crash of the machine's user sees."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Stop whatever runs and remove the data."""
        try:
            if self._process is not None:
                self.stop()
        except subprocess.TimeoutExpired:
            self.kill_supervisor()
            raise
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def log(self) -> str:
        """The end of what the supervisor and all services wrote to stderr."""
        if not self._log.exists():
            return ""
        return self._log.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace")

    def log_size(self) -> int:
        """How many bytes were logged so far: where what comes next begins."""
        return self._log.stat().st_size

    def log_lines(self, start: int) -> list[str]:
        """The lines logged from byte `start` on."""
        return self._log.read_bytes()[start:].decode(errors="replace").splitlines()

    def metrics(self) -> str:
        """The supervisor's `/metrics`: those of all services."""
        status, body = self._get("/metrics")
        assert status == 200, body
        return body

    def _get(self, target: str) -> tuple[int, str]:
        """Status and body; status 0 while nobody answers."""
        try:
            with urllib.request.urlopen(self.http + target, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)


def free_ports(count: int) -> int:
    """The first of `count` ports in a row on which nobody listens."""
    chance = random.SystemRandom()  # the random order of tests seeds the other one alike in each process
    while True:
        first = chance.randrange(PORTS.start, PORTS.stop - count)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first


def require_program(name: str) -> str:
    """The path of an outside program; without it the test fails, because a test that is not run proves nothing."""
    path = shutil.which(name)
    assert path, f"{name} is missing: `make test` installs it, or says which package has it"
    return path
