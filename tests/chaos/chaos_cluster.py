"""A cluster of real processes, every link between them behind the proxy: what faults are done to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from chaos_processes import START_SECONDS_MAX, Links, Program, wait_for
from node_disks import NodeDisk

from barnabas.testing.ports import ReservedPorts

NODES: Final = (1, 2, 3)
GATEWAYS: Final = (1, 2)
COORDINATORS: Final = (1, 2)
CONTROLLERS: Final = (1, 2)
MEMBERS: Final = (1, 2, 3)
DISK_SIZE: Final = "512m"
PORTS: Final = 120

SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "controller": {
        "default.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
    },
    "storage": {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "replica.high.watermark.checkpoint.interval.ms": "1000",
    },
    "coordinator": {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "10000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "1000",
    },
}


class ChaosCluster:
    """Owns all processes, their disks, ports and links, from `start` to `close`."""

    def __init__(self, folder: Path, form: str) -> None:
        """`form` is "brokers", where a gateway, a node and a coordinator share a process, or "separate"."""
        self.folder = folder
        self.form = form
        self.links = Links(folder / "links.log")
        self.disks: dict[str, NodeDisk] = {}
        self.programs: dict[str, Program] = {}
        self.frozen: set[str] = set()
        self._ports = ReservedPorts(PORTS)
        self._next = iter(range(self._ports.first, self._ports.first + PORTS))
        self.bootstrap = ""
        self._etcd: dict[int, str] = {}

    @property
    def nodes(self) -> list[str]:
        return [f"{'broker' if self.form == 'brokers' else 'storage'}-{number}" for number in NODES]

    # --- what it is made of

    def start(self) -> None:
        """Start everything; returns when all say that they are ready."""
        self._plan_etcd()
        self._plan_services()
        self.links.start()
        for name in self.programs:
            self.programs[name].start()
            if name == f"etcd-{MEMBERS[-1]}":
                for number in MEMBERS:
                    self.programs[f"etcd-{number}"].wait_ready()
        for program in self.programs.values():
            program.wait_ready()

    def _plan_etcd(self) -> None:
        clients = {number: next(self._next) for number in MEMBERS}
        peers = {number: next(self._next) for number in MEMBERS}
        told = {
            number: self.links.add(f"etcd>etcd-{number}", next(self._next), peers[number])
            for number in MEMBERS
        }
        everybody = ",".join(f"etcd-{number}=http://{address}" for number, address in told.items())
        for number in MEMBERS:
            self._etcd[number] = f"127.0.0.1:{clients[number]}"
            command = [
                "etcd",
                f"--name=etcd-{number}",
                f"--data-dir={self.folder / f'etcd-{number}'}",
                f"--listen-client-urls=http://127.0.0.1:{clients[number]}",
                f"--advertise-client-urls=http://127.0.0.1:{clients[number]}",
                f"--listen-peer-urls=http://127.0.0.1:{peers[number]}",
                f"--initial-advertise-peer-urls=http://{told[number]}",
                f"--initial-cluster={everybody}",
            ]
            self._add(f"etcd-{number}", command, f"http://{self._etcd[number]}/health")

    def _plan_services(self) -> None:
        controllers = {number: next(self._next) for number in CONTROLLERS}
        for number in CONTROLLERS:
            endpoints = [
                self.links.add(f"controller-{number}>etcd-{member}", next(self._next), _port_of(address))
                for member, address in self._etcd.items()
            ]
            self._service(
                "controller",
                f"controller-{number}",
                {
                    "listen.address": f"127.0.0.1:{controllers[number]}",
                    "etcd.endpoints": ",".join(endpoints),
                },
            )

        def told_controllers(name: str) -> str:
            return ",".join(
                self.links.add(f"{name}>controller-{number}", next(self._next), port)
                for number, port in controllers.items()
            )

        self._plan_nodes_and_gateways(told_controllers)
        for number in COORDINATORS if self.form == "separate" else ():
            name, port = f"coordinator-{number}", next(self._next)
            self._service(
                "coordinator",
                name,
                {
                    "coordinator.id": name,
                    "listen.address": f"127.0.0.1:{port}",
                    "advertised.address": self.links.add(f"all>{name}", next(self._next), port),
                    "controllers": told_controllers(name),
                },
            )

    def _plan_nodes_and_gateways(self, told_controllers: Callable[[str], str]) -> None:
        bootstrap: list[str] = []
        for number, name in zip(NODES, self.nodes, strict=True):
            port = next(self._next)
            disk = self.disks[name] = NodeDisk(self.folder / f"disk-{number}", DISK_SIZE)
            settings = {
                "node.id": str(number),
                "position": str(number - 1),
                "log.dirs": str(disk.data_dir),
                "listen.address": f"127.0.0.1:{port}",
                "advertised.address": self.links.add(f"all>{name}", next(self._next), port),
                "controllers": told_controllers(name),
            }
            if self.form == "brokers":
                gateway, told = self._listener(name, [number - 1])
                bootstrap += [told]
                settings |= {**gateway, "own.position.only": str(number - 1)}
                settings |= {"coordinator.id": name, **SETTINGS["coordinator"], **SETTINGS["storage"]}
                self._service("host", name, settings, disk)
            else:
                self._service("storage", name, settings, disk)
        for number in GATEWAYS if self.form == "separate" else ():
            name = f"gateway-{number}"
            gateway, told = self._listener(name, range(len(NODES)))
            bootstrap += [told]
            self._service("gateway", name, {**gateway, "controllers": told_controllers(name)})
        self.bootstrap = ",".join(bootstrap)

    def _listener(self, name: str, own: Sequence[int]) -> tuple[dict[str, str], str]:
        """A gateway's settings about its listener; and where clients begin.

        Each node has a port there, the listener's plus its position. `own` are the positions whose ports it opens.
        """
        ports, told = ([next(self._next) for _ in NODES] for _ in range(2))
        for position in own:
            self.links.add(f"clients>{name}/{position}", told[position], ports[position])
        settings = {
            "gateway.id": name,
            "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{told[0]}",
            "ports.per.listener": str(len(NODES)),
        }
        return settings, f"127.0.0.1:{told[own[0]]}"

    def _service(
        self, service: str, name: str, settings: Mapping[str, str], disk: NodeDisk | None = None
    ) -> None:
        http = f"127.0.0.1:{next(self._next)}"
        shared = SETTINGS.get(service, {})
        file = self.folder / f"{name}.properties"
        all_of_them = {**shared, **settings, "http.address": http, "log.level": "INFO"}
        file.write_text("".join(f"{key}={value}\n" for key, value in all_of_them.items()))
        wrapper = disk.wrapper if disk is not None else ()
        command = [*wrapper, sys.executable, "-m", f"barnabas.{service}", "--config", str(file)]
        self._add(name, command, f"http://{http}/readyz")

    def _add(self, name: str, command: list[str], http: str) -> None:
        self.programs[name] = Program(name, command, self.folder / f"{name}.log", http)

    # --- who is who

    def etcd_leader(self) -> str:
        """The name of etcd's leader."""
        for _ in range(100):
            for number, address in self._etcd.items():
                done = subprocess.run(
                    ["etcdctl", f"--endpoints=http://{address}", "endpoint", "status", "-w", "json"],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode == 0:
                    status = json.loads(done.stdout)[0]["Status"]
                    if status["leader"] == status["header"]["member_id"]:
                        return f"etcd-{number}"
            time.sleep(0.1)
        raise TimeoutError("etcd has no leader")

    def active_controller(self) -> str:
        """The name of the controller that decides."""
        for _ in range(100):
            for number in CONTROLLERS:
                if self._is_active(f"controller-{number}"):
                    return f"controller-{number}"
            time.sleep(0.1)
        raise TimeoutError("no controller is active")

    def _is_active(self, name: str) -> bool:
        url = self.programs[name].http.replace("/readyz", "/metrics")
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                text = answer.read().decode()
        except OSError:
            return False
        line = "kafka_controller_kafkacontroller_activecontrollercount 1.0"
        return any(each.startswith(line) for each in text.splitlines())

    # --- its end

    def dead(self) -> Iterator[str]:
        """Who ended by itself."""
        return (name for name, program in self.programs.items() if program.has_died)

    def wait_ready(self) -> None:
        wait_for(
            lambda: all(program.is_ready() for program in self.programs.values()),
            "every service is ready",
            START_SECONDS_MAX,
            lambda: [name for name, program in self.programs.items() if not program.is_ready()],
        )

    def stop(self) -> None:
        """Stop in order: gateways, coordinators, nodes, controllers, etcd."""
        for part in ("gateway", "coordinator", "broker", "storage", "controller", "etcd"):
            for name, program in self.programs.items():
                if name.startswith(part):
                    program.end(signal.SIGTERM)

    def close(self) -> None:
        """Kill what still runs."""
        for program in self.programs.values():
            program.end(signal.SIGKILL)
        self.links.close()
        for disk in self.disks.values():
            disk.close()
        self._ports.close()


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
