"""OpenTelemetry traces, off unless configured.

Tracing is on when OTEL_TRACES_EXPORTER is `otlp` or `console`, or when OTEL_EXPORTER_OTLP_ENDPOINT is set; the
other OTEL_* variables (sampler, headers, resource attributes) mean what the OpenTelemetry SDK says. Spans cross
gRPC as a W3C `traceparent` in the messages themselves, because one coalesced frame carries many requests.

While tracing is off, `start_span` costs one comparison and the OpenTelemetry SDK is never imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

_tracer: Tracer | None = None


class Span:
    """A span, or nothing when tracing is off. `traceparent` is what to send along; empty when off."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: object | None, traceparent: str) -> None:
        self._span = span
        self.traceparent = traceparent

    def set_attribute(self, name: str, value: str | int) -> None:
        if self._span is not None:
            self._span.set_attribute(name, value)  # type: ignore[attr-defined]

    def end(self) -> None:
        if self._span is not None:
            self._span.end()  # type: ignore[attr-defined]


_OFF = Span(None, "")


def configure_tracing(service: str, environ: Mapping[str, str] | None = None) -> TracerProvider | None:
    """Start exporting this process's spans if the environment asks for it; returns what to shut down at the end."""
    environ = os.environ if environ is None else environ
    exporter_name = environ.get("OTEL_TRACES_EXPORTER", "")
    if not exporter_name and environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        exporter_name = "otlp"
    if exporter_name in ("", "none"):
        return None

    global _tracer
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.namespace": "barnabas", "service.name": f"barnabas-{service}"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(_exporter(exporter_name)))
    _tracer = provider.get_tracer("barnabas")
    return provider


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def start_span(
    name: str, *, traceparent: str = "", attributes: Mapping[str, str | int] | None = None
) -> Span:
    """Start a span under the remote parent `traceparent` (or as a root); the caller ends it."""
    if _tracer is None:
        return _OFF
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    propagator = TraceContextTextMapPropagator()
    parent: Context | None = propagator.extract({"traceparent": traceparent}) if traceparent else None
    span = _tracer.start_span(name, context=parent, attributes=dict(attributes or {}))
    context = span.get_span_context()
    flags = int(context.trace_flags)
    return Span(span, f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}")
