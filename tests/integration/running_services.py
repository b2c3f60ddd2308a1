"""Services started by hand, each `python -m barnabas.X` with its own settings, over TCP: no supervisor anywhere."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from running_cluster import free_ports

WAIT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02

Settings = Mapping[str, str]
"""Settings by their names in a properties file."""


class ServiceProcess:
    """Owns one process: `settings` go to it in a properties file, or as variables where `by_environment` says so."""

    def __init__(
        self,
        service: str,
        folder: Path,
        settings: Settings,
        *,
        by_environment: bool = False,
        environment: Mapping[str, str] | None = None,
        python_flags: tuple[str, ...] = (),
        wrapper: tuple[str, ...] = (),
    ) -> None:
        """`wrapper` is a command that ends by becoming the service's own, which follows it."""
        self.service = service
        self.http = f"http://{settings.get('http.address', '')}"
        self._errors, self._output = folder / f"{service}.stderr", folder / f"{service}.stdout"
        command = [sys.executable, *python_flags, "-m", f"barnabas.{service}"]
        own = dict(environment or {})
        if by_environment:
            own |= {f"BARNABAS_{name.replace('.', '_').upper()}": value for name, value in settings.items()}
        else:
            file = folder / f"{service}.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            command += ["--config", str(file)]
        command = [*wrapper, *command]
        with self._errors.open("ab") as errors, self._output.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env={**os.environ, **own}
            )

    def errors(self) -> str:
        """What it wrote to stderr: its log."""
        return self._errors.read_text()

    def output(self) -> str:
        """What it wrote to stdout."""
        return self._output.read_text()

    def get(self, target: str) -> tuple[int, str]:
        """Status and body of an HTTP endpoint; status 0 while nobody answers."""
        try:
            with urllib.request.urlopen(self.http + target, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while self.get("/readyz")[0] != 200:
            assert self.process.poll() is None, f"{self.service} ended:\n{self.errors()}"
            assert time.monotonic() < deadline, f"{self.get('/readyz')}\n{self.errors()}"
            time.sleep(POLL_SECONDS)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end and return its status."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class LooseCluster:
    """Owns the processes of a cluster of one service each, which know one another by address only."""

    def __init__(self, folder: Path, **extra: str) -> None:
        """`extra` are settings of every service, such as log_format="json"."""
        first = free_ports(9)
        self.folder = folder
        self.port = first
        self.bootstrap = f"127.0.0.1:{first}"
        controllers = f"127.0.0.1:{first + 1}"
        shared = {name.replace("_", "."): value for name, value in extra.items()}
        self.settings: dict[str, dict[str, str]] = {
            "controller": {
                "listen.address": controllers,
                "data.dir": str(folder / "controller"),
                "http.address": f"127.0.0.1:{first + 5}",
            },
            "storage": {
                "node.id": "1",
                "log.dirs": str(folder / "log"),
                "listen.address": f"127.0.0.1:{first + 2}",
                "controllers": controllers,
                "http.address": f"127.0.0.1:{first + 6}",
            },
            "coordinator": {
                "listen.address": f"127.0.0.1:{first + 3}",
                "controllers": controllers,
                "group.initial.rebalance.delay.ms": "0",
                "http.address": f"127.0.0.1:{first + 7}",
            },
            "gateway": {
                "listeners": f"PLAINTEXT://127.0.0.1:{first}",
                "controllers": controllers,
                "http.address": f"127.0.0.1:{first + 8}",
            },
        }
        for settings in self.settings.values():
            settings.update(shared)
        self.services: dict[str, ServiceProcess] = {}

    def start(
        self,
        *names: str,
        by_environment: bool = False,
        environment: Mapping[str, str] | None = None,
        python_flags: tuple[str, ...] = (),
        wrapper: tuple[str, ...] = (),
    ) -> None:
        """Start the named services, in this order and without waiting; without names all of them."""
        for name in names or tuple(self.settings):
            self.services[name] = ServiceProcess(
                name,
                self.folder,
                self.settings[name],
                by_environment=by_environment,
                environment=environment,
                python_flags=python_flags,
                wrapper=wrapper,
            )

    def wait_ready(self) -> None:
        for service in self.services.values():
            service.wait_ready()

    def log(self) -> str:
        """What all of them wrote to stderr."""
        return "\n".join(f"--- {name}\n{service.errors()}" for name, service in self.services.items())

    def close(self) -> None:
        for service in self.services.values():
            if service.process.poll() is None:
                service.kill()


@contextlib.contextmanager
def loose_cluster(folder: Path, **extra: str) -> Iterator[LooseCluster]:
    """A cluster whose processes are gone at the end; nothing is started yet."""
    cluster = LooseCluster(folder, **extra)
    try:
        yield cluster
    finally:
        cluster.close()
