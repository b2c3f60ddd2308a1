"""Containers that are killed, cut off, restarted and replaced while clients go on."""

from __future__ import annotations

import time
import uuid

import pytest
from compose_project import CONTROLLERS, LOGS, OURS, SERVICES, STORAGE, Project, build_images, wait_for
from confluent_kafka import Consumer, TopicPartition
from running_load import PARTITIONS, Load, create_topic, read_all

CUT_OFF_SECONDS = 12.0
"""Longer than any session timeout, and than the probes of an idle connection take to give it up (8 s)."""

FENCED_SECONDS_MIN = 1.0
"""Others lead what a silent node led once its session has timed out (2 s since it was heard last), not sooner."""


def active_controller(project: Project) -> str:
    """The controller that leads, by the line that it wrote last about it."""
    found = {}
    for name in CONTROLLERS:
        for line in project.container(name).logs(timestamps=True).decode().splitlines():
            if "this controller is active" in line:
                found[name] = line
    return max(found, key=lambda name: found[name])


def whole(service: str) -> object:
    """A parameter that the short form leaves out: another of a kind that it has, or one that no client talks to."""
    return pytest.param(service, marks=pytest.mark.whole)


def report(what: str, load: Load) -> None:
    """Write down how long clients waited at most, beside the logs."""
    line = f"{what}: a partition took no record for {load.longest_silence_seconds:.1f} s at most"
    with (LOGS.parent / "pauses.txt").open("a") as file:
        print(line, file=file)


@pytest.mark.parametrize(
    "service",
    ["gateway-1", "storage-2", "coordinator-1", whole("coordinator-2"), whole("etcd-1"), whole("redis")],
)
def test_a_killed_container_costs_no_record(project: Project, service: str) -> None:
    with Load(project.bootstrap) as load:
        project.kill(service)
        load.wait_progress()
    report(f"{service} killed", load)


def test_a_storage_node_that_comes_back_without_its_volume_is_filled_again(project: Project) -> None:
    with Load(project.bootstrap) as load:
        project.begin_anew("storage-3")
        load.wait_progress()
    report("storage-3 gone with its volume, and back empty", load)
    before = read_all(project.bootstrap, load.topic)
    with project.stopped("storage-1", "storage-2"):  # what is read now is what came to the empty one
        assert read_all(project.bootstrap, load.topic) == before


def test_the_active_controller_is_killed(project: Project) -> None:
    with Load(project.bootstrap) as load:
        killed = active_controller(project)
        project.kill(killed)
        load.wait_progress()
    report(f"{killed} killed", load)


@pytest.mark.parametrize(
    "service",
    ["storage-1", whole("gateway-2"), whole("coordinator-1"), whole("coordinator-2"), whole("etcd-2")],
)
def test_a_container_is_cut_off_and_comes_back(project: Project, service: str) -> None:
    with Load(project.bootstrap) as load:
        with project.cut_off(service):
            time.sleep(CUT_OFF_SECONDS)
        load.wait_progress()
    report(f"{service} cut off for {CUT_OFF_SECONDS:.0f} s", load)
    if service in STORAGE:
        assert load.longest_silence_seconds > FENCED_SECONDS_MIN, "it was not cut off"


def test_the_active_controller_is_cut_off(project: Project) -> None:
    cut = active_controller(project)
    with Load(project.bootstrap) as load:
        with project.cut_off(cut):
            wait_for(lambda: active_controller(project) != cut, lambda: f"{cut} stayed the active controller")
            load.wait_progress()
            create_topic(project.bootstrap, f"made-{uuid.uuid4().hex[:8]}")
        load.wait_progress()
    report(f"{cut} cut off", load)


def test_a_rolling_restart_of_every_container_stops_no_client(project: Project) -> None:
    with Load(project.bootstrap) as load:
        for service in SERVICES:
            project.restart(service)
        load.wait_progress()
    report("rolling restart", load)


def test_the_whole_project_goes_down_and_comes_up_with_its_data(project: Project) -> None:
    with Load(project.bootstrap) as load:
        load.wait_progress()
    before = read_all(project.bootstrap, load.topic)
    committed = committed_offsets(project, load)
    project.stop(down=False)
    project.start()
    assert read_all(project.bootstrap, load.topic) == before
    assert committed_offsets(project, load) == committed
    with Load(project.bootstrap) as later:
        later.wait_progress()


def committed_offsets(project: Project, load: Load) -> list[int]:
    """The offsets of the load's group, by partition."""
    consumer = Consumer({"bootstrap.servers": project.bootstrap, "group.id": f"{load.topic}-readers"})
    partitions = [TopicPartition(load.topic, partition) for partition in range(PARTITIONS)]
    offsets = [place.offset for place in consumer.committed(partitions, timeout=30)]
    consumer.close()
    assert min(offsets) > 0
    return offsets


def test_images_are_replaced_by_those_of_another_version_one_by_one(project: Project) -> None:
    build_images("test-next", "controller", "storage", "coordinator", "gateway", "canary")
    with Load(project.bootstrap) as load:
        for service in OURS:
            project.replace(service, "test-next")
        load.wait_progress()
    report("rolling upgrade", load)
    image = project.container("storage-1").image
    assert image.labels["org.opencontainers.image.version"] == "test-next"
