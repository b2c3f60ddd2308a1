"""Beside the cluster: the demo in Spark, the whole cluster in one container, the project and an image by old tools."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Sequence

import docker
import pytest
from compose_project import (
    BESIDE_BROKERS,
    BROKER_FILES,
    BROKERS,
    COMPOSE_OF_OLD,
    ROOT,
    SEPARATE_FILES,
    SERVICES,
    VERSION,
    Project,
    build_images,
    wait_for,
)
from docker.types import Mount
from running_load import Load
from testcontainers.core.container import DockerContainer

PORT_OFFSET = 7
"""The project takes the ports before it of its block."""


@pytest.mark.whole
def test_the_flights_demo_runs_in_spark_against_the_gateways(project: Project) -> None:
    build_images(project.version, "pipelines")
    output = project.compose("--profile", "spark", "run", "--rm", "-T", "spark")
    assert "all carriers" in output
    assert "336,776" in output


def test_one_container_is_a_cluster_for_the_machine_that_runs_it(project: Project) -> None:
    port = project.port + PORT_OFFSET
    container = (
        DockerContainer(f"barnabas/barnabas:{project.version}")
        .with_env("KAFKA_PORT", str(port))
        .with_kwargs(
            read_only=True, cap_drop=["ALL"], mounts=[Mount("/var/lib/barnabas", None, type="volume")]
        )
        .with_tmpfs_mount("/tmp")
        .with_bind_ports(port, port)
        .with_bind_ports(8080, port + 1)
    )
    with container:
        ready = f"http://localhost:{port + 1}/readyz"
        wait_for(lambda: answers(ready), lambda: str(container.get_logs()))
        with Load(f"localhost:{port}") as load:
            load.wait_progress()
        wrapped = container.get_wrapped_container()
        wrapped.stop(timeout=30)
        wrapped.reload()
        assert wrapped.attrs["State"]["ExitCode"] == 0, json.dumps(wrapped.attrs["State"])


@pytest.mark.whole
@pytest.mark.parametrize(
    ("files", "started", "restarted"),
    [
        (SEPARATE_FILES, SERVICES, ("gateway-1", "storage-1")),
        (BROKER_FILES, (*BESIDE_BROKERS, *BROKERS), ("broker-1",)),
    ],
    ids=["separate", "brokers"],
)
def test_docker_compose_of_old_takes_the_same_files(
    images: str, files: Sequence[str], started: Sequence[str], restarted: Sequence[str]
) -> None:
    subprocess.run([ROOT / "deploy" / "setup" / "programs.sh", *COMPOSE_OF_OLD], check=True)
    project = Project(VERSION, *COMPOSE_OF_OLD)
    project.use(files, started)
    try:
        project.start()
        with Load(project.bootstrap) as load:
            project.compose("restart", *restarted)
            load.wait_progress()
            project.compose("up", "--detach", "--no-build", *started)
            load.wait_progress()
    finally:
        project.stop()


@pytest.mark.whole
def test_the_builder_of_old_makes_the_same_image(images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_BUILDKIT", "0")
    assert build_images("old-builder", "gateway").startswith("barnabas/gateway:old-builder ")
    engine = docker.from_env()
    old, new = (engine.images.get(f"barnabas/gateway:{version}") for version in ("old-builder", VERSION))
    for setting in ("User", "Env", "Entrypoint", "Healthcheck", "ExposedPorts", "StopSignal"):
        assert old.attrs["Config"][setting] == new.attrs["Config"][setting]
    assert old.attrs["Size"] == pytest.approx(new.attrs["Size"], rel=0.01)


def answers(url: str) -> bool:
    """Whether an HTTP endpoint answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
