"""The systems that are measured, each started as a user starts it: one node, fresh data, loopback only."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from processes import ProcessTree

REPOSITORY: Final = Path(__file__).resolve().parent.parent
JARS: Final = REPOSITORY / "build" / "jars" / "kafka-tools"

KAFKA_HEAP: Final = ("-Xmx1G", "-Xms1G")
"""kafka-server-start.sh's default."""

KAFKA_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""kafka-run-class.sh's performance options."""

STOP_SECONDS_MAX: Final = 60.0

PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory}/logs
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
log.segment.delete.delay.ms=1000
"""
"""The values of the server.properties that Apache Kafka ships, on free ports. The last one is added: deleted topics
leave the disk soon, so that what one run wrote is not still on its way there during the next."""


@dataclass
class System:
    """A process tree that serves, or begins to serve, the Kafka protocol at `port`.

    `kill` ends all of it with SIGKILL, `stop` in order, and `start_again` starts it on the same data.
    """

    name: str
    port: int
    tree: ProcessTree
    kill: Callable[[], None]
    stop: Callable[[], None]
    start_again: Callable[[], None]

    ports: Mapping[int, int] = field(default_factory=dict)
    """Of a cluster of several brokers: their ports, by broker id."""
    kill_broker: Callable[[int], None] | None = None
    """Ends one of several brokers with SIGKILL."""
    restore_broker: Callable[[int], None] | None = None
    """Starts it again, where nobody else does."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values() or (self.port,))


Starting = Callable[[], contextlib.AbstractContextManager[System]]
"""Starts a system with fresh data and yields at once, before it is ready; stops it and removes the data at the end."""


@contextlib.contextmanager
def barnabas(checkout: Path | None = None, *flags: str) -> Iterator[System]:
    """`barnabas up`: a broker, a controller and their supervisor.

    With `checkout` the code is that of another work tree, run by this one's Python and libraries; `flags` are more of
    `barnabas up`.
    """
    with data_directory("barnabas") as directory:
        port, http_port = free_ports(2)
        command = [sys.executable, "-m", "barnabas", "up", "--port", str(port), "--http-port", str(http_port)]
        command += flags
        environment = dict(os.environ)
        if checkout is not None:
            environment["PYTHONPATH"] = str(checkout.resolve() / "services")
        yield from serving(
            "barnabas", port, [*command, "--data-dir", f"{directory}/data"], directory, environment
        )


def separate() -> contextlib.AbstractContextManager[System]:
    """`barnabas up --separate`: each service a process of its own, gRPC between, as containers are."""
    return barnabas(None, "--separate")


@contextlib.contextmanager
def kafka() -> Iterator[System]:
    """Apache Kafka, one process that is broker and KRaft controller. Formatting its disk is not part of the start."""
    if not any(JARS.glob("kafka_*.jar")):
        raise SystemExit(f"{JARS} has no Kafka: `make jars` fetches it, or use --against none")
    with data_directory("kafka") as directory:
        port, controller_port = free_ports(2)
        properties = directory / "server.properties"
        properties.write_text(
            PROPERTIES.format(port=port, controller_port=controller_port, directory=directory)
        )
        java = ["java", "-cp", f"{JARS}/*"]
        cluster_id = subprocess.run(
            [*java, "kafka.tools.StorageTool", "random-uuid"], check=True, capture_output=True, text=True
        ).stdout.split()[-1]
        format_command = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
        subprocess.run(format_command, check=True, capture_output=True)
        command = ["java", *KAFKA_HEAP, *KAFKA_JVM, *java[1:], "kafka.Kafka", str(properties)]
        yield from serving("kafka", port, command, directory, dict(os.environ))


def kafka_version() -> str:
    """The version of the jars."""
    name = next(JARS.glob("kafka-clients-*.jar")).stem
    return name.removeprefix("kafka-clients-")


@contextlib.contextmanager
def data_directory(name: str) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-", dir=os.environ.get("BENCH_DATA_DIR")))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def serving(
    name: str, port: int, command: list[str], directory: Path, environment: dict[str, str]
) -> Iterator[System]:
    process = start(command, directory, environment)

    def start_again() -> None:
        nonlocal process
        process = start(command, directory, environment)
        system.tree = ProcessTree(process.pid)

    system = System(
        name,
        port,
        ProcessTree(process.pid),
        kill=lambda: kill_tree(process),
        stop=lambda: stop_trees(process),
        start_again=start_again,
    )
    try:
        yield system
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} ended while it was measured")
    except Exception:
        print((directory / "output.log").read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        stop_trees(process)


def start(command: list[str], directory: Path, environment: dict[str, str]) -> subprocess.Popen[Any]:
    with (directory / "output.log").open("a") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment,
        )


def stop_trees(*processes: subprocess.Popen[Any]) -> None:
    """SIGTERM to each, at once, and return when they have ended; those that do not are killed."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.perf_counter() + STOP_SECONDS_MAX
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.perf_counter()))
        except subprocess.TimeoutExpired:
            kill_tree(process)


def kill_tree(process: subprocess.Popen[Any]) -> None:
    """SIGKILL the whole tree and return when none of it is left."""
    for pid in reversed(ProcessTree(process.pid).pids()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
