"""`barnabas up` as a subprocess: start, stop, what it says of itself, and how to harm its services."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO, Any, Final, Self

from barnabas.testing.failures import ClusterFailed
from barnabas.testing.ports import ReservedPorts

READY_SECONDS_MAX: Final = 60.0
"""Far above what a start takes: a loaded machine is no failure, a start that never ends is."""

STOP_WAIT_SECONDS_MAX: Final = 60.0
HTTP_SECONDS_MAX: Final = 15.0
POLL_SECONDS: Final = 0.02
LOG_BYTES_SHOWN: Final = 20_000
START_ATTEMPTS: Final = 3
"""How often other ports are tried when somebody took one of ours between check and use."""

_STOP_POLL_SECONDS: Final = 0.001
_STATES_AT_REST: Final = "TtZX"
"""Of a thread, in proc(5): stopped by a signal, stopped by a debugger, and ended."""

_PORT_TAKEN: Final = " is taken: stop what listens there"
_HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class Service:
    """One process of the cluster."""

    name: str
    """controller, broker-1, broker-2 and so on."""
    aliases: tuple[str, ...]
    """The names of what the process hosts: storage-1, gateway-1 and coordinator-1 of broker-1."""
    service: str
    pid: int | None
    """None while it is down."""
    ready: bool
    restarts: int
    """How often it died and was started again."""


class ClusterProcess:
    """Owns one supervisor process, its ports and its data directory, from `start` to `close`.

    When this process ends without `close`, even by SIGKILL, the supervisor sees its stdin close, ends every service and
    removes the data.
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        gateways: int = 1,
        advertise: str = "port",
        log_level: str = "warning",
        keep_data: bool = False,
        flags: tuple[str, ...] = (),
    ) -> None:
        self.data_dir = Path(tempfile.mkdtemp(prefix="barnabas-test-"))
        self.nodes = nodes
        self.keep_data = keep_data
        self._flags = ["--nodes", str(nodes), "--gateways", str(gateways), "--advertise", advertise]
        self._flags += ["--log-level", log_level, "--fault-injection", "--ephemeral", *flags]
        self._log = self.data_dir / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._ready_line = b""
        self._paused: set[int] = set()
        self.harmed = False
        """Whether something may have to be taken back: see `Cluster.heal`."""
        self.advanced_ms = 0
        """How far the cluster's time is ahead of the machine's: see `advance`."""
        self._ports: ReservedPorts
        self._choose_ports()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- start and stop

    def start(self) -> Self:
        """Start, and return when clients can connect; raises ClusterFailed with the log when that fails."""
        is_first = not self._log.exists()
        for attempt in range(START_ATTEMPTS):
            try:
                self._launch()
            except ClusterFailed as error:
                self.kill_supervisor()
                if not (is_first and _PORT_TAKEN in str(error)) or attempt == START_ATTEMPTS - 1:
                    raise
                self._ports.close()
                self._choose_ports()
            else:
                break
        self.harmed = False
        return self

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Stop in order, as Ctrl-C does, and return the exit status; the data stays."""
        assert self._process is not None, "the cluster is stopped already"
        self.resume()
        self._process.send_signal(number)
        status = self._process.wait(STOP_WAIT_SECONDS_MAX)
        self._forget_process()
        return status

    def kill_supervisor(self) -> None:
        """SIGKILL the supervisor, and with it every service at once: what a crash of the machine's user sees."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget_process()

    def close(self) -> None:
        """End whatever runs and remove every trace, the data too unless it is to be kept."""
        try:
            if self._process is not None and self.keep_data:
                self.stop()
            elif self._process is not None:
                assert self._process.stdin is not None
                with contextlib.suppress(OSError):
                    self._process.stdin.write(b"end\n")
                    self._process.stdin.flush()
                self._process.wait(STOP_WAIT_SECONDS_MAX)
                self._forget_process()
        finally:
            self.kill_supervisor()
            self._ports.close()
            self._remove_files()

    def _choose_ports(self) -> None:
        self._ports = ReservedPorts(self.nodes + 1)
        self.port = self._ports.first
        self.http_port = self.port + self.nodes
        self.bootstrap_servers = f"{_HOST}:{self.port}"
        self.bootstrap = self.bootstrap_servers
        self.http = f"http://{_HOST}:{self.http_port}"

    def _launch(self) -> None:
        assert self._process is None, "the cluster runs already"
        command = [sys.executable, "-m", "barnabas", "up", "--data-dir", str(self.data_dir)]
        command += ["--port", str(self.port), "--http-port", str(self.http_port), *self._flags]
        # Without the working directory on the path: a project's own `http` or `barnabas` folder is not ours.
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C ends the tests, whose last steps still need the cluster
            )
        assert self._process.stdout is not None
        self._ready_line = self._read_line(self._process.stdout)

    def _read_line(self, output: IO[bytes]) -> bytes:
        """The first line of the supervisor's stdout, which it prints when everything is ready."""
        poll = select.poll()
        poll.register(output, select.POLLIN)
        deadline, line = time.monotonic() + READY_SECONDS_MAX, b""
        while not line.endswith(b"\n"):
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise ClusterFailed(f"not ready after {READY_SECONDS_MAX:g} s:\n{self.log()}")
            piece = os.read(output.fileno(), 4096)
            if not piece:
                assert self._process is not None
                status = self._process.wait(STOP_WAIT_SECONDS_MAX)
                raise ClusterFailed(f"barnabas up ended with status {status}:\n{self.log()}")
            line += piece
        return line

    def _forget_process(self) -> None:
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process, self._ready_line = None, b""
        self.harmed = True
        self._paused.clear()

    def _remove_files(self) -> None:
        """What a supervisor that was killed left behind."""
        with contextlib.suppress(OSError):
            sockets = Path(os.readlink(self.data_dir / "run" / "sockets"))
            if sockets.name.startswith("barnabas-"):
                shutil.rmtree(sockets, ignore_errors=True)
        if not self.keep_data:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    # --- what it says of itself

    def ready_line(self) -> str:
        """The line that says that the cluster is ready; empty when it is not running."""
        return self._ready_line.decode().strip()

    def wait_ready(self, timeout: float = READY_SECONDS_MAX) -> None:
        """Wait, up to `timeout` seconds, until every service says that it is ready, also after one was killed."""
        deadline = time.monotonic() + timeout
        while True:
            status, text = self._request("GET", "/readyz")
            if status == 200:
                return
            self._check_running()
            if time.monotonic() > deadline:
                raise ClusterFailed(f"not ready after {timeout:g} s: {text}\n{self.log()}")
            time.sleep(POLL_SECONDS)

    def services(self) -> dict[str, Service]:
        """Every process by name: controller, broker-1."""
        rows = json.loads(self._ask("GET", "/services"))
        return {row["name"]: Service(**{**row, "aliases": tuple(row["aliases"])}) for row in rows}

    def service(self, name: str) -> Service:
        """The process of this name, or the one that hosts the service of this name: broker-1 for storage-1."""
        services = self.services()
        for service in services.values():
            if name in (service.name, *service.aliases):
                return service
        raise ClusterFailed(f"no service is called {name}; there are {', '.join(services)}")

    def metrics(self) -> str:
        """The metrics of all services, in Prometheus' text format."""
        return self._ask("GET", "/metrics")

    def log(self, start: int = 0) -> str:
        """The end of what the supervisor and all services logged, from byte `start` on."""
        if not self._log.exists():
            return ""
        return self._log.read_bytes()[start:][-LOG_BYTES_SHOWN:].decode(errors="replace")

    def log_size(self) -> int:
        """How many bytes were logged so far: where what comes next begins."""
        return self._log.stat().st_size if self._log.exists() else 0

    def log_lines(self, start: int) -> list[str]:
        """The lines logged from byte `start` on."""
        return self._log.read_bytes()[start:].decode(errors="replace").splitlines()

    # --- harm

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to one service; returns its pid. The supervisor starts it again by itself."""
        pid = self._pid(name)
        os.kill(pid, number)
        return pid

    def kill_and_wait(self, name: str) -> None:
        """Kill one service with SIGKILL and return when the cluster is ready with another process in its place."""
        pid = self.kill(name)
        deadline = time.monotonic() + READY_SECONDS_MAX
        while self.service(name).pid in (pid, None):
            if time.monotonic() > deadline:
                raise ClusterFailed(f"{name} was not started again:\n{self.log()}")
            time.sleep(POLL_SECONDS)
        self.wait_ready()

    def restart(self, name: str | None = None) -> None:
        """Stop one service cleanly and start it again, or the whole cluster; returns when all is ready."""
        if name is not None:
            self.stop_service(name)
            self.start_service(name)
            return
        status = self.stop()
        if status != 0:
            raise ClusterFailed(f"barnabas up ended with status {status}:\n{self.log()}")
        self.start()

    def stop_service(self, name: str, *, kill: bool = False) -> None:
        """End one service, cleanly or with SIGKILL, and keep it down until `start_service`."""
        self.resume(name)
        self.harmed = True
        self._ask("POST", f"/services/{name}/{'kill' if kill else 'stop'}")

    def start_service(self, name: str) -> None:
        """Start a service that `stop_service` stopped; returns when the whole cluster is ready."""
        self._ask("POST", f"/services/{name}/start")
        self.wait_ready()

    @contextlib.contextmanager
    def down(self, name: str, *, kill: bool = False) -> Iterator[None]:
        """One service is down while the context is open, and the cluster ready again after it."""
        self.stop_service(name, kill=kill)
        try:
            yield
        finally:
            self.start_service(name)

    def pause(self, name: str) -> None:
        """Freeze one service (SIGSTOP): connections to it stay open, and nothing answers from now on."""
        pid = self._pid(name)
        self.harmed = True
        self._paused.add(pid)
        os.kill(pid, signal.SIGSTOP)
        wait_until_stopped(pid)

    def resume(self, name: str | None = None) -> None:
        """Let a service that was paused go on; without a name, all of them."""
        if not self._paused:
            return
        pids = set(self._paused) if name is None else {self._pid(name)} & self._paused
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._paused -= pids

    # --- time

    def advance(self, seconds: float) -> None:
        """Move the time of all services forward by `seconds`, now; docs/testing.md says what follows it and what not.

        Returns when retention, expiry of producers and compaction have seen the new time; committed offsets and members
        of groups that are due go moments later. Raises ValueError for less than 0.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"advance({seconds:g}): time goes forward only, by 0 seconds or more")
        self.harmed = True
        answer = json.loads(self._ask("POST", "/clock", {"seconds": seconds}))
        self.advanced_ms = answer["advanced_ms"]

    def _take_time_back(self) -> None:
        """Let the cluster have the machine's time again, which takes a restart: a clock that runs never goes back."""
        self._ask("DELETE", "/clock")
        self.advanced_ms = 0
        self.restart()

    def _pid(self, name: str) -> int:
        pid = self.service(name).pid
        if pid is None:
            raise ClusterFailed(f"{name} is not running now")
        return pid

    # --- the supervisor's HTTP

    def _ask(self, method: str, target: str, document: Any = None) -> str:
        """The answer's text; raises ClusterFailed for a refusal. HTTP follows the ready line by a moment."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            status, text = self._request(method, target, document)
            if 200 <= status < 300:
                return text
            if status:
                raise ClusterFailed(text.strip())
            self._check_running()
            if time.monotonic() > deadline:
                raise ClusterFailed(f"the supervisor does not answer: {text}\n{self.log()}")
            time.sleep(POLL_SECONDS)

    def _check_running(self) -> None:
        if self._process is None:
            raise ClusterFailed("the cluster is not running")
        status = self._process.poll()
        if status is not None:
            raise ClusterFailed(f"barnabas up ended with status {status}:\n{self.log()}")

    def _request(self, method: str, target: str, document: Any = None) -> tuple[int, str]:
        """Status and body; status 0 while nobody answers."""
        connection = HTTPConnection(_HOST, self.http_port, timeout=HTTP_SECONDS_MAX)
        try:
            body = None if document is None else json.dumps(document)
            connection.request(method, target, body, {"Connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()


def wait_until_stopped(pid: int) -> None:
    """Return when no thread of a process runs after SIGSTOP: until it takes effect, some answer a call or two more.

    Raises ClusterFailed when that takes longer than STOP_WAIT_SECONDS_MAX; a process that ended runs nothing either.
    """
    deadline = time.monotonic() + STOP_WAIT_SECONDS_MAX
    while not all(state in _STATES_AT_REST for state in thread_states(pid)):
        if time.monotonic() > deadline:
            raise ClusterFailed(f"process {pid} still runs {STOP_WAIT_SECONDS_MAX:g} s after SIGSTOP")
        time.sleep(_STOP_POLL_SECONDS)


def thread_states(pid: int) -> Iterator[str]:
    """One letter for each thread, as in proc(5); none for a process that is gone, or on a system without /proc."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                # The name of the program is between brackets, and may contain any; the state follows the last one.
                yield (thread / "stat").read_text().rpartition(")")[2].split()[0]
