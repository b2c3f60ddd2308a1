"""A real Apache Kafka beside us: one KRaft node from the jars of `make jars`, broker and controller in one JVM.

    with RealKafka() as kafka:
        connect_to(kafka.bootstrap)

It listens on two free loopback ports, keeps its data in a directory of its own, and leaves nothing behind.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from running_cluster import free_ports

from barnabas.testing.process import wait_until_stopped

JARS: Final = Path(__file__).resolve().parents[2] / "build" / "jars" / "kafka-tools"

START_QUICKLY: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")
"""For a broker that lives for a minute. A benchmark gives `jvm_flags` of its own."""

DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL")
"""Part of util-linux: a test run that is killed leaves no broker behind."""

READY_SECONDS_MAX: Final = 90.0
"""Far above the two or three seconds that a start takes."""

STOP_SECONDS_MAX: Final = 30.0
LOG_BYTES_SHOWN: Final = 10_000
NODE_ID: Final = 1
CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"

BROKER: Final = "broker"
CONTROLLER: Final = "controller"
BROKER_AND_CONTROLLER: Final = (BROKER, CONTROLLER)
"""In this order: clients are told where it listens in its first role."""

ONE_NODE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
)
"""What a broker that is alone needs; all else stays at Kafka's defaults."""


def kafka_version() -> str:
    """The release that the jars are of, such as 4.3.1; AssertionError where they were not fetched."""
    found = [match[1] for path in JARS.glob("kafka-clients-*.jar") if (match := _CLIENTS.search(path.name))]
    assert len(found) == 1, f"{JARS} has {found or 'no Kafka'}: `make jars` fetches Kafka"
    return found[0]


_CLIENTS: Final = re.compile(r"kafka-clients-([\d.]+)\.jar$")


class RealKafka:
    """Owns one JVM and its data directory, from `start` to `close`.

    `settings` are broker settings under Kafka's names, added to ONE_NODE; `jvm_flags` replace START_QUICKLY;
    `folder` is where data and logs go instead of a temporary directory (a folder in it is removed at the end). `host`
    names the loopback address to clients, `port` is for who insists on one; `log_dirs` are its log directories, below
    `data_dir`. Clients alone are told of `advertised_port`, where a proxy stands before the broker.
    Of a larger cluster, each has a `node_id` of its own and its `roles`; those that are no controller are given the
    `voter` of the one that is. `port` and `bootstrap` are where it listens in the first of its roles.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        jvm_flags: tuple[str, ...] = START_QUICKLY,
        folder: Path | None = None,
        node_id: int = NODE_ID,
        roles: tuple[str, ...] = BROKER_AND_CONTROLLER,
        voter: str | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        log_dirs: tuple[str, ...] = ("",),
        advertised_port: int | None = None,
    ) -> None:
        assert (CONTROLLER in roles) == (voter is None), "the voter is the one that is a controller"
        self.version = kafka_version()
        self.node_id, self.roles = node_id, roles
        free = free_ports(3)
        controller = f"127.0.0.1:{free + 1}"
        self.voter = f"{node_id}@{controller}" if voter is None else voter
        if BROKER in roles:
            self.port = free if port is None else port
            self.bootstrap = f"{host}:{self.port}"
        else:
            self.port, self.bootstrap = free + 1, controller
        listens = {BROKER: f"PLAINTEXT://{host}:{self.port}", CONTROLLER: f"CONTROLLER://{controller}"}
        self._jvm_flags = jvm_flags
        self._folder = Path(tempfile.mkdtemp(prefix="real-kafka-", dir=folder))
        self.data_dir = self._folder / "data"
        self._properties = self._folder / "server.properties"
        self._log = self._folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {
            **ONE_NODE,
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "listeners": ",".join(listens[role] for role in roles),
            "advertised.listeners": listens[roles[0]],
            "controller.quorum.voters": self.voter,
            "log.dirs": ",".join(str(self.data_dir / name) for name in log_dirs),
        }
        if advertised_port is not None:
            inside = f"INSIDE://127.0.0.1:{free + 2}"
            self._settings |= {
                "listeners": f"{self._settings['listeners']},{inside}",
                "advertised.listeners": f"PLAINTEXT://{host}:{advertised_port},{inside}",
                "inter.broker.listener.name": "INSIDE",
                "listener.security.protocol.map": f"INSIDE:PLAINTEXT,{ONE_NODE['listener.security.protocol.map']}",
            }
        self._settings |= settings or {}

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Format the data directory if it is new, start, and wait until a client finds the broker."""
        self.format()
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start the process, which ends with the thread that did so."""
        assert self._process is None, "this Kafka runs already"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*DIES_WITH_US, *self._java("kafka.Kafka", str(self._properties))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )

    @property
    def pid(self) -> int:
        """The JVM's process id, for measuring it."""
        assert self._process is not None, "this Kafka is stopped"
        return self._process.pid

    def stop(self) -> None:
        """Stop as a service manager does (SIGTERM), the data stays; a broker that does not stop is killed."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End the process at once; the data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections to it stay open, and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        wait_until_stopped(self.pid)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the process and remove its folder. Nobody needs the data any more, so nothing is flushed."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def log(self) -> str:
        """The end of what the broker wrote to its output."""
        if not self._log.exists():
            return ""
        return self._log.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace")

    def format(self) -> None:
        """Write the settings, and format the data directory if it is new."""
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        if self.data_dir.exists():
            return
        done = subprocess.run(
            self._java(
                "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties), quick=True
            ),
            capture_output=True,
            text=True,
            timeout=READY_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}"

    def _java(self, main: str, *arguments: str, quick: bool = False) -> list[str]:
        flags = START_QUICKLY if quick else self._jvm_flags
        return ["java", *flags, "-cp", f"{JARS}/*", main, *arguments]

    def wait_ready(self) -> None:
        """A connection is enough: a broker opens its listener when it is caught up and unfenced, and a controller
        only has to be there.
        """
        assert self._process is not None, "this Kafka was not started"
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            status = self._process.poll()
            assert status is None, f"Kafka ended with status {status}:\n{self.log()}"
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, f"Kafka is not ready:\n{self.log()}"
                time.sleep(0.02)
