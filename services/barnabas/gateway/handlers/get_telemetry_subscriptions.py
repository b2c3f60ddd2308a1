"""GetTelemetrySubscriptions (key 71): which metrics a client is to push, and how often (KIP-714).

v0 only. A client that comes without an instance id is given one. What it is to push are the client-metrics resources
that match it. Shown in ApiVersions when metrics are exported; answered in any case, as by Kafka.
"""

from __future__ import annotations

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.gateway.telemetry.client_telemetry import ACCEPTED_COMPRESSIONS
from barnabas.kernel.errors import ErrorCode


async def handle(request: Request) -> Answer:
    telemetry = request.parts.telemetry
    asked = request.body.client_instance_id
    client_instance_id, assignment = telemetry.subscribe(request, asked.bytes if asked else None)
    return {
        "error_code": ErrorCode.none,
        "client_instance_id": client_instance_id,
        "subscription_id": assignment.subscription_id,
        "accepted_compression_types": [int(compression) for compression in ACCEPTED_COMPRESSIONS],
        "push_interval": assignment.push_interval_ms,
        "telemetry_max_bytes": telemetry.telemetry_max_bytes,
        "delta_temporality": True,
        "requested_metrics": assignment.metrics,
    }


HANDLER = Handler(
    api_key=71,
    versions=(0, 0),
    handle=handle,
    advertised_when=lambda parts: parts.telemetry.has_receiver,
    lacks="Shown to clients only when OpenTelemetry metrics are exported (`OTEL_EXPORTER_OTLP_ENDPOINT`).",
)
