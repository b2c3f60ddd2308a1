from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from barnabas.cli import unix_http
from barnabas.cli.child import ServiceSpec
from barnabas.cli.endpoints import make_application
from barnabas.cli.merged_metrics import Page, merge_metrics
from barnabas.cli.supervisor import SupervisedService, Surroundings
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.health import Health
from barnabas.kernel.http import health_application, serve_http


def page(service: str, instance: str, requests: int) -> Page:
    registry = CollectorRegistry()
    Counter("requests", "Requests", ["api"], registry=registry).labels("Fetch").inc(requests)
    Gauge("depth", 'A "quoted"\nhelp', registry=registry).set(requests)
    Histogram("seconds", "Time", buckets=(1,), registry=registry).observe(0.5)
    return Page(service, instance, generate_latest(registry).decode())


def test_a_family_appears_once_with_everyones_samples() -> None:
    merged = merge_metrics([page("storage", "storage-1", 3), page("storage", "storage-2", 4)]).decode()
    types = [line.split()[2] for line in merged.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert 'requests_total{api="Fetch",instance="storage-1",service="storage"} 3.0' in merged
    assert 'requests_total{api="Fetch",instance="storage-2",service="storage"} 4.0' in merged
    assert 'seconds_bucket{instance="storage-2",le="1.0",service="storage"} 1.0' in merged
    assert {family.name for family in text_string_to_metric_families(merged)} >= {
        "requests",
        "depth",
        "seconds",
    }


async def metrics() -> bytes:
    return b"up 1\n"


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[str, list[SupervisedService], Health]]:
    """An HTTP endpoint of two services, of which only the first answers; and that one's health."""
    with tempfile.TemporaryDirectory(prefix="barnabas-", dir="/tmp") as path:
        surroundings = Surroundings(Path(path), ManualClock(), print)
        services = [
            SupervisedService(ServiceSpec(name, "storage", (), f"{path}/{name}.http"), surroundings)
            for name in ("storage-1", "storage-2")
        ]
        health = Health()
        async with (
            serve_http(health_application(health, metrics), f"unix:{path}/storage-1.http"),
            serve_http(make_application(services), f"unix:{path}/cluster.http"),
        ):
            for name in ("storage-1", "cluster"):
                await answering(f"{path}/{name}.http")
            yield f"{path}/cluster.http", services, health


async def answering(path: str) -> None:
    while True:
        try:
            await unix_http.get(path, "/healthz")
        except OSError:
            await asyncio.sleep(0)
        else:
            return


async def test_ready_means_that_every_service_says_so(
    cluster: tuple[str, list[SupervisedService], Health],
) -> None:
    endpoint, services, health = cluster
    assert await unix_http.get(endpoint, "/readyz") == (
        503,
        b"not ready: storage-1: starting\nnot ready: storage-2: starting\n",
    )
    for service in services:
        service._on_ready(True)
    health.add_condition("metadata", lambda: False)
    status, body = await unix_http.get(endpoint, "/readyz")
    assert status == 503
    assert body.startswith(b"not ready: storage-1: metadata\nnot ready: storage-2: ")


async def test_metrics_survive_a_service_that_does_not_answer(
    cluster: tuple[str, list[SupervisedService], Health],
) -> None:
    endpoint, services, _ = cluster
    services[0]._on_ready(True)
    status, body = await unix_http.get(endpoint, "/metrics")
    assert status == 200
    assert b'up{instance="storage-1",service="storage"} 1.0' in body
    assert b'barnabas_service_ready{instance="storage-1",service="storage"} 1.0' in body
    assert b'barnabas_service_ready{instance="storage-2",service="storage"} 0.0' in body


async def test_what_a_process_hosts_has_a_state_of_its_own(tmp_path: Path) -> None:
    """Alerts ask for coordinators, whichever process they are in."""
    aliases = ("storage-1", "gateway-1", "coordinator-1")
    spec = ServiceSpec("broker-1", "broker", (), str(tmp_path / "none.http"), aliases=aliases)
    services = [SupervisedService(spec, Surroundings(tmp_path, ManualClock(), print))]
    with tempfile.TemporaryDirectory(prefix="barnabas-", dir="/tmp") as path:
        async with serve_http(make_application(services), f"unix:{path}/up.http"):
            await answering(f"{path}/up.http")
            _, body = await unix_http.get(f"{path}/up.http", "/metrics")
    for name in ("broker-1", *aliases):
        kind = name.rpartition("-")[0]
        for metric in ("ready", "restarts"):
            assert f'barnabas_service_{metric}{{instance="{name}",service="{kind}"}} 0.0' in body.decode()


async def test_services_are_listed_with_their_processes(
    cluster: tuple[str, list[SupervisedService], Health],
) -> None:
    status, body = await unix_http.get(cluster[0], "/services")
    assert status == 200
    assert json.loads(body)[0] == {
        "name": "storage-1",
        "aliases": [],
        "service": "storage",
        "pid": None,
        "ready": False,
        "restarts": 0,
    }
