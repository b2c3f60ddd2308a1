"""`barnabas up --etcd`: the metadata in a real etcd, which may go away and come back under a running cluster."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from running_cluster import free_ports, require_program

pytestmark = pytest.mark.integration

WAIT_SECONDS = 30
OUTAGE_SECONDS = 4.0
"""Longer than the controller's lease: it has to be elected anew."""


class Etcd:
    """Owns one etcd member and its data; stopped and started again it keeps its ports."""

    def __init__(self, folder: Path) -> None:
        port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        peers = f"http://127.0.0.1:{port + 1}"
        self._command = [
            require_program("etcd"),
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        ]
        self._log = folder / "etcd.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._is_healthy():
            assert time.monotonic() < deadline, self._log.read_text()[-4000:]
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=1) as answer:
                return b"true" in answer.read()
        except (urllib.error.URLError, OSError):
            return False


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def create(admin: AdminClient, name: str, **config: str) -> None:
    admin.create_topics([NewTopic(name, 2, 1, config=config)], request_timeout=WAIT_SECONDS)[name].result(
        WAIT_SECONDS
    )


def create_again_until_made(admin: AdminClient, name: str) -> None:
    """Create a topic while the cluster finds its controller again: every refusal must be one to retry."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            create(admin, name)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def produce(producer: Producer, topic: str, first: int, count: int) -> None:
    reports: list[Any] = []
    for number in range(first, first + count):
        producer.produce(
            topic, str(number), partition=number % 2, on_delivery=lambda error, _: reports.append(error)
        )
    assert producer.flush(WAIT_SECONDS) == 0
    assert reports == [None] * count


def read(bootstrap: str, topic: str, count: int) -> list[int]:
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    client.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    seen: list[int] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(seen) < count and time.monotonic() < deadline:
        seen += [int(message.value()) for message in client.consume(count, 0.2) if not message.error()]
    client.close()
    return sorted(seen)


def test_everything_is_found_again_after_kills_and_restarts(
    etcd: Etcd, make_cluster: Callable[..., Any]
) -> None:
    cluster = make_cluster(flags=("--etcd", etcd.url))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    create(admin, "kept", **{"retention.ms": "123456789"})
    produce(producer, "kept", 0, 100)
    cluster.kill_and_wait("controller")
    create(admin, "after-the-kill")
    produce(producer, "kept", 100, 100)
    cluster.restart()
    assert read(cluster.bootstrap, "kept", 200) == list(range(200))
    assert {"kept", "after-the-kill"} <= set(admin.list_topics(timeout=WAIT_SECONDS).topics)
    resource = ConfigResource(ResourceType.TOPIC, "kept")
    settings = admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
    assert settings["retention.ms"].value == "123456789"
    assert not (cluster.data_dir / "controller" / "metadata.db").exists(), "the metadata is in etcd alone"

    cluster.stop()
    etcd.stop()
    etcd.start()
    cluster.start()
    assert read(cluster.bootstrap, "kept", 200) == list(range(200))


@pytest.mark.alone
def test_the_data_path_goes_on_while_etcd_is_away(etcd: Etcd, make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(flags=("--etcd", etcd.url))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    create(admin, "steady")
    produce(producer, "steady", 0, 100)
    etcd.stop()
    count, slowest, end = 100, 0.0, time.monotonic() + OUTAGE_SECONDS
    while time.monotonic() < end:
        started = time.monotonic()
        produce(producer, "steady", count, 10)
        slowest = max(slowest, time.monotonic() - started)
        count += 10
        time.sleep(0.05)
    assert slowest < 2, "producers felt that etcd was away"
    assert read(cluster.bootstrap, "steady", count) == list(range(count))
    etcd.start()
    create_again_until_made(admin, "afterwards")
    cluster.wait_ready()
    produce(producer, "afterwards", 0, 10)
    assert all(service.restarts == 0 for service in cluster.services().values())


def test_an_etcd_that_is_not_there_is_named_and_waited_for(tmp_path: Path) -> None:
    etcd, port = Etcd(tmp_path), free_ports(2)
    command = [sys.executable, "-m", "barnabas", "up", "--etcd", etcd.url]
    command += ["--data-dir", str(tmp_path / "data"), "--port", str(port), "--http-port", str(port + 1)]
    log, output = tmp_path / "log", tmp_path / "stdout"
    with log.open("wb") as errors, output.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)
    try:
        address = etcd.url.removeprefix("http://")
        wait_until(lambda: address in log.read_text())
        line = next(line for line in log.read_text().splitlines() if address in line)
        assert "waiting for etcd" in line
        assert "Start it, or stop this and give the right --etcd" in line
        wait_until(lambda: readyz(port + 1)[0] == 503)
        assert "controller" in readyz(port + 1)[1]
        etcd.start()
        wait_until(lambda: "barnabas is ready" in output.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 0
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()
        etcd.stop()


def test_it_can_be_stopped_while_it_waits_for_etcd(tmp_path: Path) -> None:
    port = free_ports(3)
    command = [sys.executable, "-m", "barnabas", "up", "--etcd", f"http://127.0.0.1:{port + 2}"]
    command += ["--data-dir", str(tmp_path / "data"), "--port", str(port), "--http-port", str(port + 1)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with contextlib.closing(process.stderr):  # type: ignore[type-var]
        assert process.stderr is not None
        try:
            while "waiting for the metadata store" not in (line := process.stderr.readline()):
                assert line, "barnabas up ended"
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
            assert process.wait(WAIT_SECONDS) == 0
        finally:
            process.kill()
            process.wait()
    assert "Traceback" not in rest
    assert "killing it" not in rest


@pytest.mark.parametrize("url", ["https://127.0.0.1:2379", "127.0.0.1", "http://", "http://127.0.0.1:port"])
def test_a_url_that_cannot_be_one_is_refused(tmp_path: Path, url: str) -> None:
    port = free_ports(2)
    command = [sys.executable, "-m", "barnabas", "up", "--etcd", url]
    command += ["--data-dir", str(tmp_path / "data"), "--port", str(port), "--http-port", str(port + 1)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("barnabas: ")
    assert "etcd" in done.stderr


def readyz(http_port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
