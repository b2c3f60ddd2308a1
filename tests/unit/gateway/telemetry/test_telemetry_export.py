"""The way out for clients' metrics: what the environment says, the queue, and collectors that do not take them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as otlp
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)

from barnabas.gateway import limits
from barnabas.gateway.telemetry.export import (
    ExportSettings,
    OtlpSender,
    TelemetryForwarder,
    export_settings,
    send_to_console,
    with_resource_attributes,
)
from barnabas.gateway.telemetry.service import client_telemetry
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.service import StartError


def failure(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "told to")


class Collector:
    """Takes messages, after failing as often as it is told to."""

    def __init__(self, *failures: grpc.StatusCode) -> None:
        self.failures = list(failures)
        self.messages: list[bytes] = []
        self.attempts = 0

    async def send(self, message: bytes) -> None:
        self.attempts += 1
        if self.failures:
            raise failure(self.failures.pop(0))
        self.messages.append(message)


@contextlib.contextmanager
def running(forwarder: TelemetryForwarder) -> Iterator[None]:
    task = asyncio.create_task(forwarder.run())
    try:
        yield
    finally:
        task.cancel()


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TELEMETRY_RETRY_SECONDS_MIN", 0.001)


def test_off_unless_asked_for() -> None:
    assert export_settings({}) is None
    assert (
        export_settings({"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1"})
        is None
    )
    assert export_settings({"OTEL_TRACES_EXPORTER": "otlp"}) is None
    http = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    assert export_settings(http) is None


def test_where_to() -> None:
    assert export_settings({"OTEL_METRICS_EXPORTER": "console"}) == ExportSettings("")
    assert export_settings({"OTEL_METRICS_EXPORTER": "otlp"}) == ExportSettings("localhost:4317")
    assert export_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c.example:4317/"}) == ExportSettings(
        "c.example:4317", secure=True
    )
    assert export_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "c:1"}) == ExportSettings("c:1", secure=True)
    assert export_settings(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "c:1", "OTEL_EXPORTER_OTLP_INSECURE": "true"}
    ) == ExportSettings("c:1")
    both = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://traces:1",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://metrics:2",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=s%20cret,tenant=7",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
        "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION": "gzip",
    }
    assert export_settings(both) == ExportSettings(
        "metrics:2", headers=(("api-key", "s cret"), ("tenant", "7")), timeout_seconds=3.0, gzip=True
    )


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_METRICS_EXPORTER": "prometheus"},
        {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TIMEOUT": "x"},
    ],
)
def test_nonsense_is_said_at_the_start(environ: dict[str, str]) -> None:
    with pytest.raises(StartError, match="OTEL_"):
        export_settings(environ)


async def test_in_order_and_all_of_it() -> None:
    collector = Collector()
    forwarder = TelemetryForwarder(collector.send, Counter())
    with running(forwarder):
        assert all(forwarder.offer(bytes([number])) for number in range(50))
        await until(lambda: len(collector.messages) == 50)
    assert collector.messages == [bytes([number]) for number in range(50)]


async def test_a_collector_that_is_away_for_a_moment_loses_nothing() -> None:
    collector, dropped = (
        Collector(grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED),
        Counter[str](),
    )
    forwarder = TelemetryForwarder(collector.send, dropped)
    with running(forwarder):
        forwarder.offer(b"a")
        await until(lambda: collector.messages == [b"a"])
    assert not dropped


async def test_a_collector_that_stays_away_costs_what_it_did_not_take() -> None:
    away = [grpc.StatusCode.UNAVAILABLE] * limits.TELEMETRY_ATTEMPTS_MAX
    collector, dropped = Collector(*away), Counter[str]()
    forwarder = TelemetryForwarder(collector.send, dropped)
    with running(forwarder):
        forwarder.offer(b"a")
        forwarder.offer(b"b")
        await until(lambda: collector.messages == [b"b"])
    assert dropped == Counter(unreachable=1)


async def test_what_is_refused_is_not_sent_again() -> None:
    collector, dropped = Collector(grpc.StatusCode.INVALID_ARGUMENT), Counter[str]()
    forwarder = TelemetryForwarder(collector.send, dropped)
    with running(forwarder):
        forwarder.offer(b"a")
        await until(lambda: dropped)
    assert (dropped, collector.attempts) == (Counter(refused=1), 1)


async def test_the_queue_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TELEMETRY_QUEUED_BYTES_MAX", 10)
    collector = Collector()
    forwarder = TelemetryForwarder(collector.send, Counter())
    assert forwarder.offer(bytes(20)), "one message always fits, or a large one never would"
    assert not forwarder.offer(b"x")
    with running(forwarder):
        await until(lambda: collector.messages)
        assert forwarder.offer(b"x")


def test_no_metrics_no_message() -> None:
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        with_resource_attributes(b"\xff\xff", {})


def test_many_empty_resources_are_refused() -> None:
    bomb = b"\x0a\x00" * (limits.TELEMETRY_RESOURCES_MAX + 1)
    with pytest.raises(KafkaError, match="too many resources"):
        with_resource_attributes(bomb, {"client_id": "x"})
    with_resource_attributes(bomb[2:], {"client_id": "x"})


async def test_to_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    message = otlp.ExportMetricsServiceRequest()
    message.resource_metrics.add().scope_metrics.add().metrics.add(name="org.m")
    await send_to_console(message.SerializeToString())
    assert '"org.m"' in capsys.readouterr().out


class Service(MetricsServiceServicer):
    def __init__(self) -> None:
        self.requests: list[otlp.ExportMetricsServiceRequest] = []
        self.metadata: dict[str, Any] = {}

    async def Export(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.metadata = dict(context.invocation_metadata())
        return otlp.ExportMetricsServiceResponse()


async def test_over_the_wire_from_the_environment_on() -> None:
    server, service = grpc.aio.server(), Service()
    add_MetricsServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_HEADERS": "tenant=7",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    try:
        settings = export_settings(environ)
        assert settings is not None
        sender = OtlpSender(settings)
        message = otlp.ExportMetricsServiceRequest()
        message.resource_metrics.add().scope_metrics.add().metrics.add(name="org.m")
        await sender.send(message.SerializeToString())
        assert service.requests == [message]
        assert service.metadata["tenant"] == "7"
        await sender.close()
        async with client_telemetry(1000, seeded_environment(), environ) as telemetry:
            assert telemetry.has_receiver
        async with client_telemetry(1000, seeded_environment(), {}) as telemetry:
            assert not telemetry.has_receiver
    finally:
        await server.stop(None)
