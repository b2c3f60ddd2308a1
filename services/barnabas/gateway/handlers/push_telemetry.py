"""PushTelemetry (key 72): a client's own metrics, handed on to OpenTelemetry (KIP-714).

v0 only. The metrics are OTLP's MetricsData, compressed in one of the ways that the subscription names. The answer does
not wait for the collector. Shown in ApiVersions when metrics are exported; answered in any case, as by Kafka.
"""

from __future__ import annotations

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode


async def handle(request: Request) -> Answer:
    await request.parts.telemetry.push(request)
    return {"error_code": ErrorCode.none}


HANDLER = Handler(
    api_key=72,
    versions=(0, 0),
    handle=handle,
    advertised_when=lambda parts: parts.telemetry.has_receiver,
    lacks="Shown to clients only when OpenTelemetry metrics are exported (`OTEL_EXPORTER_OTLP_ENDPOINT`).",
)
