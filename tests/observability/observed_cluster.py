"""What there is to observe: a cluster of several nodes and gateways, each service its own process, and a canary."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from running_cluster import free_ports
from running_services import ServiceProcess

NODES: Final = 2
GATEWAYS: Final = 2

Settings = dict[str, str]


class ObservedCluster:
    """Owns the processes. Instances are called as in the compose file: gateway-1, storage-2, canary-1 and so on."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._environment = dict(environment or {})
        self._ports = iter(range(free_ports(40), 65_536))
        self.http: dict[str, str] = {}
        self.instances: dict[str, ServiceProcess] = {}
        self._settings: dict[str, Settings] = {}
        controller = self._address()
        self._settings["controller-1"] = {"listen.address": controller, "data.dir": str(folder / "metadata")}
        shared = {"controllers": controller}
        for number in range(1, NODES + 1):
            self._settings[f"storage-{number}"] = shared | {
                "node.id": str(number),
                "position": str(number - 1),
                "log.dirs": str(folder / f"log-{number}"),
                "listen.address": self._address(),
            }
        self._settings["coordinator-1"] = shared | {
            "listen.address": self._address(),
            "group.initial.rebalance.delay.ms": "0",
        }
        self.gateways: list[str] = []
        for number in range(1, GATEWAYS + 1):
            self.gateways.append(self._address())
            for _ in range(NODES - 1):
                next(self._ports)  # a listener takes a port for each node
            self._settings[f"gateway-{number}"] = shared | {
                "gateway.id": f"gateway-{number}",
                # A name that the other gateway has not: who comes here stays here, as the canary needs it.
                "listeners": f"GATEWAY_{number}://{self.gateways[-1]}",
            }
        self._settings["canary-1"] = {
            "bootstrap.servers": ",".join(self.gateways),
            "interval.ms": "100",
            "timeout.ms": "2500",
            "loss.ms": "6000",
            "resolve.interval.ms": "1000",
        }
        for name, settings in self._settings.items():
            settings["http.address"] = self.http[name] = self._address()

    def start(self, *names: str) -> None:
        """Start the named instances, or all, and wait until they are ready."""
        for name in names or tuple(self._settings):
            service = name.rpartition("-")[0]
            folder = self._folder / name
            folder.mkdir(exist_ok=True)
            self.instances[name] = ServiceProcess(
                service, folder, self._settings[name], environment=self._environment
            )
        for name in names or tuple(self._settings):
            self.instances[name].wait_ready()

    def instances_of(self, service: str) -> dict[str, str]:
        """Instance to HTTP address: what Prometheus scrapes of one service."""
        return {name: address for name, address in self.http.items() if name.rpartition("-")[0] == service}

    def close(self) -> None:
        for process in self.instances.values():
            if process.process.poll() is None:
                process.kill()

    def _address(self) -> str:
        return f"127.0.0.1:{next(self._ports)}"


@contextlib.contextmanager
def observed_cluster(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[ObservedCluster]:
    """A cluster whose processes are gone at the end; nothing is started yet."""
    cluster = ObservedCluster(folder, environment)
    try:
        yield cluster
    finally:
        cluster.close()
