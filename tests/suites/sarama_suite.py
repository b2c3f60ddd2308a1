"""sarama's functional tests: five brokers behind toxiproxy, some of which the tests end, beside Java's clients."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from docker_stand_in import broker_control
from fetched import go_module, go_program, go_test_program, run
from go_suites import read_go_output
from real_kafka import DIES_WITH_US, JARS, START_QUICKLY, kafka_version
from results import Outcome, Reason, Result
from suite import Suite, SuiteCluster

TOXIPROXY: Final = "v2.5.0"
TOXIPROXY_PORT: Final = 8474
"""Where the tests look for it."""

TOXIPROXY_SECONDS_MAX: Final = 30.0
JAVA_PROGRAMS: Final = {
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-verifiable-consumer.sh": "org.apache.kafka.tools.VerifiableConsumer",
}
"""What the tests run in the container of a broker."""


class Sarama(Suite):
    """The tests behind the build tag `functional`; the rest of the package's tests need no broker.

    They start their brokers with `docker compose`, for which `docker_stand_in` is there.
    """

    name = "sarama"
    version = "v1.61.1"
    registry = "the Go module proxy"
    what = "functional tests (five brokers behind toxiproxy, Java's clients beside it)"
    seconds_max = 1200.0
    nodes = 5
    racks = ("1", "2", "3", "4", "5")
    first_advertised_port = 29091
    stops_brokers = True
    settings = (
        "auto.create.topics.enable=false",
        "default.replication.factor=2",
        "group.initial.rebalance.delay.ms=0",
        "min.insync.replicas=1",
        "offsets.topic.replication.factor=2",
        "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "transaction.state.log.min.isr=1",
        "transaction.state.log.replication.factor=2",
    )
    """As its docker-compose.yml has them, and the server.properties that comes with Kafka."""
    remark = "These are the settings that its authors give to Kafka."
    reasons = (
        Reason("^TestReadOnlyAndAllCommittedMessages$", "skips itself: its authors saw it fail at times"),
    )

    def fetch(self, work: Path) -> Path:
        folder = go_module("github.com/IBM/sarama", self.version, work)
        go_test_program(folder, ".", folder / "suite.test", tags="functional")
        go_program("github.com/Shopify/toxiproxy/v2/cmd/server", TOXIPROXY, _toxiproxy(folder))
        return folder

    def run(self, folder: Path, cluster: SuiteCluster) -> list[Result]:
        wanted = functional_tests(folder)
        programs = _java_programs(folder / "bin")
        words = {
            f"/opt/kafka-{kafka_version()}/bin": str(programs),
            "/tmp/sarama-java": str(folder / "java"),
            "kafka-1:9091": cluster.bootstrap,
        }
        command = [str(folder / "suite.test"), "-test.v", f"-test.timeout={self.seconds_max:.0f}s"]
        command.append(f"-test.run=^({'|'.join(wanted)})$")
        with (
            toxiproxy(_toxiproxy(folder), cluster, self.first_advertised_port),
            broker_control(folder, cluster, words) as variables,
        ):
            env = {**os.environ, **variables, "KAFKA_VERSION": kafka_version()}
            done = run(command, cwd=folder, seconds=self.seconds_max + 30, env=env)
        (folder / "output").write_text(done.stdout)
        results = read_go_output(done.stdout)
        if not results:
            raise RuntimeError(f"{self.name} ran no test:\n{done.stdout[-2000:]}")
        ended = {result.name for result in results}
        return results + [Result(name, Outcome.FAILED, "did not end") for name in wanted if name not in ended]


def functional_tests(folder: Path) -> list[str]:
    """The names of the tests that want brokers."""
    sources = sorted(folder.glob("functional_*_test.go"))
    return [
        name
        for path in sources
        for name in re.findall(r"^func (Test\w+)\(t ", path.read_text(), re.MULTILINE)
    ]


def _toxiproxy(folder: Path) -> Path:
    return folder.with_name(f"toxiproxy-{TOXIPROXY}")


def _java_programs(folder: Path) -> Path:
    """Kafka's own scripts, as a distribution has them, for the jars that are here."""
    folder.mkdir(exist_ok=True)
    for name, main in JAVA_PROGRAMS.items():
        java = shlex.join(["java", *START_QUICKLY, "-cp", f"{JARS}/*", main])
        (folder / name).write_text(f'#!/bin/sh\nexec {java} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@contextlib.contextmanager
def toxiproxy(folder: Path, cluster: SuiteCluster, first_advertised_port: int) -> Iterator[None]:
    """A running toxiproxy with the proxies kafka1, kafka2 and so on, from `first_advertised_port` on."""
    command = [*DIES_WITH_US, str(folder / "server"), "-port", str(TOXIPROXY_PORT)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for broker, port in enumerate(cluster.ports, start=1):
            _add_proxy(
                {
                    "name": f"kafka{broker}",
                    "listen": f"127.0.0.1:{first_advertised_port + broker - 1}",
                    "upstream": f"127.0.0.1:{port}",
                    "enabled": True,
                }
            )
        yield
    finally:
        process.kill()
        process.wait()


def _add_proxy(proxy: dict[str, object]) -> None:
    deadline = time.monotonic() + TOXIPROXY_SECONDS_MAX
    while True:
        connection = HTTPConnection("127.0.0.1", TOXIPROXY_PORT, timeout=TOXIPROXY_SECONDS_MAX)
        try:
            connection.request("POST", "/proxies", json.dumps(proxy))
            answer = connection.getresponse()
            text = answer.read().decode()
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            continue
        finally:
            connection.close()
        if answer.status != 201:
            raise RuntimeError(f"toxiproxy says {text}")
        return
