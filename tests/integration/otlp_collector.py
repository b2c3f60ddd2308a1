"""A collector that keeps what it is sent: OTLP's metrics service over gRPC, as OpenTelemetry defines it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any, Final, NamedTuple, Self

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)

WAIT_SECONDS: Final = 30.0


class Received(NamedTuple):
    """The metrics of one resource: its attributes, and the metrics' names."""

    attributes: dict[str, str]
    metrics: tuple[str, ...]


class OtlpCollector(MetricsServiceServicer):
    """Owns a server at `endpoint` and all that it received."""

    def __init__(self) -> None:
        self._received: list[Received] = []
        self._arrived = threading.Condition()
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        add_MetricsServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def Export(self, request: Any, context: Any) -> ExportMetricsServiceResponse:
        with self._arrived:
            for resource_metrics in request.resource_metrics:
                attributes = resource_metrics.resource.attributes
                self._received.append(
                    Received(
                        {attribute.key: attribute.value.string_value for attribute in attributes},
                        tuple(
                            metric.name
                            for scope in resource_metrics.scope_metrics
                            for metric in scope.metrics
                        ),
                    )
                )
            self._arrived.notify_all()
        return ExportMetricsServiceResponse()

    def wait_for(self, holds: Callable[[Received], bool]) -> list[Received]:
        """All that was received so far for which `holds`, once there is something."""
        deadline = time.monotonic() + WAIT_SECONDS
        with self._arrived:
            while not (found := [each for each in self._received if holds(each)]):
                left = deadline - time.monotonic()
                assert left > 0, f"nothing of this kind came; what did: {self._received[:5]}"
                self._arrived.wait(left)
            return found
