"""Brokers in containers (compose.brokers.yaml): clients, a kill, metrics; and the same volumes without brokers."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator

import pytest
from compose_project import (
    BESIDE_BROKERS,
    BROKER_FILES,
    BROKERS,
    GATEWAYS,
    SEPARATE_FILES,
    STORAGE,
    VERSION,
    Project,
    wait_for,
)
from confluent_kafka.admin import AdminClient
from kcat_client import kcat
from running_load import Load, read_all


@pytest.fixture(scope="module")
def brokers(images: str) -> Iterator[Project]:
    """A project with brokers, up; everything of it is gone afterwards."""
    project = Project(VERSION)
    project.use(BROKER_FILES, (*BESIDE_BROKERS, *BROKERS, "prometheus"))
    try:
        project.start()
        yield project
    finally:
        project.stop()


def test_each_broker_is_told_at_a_port_of_its_own(brokers: Project) -> None:
    for place in range(3):
        client = AdminClient({"bootstrap.servers": f"localhost:{brokers.port + place}"})
        told = {broker.id: broker.port for broker in client.list_topics(timeout=30).brokers.values()}
        assert told == {1: brokers.port, 2: brokers.port + 1, 3: brokers.port + 2}
    kcat("-b", f"localhost:{brokers.port}", "-P", "-t", "outside", "-K:", stdin="k1:hello\nk2:world\n")
    found = kcat("-b", f"localhost:{brokers.port + 2}", "-C", "-t", "outside", "-o", "beginning", "-e", "-K:")
    assert sorted(found.splitlines()) == ["k1:hello", "k2:world"]


def test_a_killed_broker_costs_no_record(brokers: Project) -> None:
    with Load(brokers.bootstrap) as load:
        brokers.kill("broker-2")
        load.wait_progress()


def test_brokers_may_do_as_little_as_possible(brokers: Project) -> None:
    attributes = brokers.container("broker-1").attrs
    host = attributes["HostConfig"]
    assert host["ReadonlyRootfs"], json.dumps(host)
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert host["Memory"] == 3 * 2**30
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    assert attributes["Config"]["User"] == "10001:10001"
    assert attributes["Config"]["StopTimeout"] == 60


def test_prometheus_scrapes_brokers_in_place_of_their_parts(brokers: Project) -> None:
    url = f"http://localhost:{brokers.port + 6}/api/v1/query?query="

    def jobs(query: str) -> set[tuple[str, str]]:
        found = brokers.get(url + urllib.parse.quote(query))["data"]["result"]
        return {(sample["metric"]["job"], sample["metric"]["instance"]) for sample in found}

    expected = {("broker", name) for name in BROKERS}
    for query in (
        'up{job="broker"} == 1',
        "barnabas_gateway_unanswered_request_bytes",
        "kafka_server_replicamanager_leadercount",
    ):
        wait_for(lambda query=query: jobs(query) == expected, lambda query=query: f"{query}: {jobs(query)}")
    assert not {job for job, _ in jobs("up")} & {"gateway", "storage"}


@pytest.mark.whole
def test_the_layout_changes_and_changes_back_on_the_same_volumes(images: str) -> None:
    project = Project(VERSION)
    separate, together = (*BESIDE_BROKERS, *STORAGE, *GATEWAYS), (*BESIDE_BROKERS, *BROKERS)
    topics = {}
    try:
        for files, started in (
            (SEPARATE_FILES, separate),
            (BROKER_FILES, together),
            (SEPARATE_FILES, separate),
        ):
            project.use(files, started)
            project.start()
            for topic, records in topics.items():
                assert read_all(project.bootstrap, topic) == records
            with Load(project.bootstrap) as load:
                load.wait_progress()
            topics[load.topic] = read_all(project.bootstrap, load.topic)
            project.stop(down=False)
    finally:
        project.stop()
