"""Client telemetry as a running part of the gateway: made from the environment, measured, and stopped with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec

from barnabas.gateway.telemetry.client_telemetry import ClientTelemetry
from barnabas.gateway.telemetry.export import (
    ExportSettings,
    OtlpSender,
    TelemetryForwarder,
    export_settings,
    send_to_console,
)
from barnabas.gateway.telemetry.metrics import TelemetryMetrics
from barnabas.kernel.environment import Environment
from barnabas.kernel.logs import get_logger
from barnabas.kernel.service import StartError

log = get_logger("gateway.telemetry")


@asynccontextmanager
async def client_telemetry(
    telemetry_max_bytes: int, environment: Environment, environ: Mapping[str, str] | None = None
) -> AsyncIterator[ClientTelemetry]:
    """Client telemetry while the gateway runs. Raises StartError for variables that make no sense."""
    settings = export_settings(os.environ if environ is None else environ)
    counts = TelemetryMetrics()
    environment.registry.register(counts)
    if settings is None:
        yield ClientTelemetry(environment, telemetry_max_bytes, counts)
        return
    async with _forwarder(settings, counts) as forwarder:
        yield ClientTelemetry(environment, telemetry_max_bytes, counts, forwarder)


@asynccontextmanager
async def _forwarder(settings: ExportSettings, counts: TelemetryMetrics) -> AsyncIterator[TelemetryForwarder]:
    if find_spec("opentelemetry.proto") is None:
        raise StartError("clients' metrics cannot be exported: pip install 'barnabas[tracing]'")
    sender = OtlpSender(settings) if settings.endpoint else None
    forwarder = TelemetryForwarder(sender.send if sender else send_to_console, counts.dropped)
    running = asyncio.create_task(forwarder.run(), name="client telemetry")
    log.info("clients' metrics are exported", endpoint=settings.endpoint or "console")
    try:
        yield forwarder
    finally:
        running.cancel()
        if sender is not None:
            await sender.close()
