"""Clusters of three brokers: `barnabas up --nodes 3`, and three processes of Kafka that are brokers and controllers."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from processes import ProcessTree
from systems import (
    JARS,
    KAFKA_HEAP,
    KAFKA_JVM,
    PROPERTIES,
    System,
    barnabas,
    data_directory,
    free_ports,
    stop_trees,
)
from systems import kill_tree as kill_process
from systems import start as start_process

BROKERS: Final = (1, 2, 3)
OF_THREE: Final = """\
offsets.topic.replication.factor=3
default.replication.factor=3
min.insync.replicas=2
"""
"""Added to the server.properties that Kafka ships: what `barnabas up --nodes 3` sets as well."""


@contextlib.contextmanager
def barnabas_of_three(checkout: Path | None = None) -> Iterator[System]:
    """`barnabas up --nodes 3`: three brokers, a controller and their supervisor."""
    first, http_port = _ports_in_a_row(len(BROKERS)), free_ports(1)[0]
    flags = ("--nodes", str(len(BROKERS)), "--port", str(first), "--http-port", str(http_port))
    with barnabas(checkout, *flags) as system:
        system.port = first
        system.ports = {broker: first + place for place, broker in enumerate(BROKERS)}

        def kill_broker(broker: int) -> None:
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/services") as answer:
                services = json.load(answer)
            (pid,) = (row["pid"] for row in services if row["name"] == f"broker-{broker}")
            os.kill(pid, signal.SIGKILL)  # the supervisor starts it again, as it does for a user

        system.kill_broker = kill_broker
        yield system


@contextlib.contextmanager
def kafka_of_three() -> Iterator[System]:
    """Three Kafkas, each broker and KRaft controller. Formatting their disks is not part of the start."""
    if not any(JARS.glob("kafka_*.jar")):
        raise SystemExit(f"{JARS} has no Kafka: `make jars` fetches it, or use --against none")
    with data_directory("kafka-of-three") as directory:
        ports = dict(zip(BROKERS, free_ports(3), strict=True))
        commands = _formatted(directory, ports)
        running = {broker: _launch(command, directory, broker) for broker, command in commands.items()}

        def tree() -> ProcessTree:
            first, *others = (process.pid for process in running.values())
            return ProcessTree(first, tuple(others))

        def restore_broker(broker: int) -> None:
            running[broker] = _launch(commands[broker], directory, broker)
            system.tree = tree()

        def kill_broker(broker: int) -> None:
            kill_process(running[broker])

        def kill() -> None:
            for broker in BROKERS:
                kill_broker(broker)

        def start_again() -> None:
            for broker in BROKERS:
                restore_broker(broker)

        system = System(
            "kafka",
            ports[1],
            tree(),
            kill=kill,
            stop=lambda: stop_trees(*running.values()),
            start_again=start_again,
            ports=ports,
            kill_broker=kill_broker,
            restore_broker=restore_broker,
        )
        try:
            yield system
        finally:
            for process in running.values():
                kill_process(process)


def _formatted(directory: Path, ports: dict[int, int]) -> dict[int, list[str]]:
    """The command of each broker, whose disk is formatted."""
    controllers = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
    voters = ",".join(f"{broker}@127.0.0.1:{port}" for broker, port in controllers.items())
    java = ["java", "-cp", f"{JARS}/*"]
    made = [*java, "kafka.tools.StorageTool", "random-uuid"]
    cluster_id = subprocess.run(made, check=True, capture_output=True, text=True).stdout.split()[-1]
    commands = {}
    for broker in BROKERS:
        text = PROPERTIES.format(
            port=ports[broker], controller_port=controllers[broker], directory=directory / str(broker)
        )
        lines = [
            line for line in text.splitlines() if not line.startswith(("node.id=", "controller.quorum."))
        ]
        lines = [line for line in lines if not line.startswith("offsets.topic.replication")]
        properties = directory / f"{broker}.properties"
        own = f"node.id={broker}\ncontroller.quorum.voters={voters}\n"
        properties.write_text("\n".join(lines) + f"\n{own}{OF_THREE}")
        formatting = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
        subprocess.run(formatting, check=True, capture_output=True)
        commands[broker] = ["java", *KAFKA_HEAP, *KAFKA_JVM, *java[1:], "kafka.Kafka", str(properties)]
    return commands


def _launch(command: list[str], directory: Path, broker: int) -> subprocess.Popen[Any]:
    folder = directory / str(broker)
    folder.mkdir(exist_ok=True)
    return start_process(command, folder, dict(os.environ))


def _ports_in_a_row(count: int) -> int:
    """The first of `count` ports in a row that are free now."""
    while True:
        first = free_ports(1)[0]
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            import socket

            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
