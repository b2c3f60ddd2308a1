"""Stands in for `docker compose` where tests keep their brokers in containers: here they are processes.

    docker compose stop kafka-3                      the suite's `BrokerControl` does it, and `start`
    docker compose logs --since TIME kafka-3         what all brokers said
    docker compose exec -T kafka-1 PROGRAM ARGUMENT  runs beside us, with what is named otherwise there replaced
    docker compose up, down, rm                      nothing: the brokers are there as long as the suite runs

What it needs to know is in the variable DOCKER_STAND_IN.
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
        threading.Thread(target=control.serve_forever, name="docker", daemon=True).start()
        yield {
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            VARIABLE: json.dumps({"socket": str(path), "words": dict(words)}),
        }
        control.shutdown()


class _Control(socketserver.UnixStreamServer):
    """Does what it is asked for in a line, such as `stop 3`, and says what came of it."""

    def __init__(self, path: str, cluster: SuiteCluster) -> None:
        super().__init__(path, _Handler)
        self.cluster = cluster
        self.down: set[int] = set()

    def obey(self, verb: str, service: str) -> str:
        """As docker does: who is in the wanted state stays as he is."""
        if verb == "logs":
            return self.cluster.log()
        broker = int(service.removeprefix(SERVICE))
        if verb == "stop" and broker not in self.down:
            self.down.add(broker)
            self.cluster.stop(broker)
        elif verb == "start" and broker in self.down:
            self.cluster.start(broker)
            self.down.discard(broker)
        return ""


class _Handler(socketserver.StreamRequestHandler):
    server: _Control

    def handle(self) -> None:
        verb, service = self.rfile.readline().decode().split()
        try:
            self.wfile.write(b"0" + self.server.obey(verb, service).encode())
        except Exception as error:  # told to the test, whatever it is
            self.wfile.write(b"1" + str(error).encode())


def _main(arguments: list[str]) -> int:
    known = json.loads(os.environ[VARIABLE])
    match arguments:
        case ["compose", "exec", "-T", _, *command]:
            for word, here in known["words"].items():
                command = [part.replace(word, here) for part in command]
            os.execvp(command[0], command)
        case ["compose", "start" | "stop" | "logs" as verb, *_, service]:
            with socket.socket(socket.AF_UNIX) as control:
                control.connect(known["socket"])
                control.sendall(f"{verb} {service}\n".encode())
                status, answer = control.recv(1), control.makefile().read()
            print(answer, end="")
            return int(status)
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
