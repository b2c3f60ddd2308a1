"""What is measured right before a scrape: whatever becomes of it, the scrape is answered."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.types import Message

import barnabas
from barnabas.kernel import http as http_module
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.health import Health
from barnabas.kernel.http import health_application
from barnabas.kernel.metrics import ProcessMetrics
from barnabas.kernel.metrics_page import render


async def get(application: Starlette, path: str) -> str:
    """The body that the ASGI application answers with."""
    body = b""

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        nonlocal body
        body += message.get("body", b"")

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    await application(scope, receive, send)
    return body.decode()


async def test_measurements_are_taken_before_the_page_is_made() -> None:
    taken: list[str] = []

    async def measure() -> None:
        await asyncio.sleep(0)
        taken.append("measured")

    async def show() -> bytes:
        return taken[-1].encode()

    application = health_application(Health(), show, measurements=[measure])
    assert await get(application, "/metrics") == "measured"
    assert await get(application, "/healthz") == "ok\n"
    assert taken == ["measured"]


async def test_a_measurement_that_fails_or_hangs_does_not_keep_the_page_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_module, "MEASUREMENT_SECONDS_MAX", 0.01)

    async def fail() -> None:
        raise ValueError("nothing to measure")

    async def hang() -> None:
        await asyncio.Event().wait()

    async def show() -> bytes:
        return b"the page"

    application = health_application(Health(), show, measurements=[fail, hang])
    assert await get(application, "/metrics") == "the page"


async def page(registries: list[CollectorRegistry]) -> list[Metric]:
    return list(text_string_to_metric_families((await render(registries)).decode()))


async def test_two_services_of_one_process_share_a_page_and_no_count() -> None:
    """As gateway and storage node in one process: both have streams, each its own; what a process has is there once."""
    gateway, storage = seeded_environment(), seeded_environment()
    for environment, end, opened in ((gateway, "client", 1), (storage, "server", 2)):
        counter = Counter("streams_opened", "Streams", ["end"], registry=environment.registry)
        counter.labels(end).inc(opened)
    families = await page([ProcessMetrics().registry, gateway.registry, storage.registry])
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert {"python_info", "process_cpu_seconds", "python_gc_collections", "streams_opened"} <= set(names)
    (family,) = (each for each in families if each.name == "streams_opened")
    assert {(sample.labels["end"], sample.value) for sample in family.samples} == {
        ("client", 1),
        ("server", 2),
    }


async def test_what_two_services_count_alike_is_one_series() -> None:
    """Prometheus takes one of two values for a series, and says that there were two."""
    registries = [CollectorRegistry(), CollectorRegistry()]
    for registry, refused in zip(registries, (1, 2), strict=True):
        Counter("refusals", "Refused", registry=registry).inc(refused)
    (family,) = await page(registries)
    assert [(sample.labels, sample.value) for sample in family.samples] == [({}, 3)]


def test_every_process_says_what_it_is() -> None:
    families = ProcessMetrics().registry.collect()
    (info,) = (sample for each in families if each.name == "barnabas_build_info" for sample in each.samples)
    assert (info.labels["version"], info.value) == (barnabas.__version__, 1)


async def test_no_series_tells_the_birth_of_another() -> None:
    names = [family.name for family in await page([ProcessMetrics().registry])]
    assert "barnabas_event_loop_lag_seconds" in names
    assert [name for name in names if name.endswith("_created")] == []
