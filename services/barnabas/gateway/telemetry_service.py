"""Client telemetry as a running part of the gateway: made from the environment, measured, and stopped with it."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec

from prometheus_client import REGISTRY

from barnabas.gateway.telemetry import ClientTelemetry
from barnabas.gateway.telemetry_export import (
    ExportSettings,
    OtlpSender,
    TelemetryForwarder,
    export_settings,
    send_to_console,
)
from barnabas.gateway.telemetry_metrics import TelemetryCounts
from barnabas.kernel.clock import Clock
from barnabas.kernel.logs import get_logger
from barnabas.kernel.service import StartError

log = get_logger("gateway.telemetry")


@asynccontextmanager
async def client_telemetry(
    telemetry_max_bytes: int, clock: Clock, environ: Mapping[str, str] | None = None
) -> AsyncIterator[ClientTelemetry]:
    """Client telemetry while the gateway runs. Raises StartError for variables that make no sense."""
    settings = export_settings(os.environ if environ is None else environ)
    counts = TelemetryCounts()
    REGISTRY.register(counts)
    try:
        if settings is None:
            yield ClientTelemetry(clock, telemetry_max_bytes, _new_instance_id, counts)
            return
        async with _forwarder(settings, counts) as forwarder:
            yield ClientTelemetry(clock, telemetry_max_bytes, _new_instance_id, counts, forwarder)
    finally:
        REGISTRY.unregister(counts)


@asynccontextmanager
async def _forwarder(settings: ExportSettings, counts: TelemetryCounts) -> AsyncIterator[TelemetryForwarder]:
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


def _new_instance_id() -> bytes:
    return uuid.uuid4().bytes
