"""What stands in for `docker compose`: it does what it is asked for, or says that it does not know it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from docker_stand_in import broker_control, main
from suite import SuiteCluster


@dataclass
class Brokers:
    """Three that only note what is done to them; one that is `broken` fails."""

    done: list[str] = field(default_factory=list)
    broken: int | None = None

    def cluster(self) -> SuiteCluster:
        return SuiteCluster("127.0.0.1:1", (1, 2, 3), self.stop, self.start, lambda: "all said this\n")

    def stop(self, broker: int) -> None:
        if broker == self.broken:
            raise RuntimeError(f"broker {broker} does not end")
        self.done.append(f"stop {broker}")

    def start(self, broker: int) -> None:
        self.done.append(f"start {broker}")


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    """Brokers that this process' `main` and its children's `docker` reach."""
    brokers = Brokers()
    with broker_control(tmp_path, brokers.cluster(), {"kafka-1:9091": "127.0.0.1:1"}) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield brokers


def docker(words: str) -> int:
    return main(words.split())


def test_brokers_are_stopped_and_started_as_docker_does_it(brokers: Brokers) -> None:
    assert docker("compose start kafka-1") == 0, "who is up stays up"
    assert docker("compose stop kafka-2 kafka-3") == 0
    assert docker("compose stop kafka-3") == 0, "who is down stays down"
    assert docker("compose start kafka-3 kafka-2") == 0
    assert brokers.done == ["stop 2", "stop 3", "start 3", "start 2"]


def test_who_could_not_be_stopped_is_not_taken_for_down(
    brokers: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers.broken = 2
    assert docker("compose stop kafka-2") == 1
    assert capsys.readouterr().err == "broker 2 does not end\n"
    brokers.broken = None
    assert docker("compose stop kafka-2") == 0
    assert brokers.done == ["stop 2"]


def test_the_log_is_all_brokers(brokers: Brokers, capsys: pytest.CaptureFixture[str]) -> None:
    assert docker("compose logs --since 2026-11-30T00:00:00Z kafka-2") == 0
    assert docker("compose logs -t kafka-1 kafka-2 kafka-3") == 0
    assert capsys.readouterr().out == 2 * "all said this\n"
    assert brokers.done == []


@pytest.mark.parametrize(
    "words",
    [
        "compose up -d --quiet-pull --timestamps --wait --wait-timeout 600",
        "compose down --volumes",
        "compose rm -v --force --stop",
        "compose --profile zookeeper down --volumes",
        "compose --profile zookeeper rm -v --force --stop",
    ],
)
def test_what_brings_all_up_and_down_does_nothing(
    brokers: Brokers, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert docker(words) == 0
    assert brokers.done == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "words",
    [
        "ps",
        "compose ps",
        "compose restart kafka-2",
        "compose kill kafka-2",
        "compose pause kafka-2",
        "compose stop",
        "compose stop -t 5 kafka-2",
        "compose stop zookeeper-1",
        "compose -f x.yml stop kafka-2",
        "compose up -d kafka-2",
        "compose logs",
        "compose exec kafka-1 true",
        "compose exec -T kafka-1",
    ],
)
def test_what_is_not_known_fails(brokers: Brokers, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert docker(words) == 1
    assert brokers.done == []
    assert capsys.readouterr().err == f"not known here: docker {words}\n"


@pytest.mark.parametrize("service", ["kafka-4", "kafka-0", "kafka-x"])
def test_a_broker_that_there_is_not_fails(
    brokers: Brokers, service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert docker(f"compose stop kafka-1 {service}") == 1
    assert brokers.done == [], "none of them is stopped"
    assert capsys.readouterr().err == f"no such service: {service}\n"


def test_the_program_runs_what_a_container_would(brokers: Brokers) -> None:
    """As the tests of a suite call it: by its name, found in PATH."""
    command = ["docker", "compose", "exec", "-T", "kafka-1", "sh", "-c", 'echo "$@"', "sh", "to kafka-1:9091"]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=True)
    assert done.stdout == "to 127.0.0.1:1\n"
