"""OpenTelemetry traces, off unless configured.

Tracing is on when OTEL_TRACES_EXPORTER is `otlp` or `console`, or when OTEL_EXPORTER_OTLP_ENDPOINT is set; the
other OTEL_* variables (sampler, headers, resource attributes) mean what the OpenTelemetry SDK says. Spans cross
gRPC as a W3C `traceparent`: in the messages of coalesced streams, because one of their frames carries many requests,
and in the metadata of other calls (`barnabas.rpc.traced_calls`).

While tracing is off, `start_span` and `current_traceparent` cost one comparison and the OpenTelemetry SDK is never
imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Final, Self

from barnabas.kernel.config import ConfigError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

_tracer: Tracer | None = None
_current: ContextVar[str] = ContextVar("traceparent", default="")

_SERVICES: Final = {"GroupCoordinator": "coordinator", "TransactionCoordinator": "coordinator"}
"""What the spans of calls to a service begin with, where it is not the service's name in lower case."""

_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


class Span:
    """A span, or nothing when tracing is off. `traceparent` is what to send along; empty when off.

    As a context manager it is the current span of the task (see `current_traceparent`) and ends with the block.
    """

    __slots__ = ("_span", "_token", "traceparent")

    def __init__(self, span: object | None, traceparent: str) -> None:
        self._span = span
        self._token: Token[str] | None = None
        self.traceparent = traceparent

    def set_attribute(self, name: str, value: str | int) -> None:
        if self._span is not None:
            self._span.set_attribute(name, value)  # type: ignore[attr-defined]

    def end(self) -> None:
        if self._span is not None:
            self._span.end()  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        if self._span is not None:
            self._token = _current.set(self.traceparent)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _current.reset(self._token)
            self._token = None
        self.end()


_OFF = Span(None, "")


def configure_tracing(service: str, environ: Mapping[str, str] | None = None) -> TracerProvider | None:
    """Start exporting this process's spans if the environment asks for it; returns what to shut down at the end.

    Raises ConfigError.
    """
    environ = os.environ if environ is None else environ
    exporter_name = environ.get("OTEL_TRACES_EXPORTER", "")
    if not exporter_name and environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        exporter_name = "otlp"
    if exporter_name in ("", "none"):
        return None

    global _tracer
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = _exporter(exporter_name)
    except ImportError as error:
        raise ConfigError(
            "traces cannot be exported: pip install 'barnabas[tracing]', or set OTEL_TRACES_EXPORTER=none"
        ) from error

    resource = Resource.create({"service.namespace": "barnabas", "service.name": f"barnabas-{service}"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = provider.get_tracer("barnabas")
    return provider


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def is_tracing() -> bool:
    """Whether this process exports spans."""
    return _tracer is not None


def current_traceparent() -> str:
    """The `traceparent` of the span that the running task is in; empty when there is none."""
    return "" if _tracer is None else _current.get()


def call_span_name(service: str, call: str) -> str:
    """The name of the span of a call between services, `coordinator.join_group` for JoinGroup of GroupCoordinator."""
    return f"{_SERVICES.get(service, service.lower())}.{_WORD.sub('_', call).lower()}"


@contextmanager
def in_trace(traceparent: str) -> Iterator[None]:
    """Let what is called in the block belong to a span of another task."""
    token = _current.set(traceparent)
    try:
        yield
    finally:
        _current.reset(token)


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
