"""Stands in for `docker compose` where tests keep their brokers in containers: here they are processes.

    docker compose stop kafka-3 kafka-4              they are stopped; and `start`
    docker compose logs --since TIME kafka-3         what all brokers said; and `logs -t`
    docker compose exec -T kafka-1 PROGRAM ARGUMENT  runs beside us, with what is named otherwise there replaced
    docker compose up, down, rm                      nothing: the brokers are there as long as the suite runs

All else is not known here and fails, so that no test goes on as if something had been done. `broker_control` has the
brokers at its end of a socket; where that is stands in the variable DOCKER_STAND_IN.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from suite import SuiteCluster

VARIABLE: Final = "DOCKER_STAND_IN"
SERVICE: Final = "kafka-"
"""What the containers are called, before the broker's id."""

POLL_SECONDS: Final = 0.05
"""How soon the thread notices that the suite is over."""


@contextlib.contextmanager
def broker_control(folder: Path, cluster: SuiteCluster, words: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A `docker` below `folder` that reaches the cluster's brokers; gives the variables under which it is found.

    `words` are what stands in the commands of containers, with what is meant here.
    """
    program, path = folder / "bin" / "docker", folder / "control"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, __file__])} "$@"\n')
    program.chmod(0o755)
    path.unlink(missing_ok=True)
    with _Control(str(path), cluster) as control:
        thread = threading.Thread(
            target=control.serve_forever, args=(POLL_SECONDS,), name="docker", daemon=True
        )
        thread.start()
        try:
            yield {
                "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
                VARIABLE: json.dumps({"socket": str(path), "words": dict(words)}),
            }
        finally:
            control.shutdown()
            thread.join()


class _Control(socketserver.UnixStreamServer):
    """Does what it is asked for in a line, such as `stop kafka-3`, and says what came of it.

    Owns the knowledge of who is down: who was stopped and has started again since, each noted when it was done.
    """

    def __init__(self, path: str, cluster: SuiteCluster) -> None:
        super().__init__(path, _Handler)
        self.cluster = cluster
        self.down: set[int] = set()

    def obey(self, verb: str, services: list[str]) -> str:
        """As docker does: who is in the wanted state stays as he is. Raises ValueError for one that there is not."""
        brokers = [self._broker(service) for service in services]
        if verb == "logs":
            return self.cluster.log()
        for broker in brokers:
            if verb == "stop" and broker not in self.down:
                self.cluster.stop(broker)
                self.down.add(broker)
            elif verb == "start" and broker in self.down:
                self.cluster.start(broker)
                self.down.discard(broker)
        return ""

    def _broker(self, service: str) -> int:
        ids = {f"{SERVICE}{broker}": broker for broker, _ in enumerate(self.cluster.ports, start=1)}
        if service not in ids:
            raise ValueError(f"no such service: {service}")
        return ids[service]


class _Handler(socketserver.StreamRequestHandler):
    server: _Control

    def handle(self) -> None:
        verb, *services = self.rfile.readline().decode().split()
        try:
            self.wfile.write(b"0" + self.server.obey(verb, services).encode())
        except Exception as error:  # told to the test, whatever it is
            self.wfile.write(f"1{error}\n".encode())


def main(arguments: list[str]) -> int:
    """Returns the exit status, or becomes the program that is to run in a container."""
    known = json.loads(os.environ[VARIABLE])
    match arguments:
        case ["compose", "exec", "-T", _, program, *rest]:
            command = [program, *rest]
            for word, here in known["words"].items():
                command = [part.replace(word, here) for part in command]
            os.execvp(command[0], command)
        case ["compose", "start" | "stop" as verb, *services] if _are_services(services):
            return _ask(known["socket"], verb, services)
        case ["compose", "logs", "-t", *services] | ["compose", "logs", "--since", _, *services] if (
            _are_services(services)
        ):
            return _ask(known["socket"], "logs", services)
        case ["compose", "up" | "down" | "rm", *options] if not _name_services(options):
            return 0
        # sarama tears down what an earlier run left before it looks for its version of Kafka.
        case ["compose", "--profile", "zookeeper", "down" | "rm", *options] if not _name_services(options):
            return 0
    print(f"not known here: docker {shlex.join(arguments)}", file=sys.stderr)
    return 1


def _are_services(words: list[str]) -> bool:
    """Whether brokers' containers are named, at least one, and nothing else."""
    return words != [] and all(word.startswith(SERVICE) for word in words)


def _name_services(options: list[str]) -> bool:
    """Whether some brokers alone are meant, of which nothing is known."""
    return any(option.startswith(SERVICE) for option in options)


def _ask(path: str, verb: str, services: list[str]) -> int:
    """Have it done by who holds the brokers; returns the exit status."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(path)
        control.sendall(f"{' '.join([verb, *services])}\n".encode())
        with control.makefile() as answers:
            answer = answers.read()
    status = int(answer[:1])
    print(answer[1:], end="", file=sys.stderr if status else sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
