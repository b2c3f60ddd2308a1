"""A collector that keeps the spans it is sent: OTLP's trace service over gRPC, as OpenTelemetry defines it."""

from __future__ import annotations

import threading
import time
from concurrent import futures
from typing import Any, Final, NamedTuple, Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

WAIT_SECONDS: Final = 30.0


class ReceivedSpan(NamedTuple):
    """What one span says."""

    service: str
    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes


class OtlpTraces(TraceServiceServicer):
    """Owns a server at `endpoint` and the spans that it received."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self._arrived = threading.Condition()
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def Export(self, request: Any, context: Any) -> ExportTraceServiceResponse:
        with self._arrived:
            for resource_spans in request.resource_spans:
                attributes = {
                    attribute.key: attribute.value.string_value
                    for attribute in resource_spans.resource.attributes
                }
                self.spans += [
                    ReceivedSpan(
                        attributes["service.name"],
                        span.name,
                        span.trace_id,
                        span.span_id,
                        span.parent_span_id,
                    )
                    for scope in resource_spans.scope_spans
                    for span in scope.spans
                ]
            self._arrived.notify_all()
        return ExportTraceServiceResponse()

    def wait_for_chain(self, *names: str) -> list[ReceivedSpan]:
        """Spans of these names, each the parent of the next, the first without one, all of one trace."""
        deadline = time.monotonic() + WAIT_SECONDS
        with self._arrived:
            while not (found := self._chain(names)):
                left = deadline - time.monotonic()
                seen = sorted({span.name for span in self.spans})
                assert left > 0, f"no trace {' > '.join(names)}; there are {seen}"
                self._arrived.wait(left)
            return found

    def _chain(self, names: tuple[str, ...]) -> list[ReceivedSpan]:
        chains = [[span] for span in self.spans if span.name == names[0] and not span.parent_id]
        for name in names[1:]:
            chains = [
                [*chain, span]
                for chain in chains
                for span in self.spans
                if span.name == name
                and span.parent_id == chain[-1].span_id
                and span.trace_id == chain[0].trace_id
            ]
        return chains[0] if chains else []
