from __future__ import annotations

import sys

import pytest

from barnabas.kernel.config import ConfigError
from barnabas.kernel.tracing import configure_tracing

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}


@pytest.mark.parametrize(
    "missing", ["opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.grpc.trace_exporter"]
)
def test_traces_that_cannot_be_exported_are_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=r"pip install 'barnabas\[tracing\]'"):
        configure_tracing("gateway", ENDPOINT)
    for off in ({}, {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}):
        assert configure_tracing("gateway", off) is None
