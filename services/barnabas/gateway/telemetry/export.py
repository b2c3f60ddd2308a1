"""The way out for clients' metrics: OTLP over gRPC to a collector, or JSON on the console.

Configured as OpenTelemetry's own exporters are: OTEL_METRICS_EXPORTER (`otlp`, `console` or `none`),
OTEL_EXPORTER_OTLP_METRICS_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT; of PROTOCOL, HEADERS, TIMEOUT, INSECURE,
COMPRESSION and CERTIFICATE too the variable for metrics goes before the one for all signals. Without an exporter or
an endpoint, metrics are not taken from clients.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.kernel.service import StartError

EXPORT_METHOD: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
DEFAULT_ENDPOINT: Final = "http://localhost:4317"

_TRY_AGAIN: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
)
"""What OTLP calls retryable; after anything else the collector would refuse the same metrics again."""

log = get_logger("gateway.telemetry")

Send = Callable[[bytes], Awaitable[None]]
"""Deliver one serialized ExportMetricsServiceRequest. Raises grpc.aio.AioRpcError."""


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Where metrics go. `endpoint` is empty for the console."""

    endpoint: str
    secure: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    timeout_seconds: float = 10.0
    gzip: bool = False
    certificate_file: str = ""


def export_settings(environ: Mapping[str, str]) -> ExportSettings | None:
    """What the environment asks for; None when clients' metrics are not to be exported. Raises StartError."""

    def variable(name: str) -> str:
        return environ.get(f"OTEL_EXPORTER_OTLP_METRICS_{name}") or environ.get(
            f"OTEL_EXPORTER_OTLP_{name}", ""
        )

    exporter = environ.get("OTEL_METRICS_EXPORTER", "") or ("otlp" if variable("ENDPOINT") else "none")
    if exporter == "none":
        return None
    if exporter == "console":
        return ExportSettings("")
    if exporter != "otlp":
        raise StartError(f"OTEL_METRICS_EXPORTER={exporter}: use otlp, console or none")
    protocol = variable("PROTOCOL")
    if protocol not in ("", "grpc"):
        log.warning("clients' metrics are not exported: only grpc is spoken", protocol=protocol)
        return None
    scheme, separator, rest = (variable("ENDPOINT") or DEFAULT_ENDPOINT).rpartition("://")
    insecure = scheme == "http" if separator else variable("INSECURE").lower() == "true"
    try:
        timeout_seconds = float(variable("TIMEOUT") or 10)
    except ValueError:
        raise StartError(f"OTEL_EXPORTER_OTLP_TIMEOUT={variable('TIMEOUT')}: expected seconds") from None
    return ExportSettings(
        rest.split("/", 1)[0],
        secure=not insecure,
        headers=_headers(variable("HEADERS")),
        timeout_seconds=timeout_seconds,
        gzip=variable("COMPRESSION") == "gzip",
        certificate_file=variable("CERTIFICATE"),
    )


def _headers(text: str) -> tuple[tuple[str, str], ...]:
    """`api-key=secret,tenant=7`, percent-encoded, as gRPC metadata."""
    from opentelemetry.util.re import parse_env_headers

    return tuple(parse_env_headers(text, liberal=True).items())


def with_resource_attributes(data: bytes, attributes: Mapping[str, str]) -> bytes:
    """A serialized MetricsData as an export request, each resource in it marked with `attributes`.

    What the client itself says under one of those names is replaced. The two messages have the same fields. Raises
    KafkaError INVALID_RECORD for data that is no MetricsData, or has more than TELEMETRY_RESOURCES_MAX resources.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    try:
        request = ExportMetricsServiceRequest.FromString(data)
    except DecodeError as error:
        raise KafkaError(ErrorCode.invalid_record, "The metrics are no OTLP MetricsData.") from error
    if len(request.resource_metrics) > limits.TELEMETRY_RESOURCES_MAX:
        raise KafkaError(ErrorCode.invalid_record, "The metrics are of too many resources.")
    for resource_metrics in request.resource_metrics:
        said = resource_metrics.resource.attributes
        kept = [attribute for attribute in said if attribute.key not in attributes]
        del said[:]
        said.extend(kept)
        for name, value in attributes.items():
            said.add(key=name).value.string_value = value
    return request.SerializeToString()


class TelemetryForwarder:
    """Owner of the metrics on their way out: a queue with a limit in bytes, emptied by `run`.

    Clients never wait for the collector: what it does not take in time is dropped, and counted in `dropped`.
    """

    def __init__(self, send: Send, dropped: Counter[str]) -> None:
        self._send = send
        self._dropped = dropped
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._is_failing = False

    def offer(self, message: bytes) -> bool:
        """Queue `message`; False when the queue has no room."""
        if self._queue and self._queued_bytes + len(message) > limits.TELEMETRY_QUEUED_BYTES_MAX:
            return False
        self._queue.append(message)
        self._queued_bytes += len(message)
        self._wake.set()
        return True

    async def run(self) -> None:
        """Send what is queued, in order, until cancelled."""
        while True:
            await self._wake.wait()
            while self._queue:
                message = self._queue.popleft()
                self._queued_bytes -= len(message)
                await self._deliver(message)
            self._wake.clear()

    async def _deliver(self, message: bytes) -> None:
        pause = limits.TELEMETRY_RETRY_SECONDS_MIN
        for attempt in range(1, limits.TELEMETRY_ATTEMPTS_MAX + 1):
            try:
                await self._send(message)
            except grpc.aio.AioRpcError as error:
                if error.code() in _TRY_AGAIN and attempt < limits.TELEMETRY_ATTEMPTS_MAX:
                    await asyncio.sleep(pause)
                    pause *= 2
                    continue
                self._dropped["unreachable" if error.code() in _TRY_AGAIN else "refused"] += 1
                if not self._is_failing:
                    log.warning(
                        "the collector does not take clients' metrics",
                        status=error.code().name,
                        reason=error.details(),
                    )
                self._is_failing = True
                return
            if self._is_failing:
                log.info("the collector takes clients' metrics again")
            self._is_failing = False
            return


class OtlpSender:
    """Owner of the channel to the collector."""

    def __init__(self, settings: ExportSettings) -> None:
        compression = grpc.Compression.Gzip if settings.gzip else grpc.Compression.NoCompression
        if settings.secure:
            certificate = Path(settings.certificate_file).read_bytes() if settings.certificate_file else None
            credentials = grpc.ssl_channel_credentials(certificate)
            self._channel = grpc.aio.secure_channel(settings.endpoint, credentials, compression=compression)
        else:
            self._channel = grpc.aio.insecure_channel(settings.endpoint, compression=compression)
        self._export = self._channel.unary_unary(
            EXPORT_METHOD, request_serializer=bytes, response_deserializer=bytes
        )
        self._settings = settings

    async def send(self, message: bytes) -> None:
        """Deliver one message. Raises grpc.aio.AioRpcError."""
        await self._export(
            message, timeout=self._settings.timeout_seconds, metadata=self._settings.headers or None
        )

    async def close(self) -> None:
        await self._channel.close(grace=None)


async def send_to_console(message: bytes) -> None:
    """Write the metrics to stdout, one line of JSON a push."""
    from google.protobuf.json_format import MessageToJson
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    request = ExportMetricsServiceRequest.FromString(message)
    sys.stdout.write(MessageToJson(request, indent=None) + "\n")
    sys.stdout.flush()
