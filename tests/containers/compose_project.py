"""The compose file as a project in a test's hands: up, down, restart, kill, cut off, replace by another version.

By `docker compose` or by docker-compose of old: what both do alike goes through their command, the rest through the
engine's own API, where both label the containers in the same way.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import docker
from docker.models.containers import Container
from docker.models.networks import Network
from testcontainers.compose import DockerCompose

ROOT: Final = Path(__file__).resolve().parents[2]

VERSION: Final = "test"
"""Of our images in these tests."""

LOGS: Final = ROOT / "build" / "containers"
"""Where the logs of all containers are after a run."""

GATEWAYS: Final = ("gateway-1", "gateway-2")
CONTROLLERS: Final = ("controller-1", "controller-2")
COORDINATORS: Final = ("coordinator-1", "coordinator-2")
STORAGE: Final = ("storage-1", "storage-2", "storage-3")
ETCD: Final = ("etcd-1", "etcd-2", "etcd-3")
OURS: Final = (*CONTROLLERS, *STORAGE, *COORDINATORS, *GATEWAYS, "canary")
COLLECTOR: Final = "otel-collector"
SERVICES: Final = (*ETCD, "redis", COLLECTOR, *OURS, "prometheus")
"""All but the demo, and Grafana, whose image cannot be made where none can be pulled."""

SEPARATE_FILES: Final = ("compose.yaml",)
BROKER_FILES: Final = ("compose.yaml", "compose.brokers.yaml")
BROKERS: Final = ("broker-1", "broker-2", "broker-3")
BESIDE_BROKERS: Final = (*ETCD, *CONTROLLERS, COORDINATORS[0])
"""Enough beside them for clients."""

COMPOSE_OF_OLD: Final = ("docker-compose",)

PORTS: Final = range(29_200, 29_980, 10)
"""Where published ports are looked for: below those that a machine gives to outgoing connections."""

WAIT_SECONDS: Final = 90.0
POLL_SECONDS: Final = 0.2


class Project(DockerCompose):
    """Owns a compose project of deploy/compose.yaml, with ports of its own, and what it stored.

    Of what its files name it has `started`; both may change while nothing of it runs.
    """

    def __init__(self, version: str, *command: str) -> None:
        super().__init__(ROOT / "deploy", "compose.yaml", wait=False, services=list(SERVICES))
        self.version = version
        self.command = command or compose_command()
        self.port = next(port for port in PORTS if _all_free(range(port, port + 10)))
        self.project_name = f"barnabas-test-{os.getpid()}-{self.port}"
        self.engine = docker.from_env()
        self.use(SEPARATE_FILES, SERVICES)

    def use(self, files: Sequence[str], started: Sequence[str]) -> None:
        """Go on with these files and services, while nothing of the project runs."""
        self.files, self.started = files, started
        places = (0, 1, 2) if files == BROKER_FILES else (0, 3)
        self.bootstrap = ",".join(f"localhost:{self.port + place}" for place in places)

    @property
    def compose_command_property(self) -> list[str]:
        """The command line that every call begins with."""
        return [*self.command, *(word for file in self.files for word in ("-f", file))]

    def compose(self, *arguments: str, version: str | None = None) -> str:
        """Run a compose command; returns what it wrote to stdout."""
        environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": self.project_name,
            "BARNABAS_VERSION": version or self.version,
            "BARNABAS_PORT_1": str(self.port),
            "BARNABAS_PORTS_1": f"{self.port}-{self.port + 2}",
            "BARNABAS_PORT_2": str(self.port + 3),
            "BARNABAS_PORTS_2": f"{self.port + 3}-{self.port + 5}",
            **{f"BARNABAS_BROKER_PORT_{number}": str(self.port + number - 1) for number in (1, 2, 3)},
            "BARNABAS_PROMETHEUS_PORT": str(self.port + 6),
        }
        done = subprocess.run(
            [*self.compose_command_property, *arguments],
            cwd=self.context,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"compose {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def start(self) -> None:
        """Bring everything up and wait until all of it is healthy."""
        self.compose("up", "--detach", "--no-build", *self.started)
        self.wait_healthy(*self.started)

    def stop(self, down: bool = True) -> None:
        """Remove the containers and their network; `down` removes what they stored too."""
        self.save_logs()
        # Without its profile the demo's volume would stay.
        self.compose("--profile", "spark", "down", *(["--volumes"] if down else []), "--timeout", "60")
        if down:
            label = f"com.docker.compose.project={self.project_name}"
            assert self.engine.volumes.list(filters={"label": label}) == []

    def container(self, service: str) -> Container:
        """The container of a service, as it is now."""
        labels = [f"com.docker.compose.project={self.project_name}", f"com.docker.compose.service={service}"]
        (found,) = self.engine.containers.list(all=True, filters={"label": labels})
        return found

    def wait_healthy(self, *services: str) -> None:
        """Wait until the engine calls `services` healthy. Raises AssertionError with the log of one that is not."""
        for service in services:
            wait_for(partial(self._is_healthy, service), partial(self._state, service))

    def wait_ready(self, *services: str) -> None:
        """The same without the pause that an engine makes before it looks: run the health checks themselves."""
        for service in services:
            wait_for(partial(self._passes, service), partial(self._state, service))

    def _is_healthy(self, service: str) -> bool:
        container = self.container(service)
        if service == COLLECTOR:  # nothing in its image can ask
            return _is_collecting(container)
        return container.attrs["State"].get("Health", {}).get("Status") == "healthy"

    def _passes(self, service: str) -> bool:
        container = self.container(service)
        if service == COLLECTOR:
            return _is_collecting(container)
        kind, *command = container.attrs["Config"]["Healthcheck"]["Test"]
        assert kind == "CMD"
        return container.status == "running" and container.exec_run(command).exit_code == 0

    def _state(self, service: str) -> str:
        container = self.container(service)
        log = container.logs(tail=30).decode(errors="replace")
        return f"{service} is not healthy: {json.dumps(container.attrs['State'])}\n{log}"

    def save_logs(self) -> None:
        """Write what each container logged to a file of its own in LOGS: it goes with the container."""
        LOGS.mkdir(parents=True, exist_ok=True)
        ours = {"label": f"com.docker.compose.project={self.project_name}"}
        for container in self.engine.containers.list(all=True, filters=ours):
            name = container.labels["com.docker.compose.service"]
            (LOGS / f"{name}-{container.short_id}.log").write_bytes(container.logs())

    def restart(self, service: str) -> None:
        """Stop a container as its service likes it, start it again, and wait until it is ready."""
        self.container(service).restart(timeout=60)
        self.wait_ready(service)

    def kill(self, service: str) -> None:
        """Kill a container and start it again; what restarts containers is not asked, for it takes its time."""
        container = self.container(service)
        container.kill("SIGKILL")
        container.wait()
        container.start()
        self.wait_ready(service)

    def begin_anew(self, service: str) -> None:
        """Delete a container and the volume of its name, start another with an empty one, wait until it is ready."""
        self.save_logs()
        self.container(service).remove(force=True)
        self.engine.volumes.get(f"{self.project_name}_{service}").remove()
        self.compose("up", "--detach", "--no-build", "--no-deps", service)
        self.wait_ready(service)

    @contextmanager
    def stopped(self, *services: str) -> Iterator[None]:
        """While the context is open these containers are stopped, in their order."""
        containers = [self.container(service) for service in services]
        for container in containers:
            container.stop(timeout=60)
        try:
            yield
        finally:
            for container in containers:
                container.start()
            self.wait_ready(*services)

    @contextmanager
    def cut_off(self, service: str) -> Iterator[None]:
        """While the context is open nothing reaches the container over its network, nor the other way round."""
        container = self.container(service)
        network = self.engine.networks.get(f"{self.project_name}_default")
        aliases = container.attrs["NetworkSettings"]["Networks"][network.name]["Aliases"]
        network.disconnect(container)
        try:
            yield
        finally:
            _reconnect(network, container, aliases)
            self.wait_ready(service)

    def replace(self, service: str, version: str) -> None:
        """Recreate one container from the image of another version, as an upgrade does."""
        self.save_logs()
        self.compose("up", "--detach", "--no-build", "--no-deps", service, version=version)
        self.wait_ready(service)
        image = str(self.container(service).attrs["Config"]["Image"])
        assert image.endswith(f":{version}"), image

    def get(self, url: str) -> Any:
        """Decoded JSON from a published HTTP port."""
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)


def _is_collecting(container: Container) -> bool:
    if container.status != "running":
        return False
    started = datetime.fromisoformat(container.attrs["State"]["StartedAt"][:19] + "+00:00")
    return b"Everything is ready" in container.logs(since=started.timestamp())


def _reconnect(network: Network, container: Container, aliases: list[str]) -> None:
    own = container.id[:12]
    network.connect(container, aliases=[alias for alias in aliases if alias != own])


def wait_for(holds: Callable[[], bool], explain: Callable[[], str], seconds: float = WAIT_SECONDS) -> None:
    """Wait until `holds`. Raises AssertionError with what `explain` says."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, explain()
        time.sleep(POLL_SECONDS)


def _all_free(ports: range) -> bool:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def compose_command() -> tuple[str, ...]:
    """`docker compose` where the docker command knows it."""
    known = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    return ("docker", "compose") if known else COMPOSE_OF_OLD


def engine_environment(*images: str) -> Mapping[str, str]:
    """Make sure of an engine and of images by their short names; returns the variables that lead to it.

    Raises AssertionError with the line that says what to do where there is none and none can be started.
    """
    script = ROOT / "deploy" / "engine" / "engine.sh"
    done = subprocess.run([script, "start", *images], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("export ") for line in done.stdout.splitlines() if line.startswith("export ")]
    return dict(line.split("=", 1) for line in lines)


def build_images(version: str, *services: str) -> str:
    """Build our images under a version; returns the lines with their sizes. Raises AssertionError."""
    script = ROOT / "docker" / "build.sh"
    environment = {**os.environ, "BARNABAS_VERSION": version}
    done = subprocess.run([script, *services], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
