"""A real OpenTelemetry Collector with the project's own configuration, and the spans in its output.

It is built from Go modules, once (deploy/engine/collector.sh).
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import yaml
from running_cluster import free_ports

ROOT: Final = Path(__file__).resolve().parents[2]
CONFIGURATION: Final = ROOT / "deploy" / "observability" / "otel-collector.yaml"
BUILD: Final = ROOT / "deploy" / "engine" / "collector.sh"
BUILD_SECONDS_MAX: Final = 600
WAIT_SECONDS: Final = 30.0


class Span(NamedTuple):
    """What the collector was sent of one span."""

    service: str
    name: str
    trace: str
    identity: str
    parent: str


def collector_program() -> Path:
    """The collector, built unless it is there already."""
    done = subprocess.run([BUILD], capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX)
    assert done.returncode == 0, done.stderr[-3000:]
    return Path(done.stdout.strip())


def parse_spans(output: str) -> list[Span]:
    """The spans that the collector's debug exporter printed."""
    found, service = [], ""
    # The first resource of a batch stands behind the log line's own time and level.
    for block in re.split(r"(?m)(?=ResourceSpans #|^Span #)", output):
        if block.startswith("ResourceSpans"):
            (service,) = re.findall(r"-> service\.name: Str\((.*)\)", block)
        elif block.startswith("Span"):
            fields = dict(re.findall(r"(?m)^ {4}(Trace ID|Parent ID|ID|Name) *: ?(.*)$", block))
            found.append(Span(service, fields["Name"], fields["Trace ID"], fields["ID"], fields["Parent ID"]))
    return found


class OtelCollector:
    """Owns a running collector at `endpoint` and its output."""

    def __init__(self, folder: Path) -> None:
        port = free_ports(1)
        self.endpoint = f"http://127.0.0.1:{port}"
        document = yaml.safe_load(CONFIGURATION.read_text())
        document["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] = f"127.0.0.1:{port}"
        file = folder / "otel-collector.yaml"
        file.write_text(yaml.safe_dump(document))
        self._log = folder / "otel-collector.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(collector_program()), f"--config={file}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait_for("Everything is ready")

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def spans(self) -> list[Span]:
        """All that have arrived so far."""
        return parse_spans(self.output())

    def wait_for_span(self, name: str, *, parent: Span | None = None) -> Span:
        """The first span of that name (under `parent`), once it has arrived."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            spans = self.spans()
            for span in spans:
                if span.name == name and (
                    parent is None or (span.trace, span.parent) == (parent.trace, parent.identity)
                ):
                    return span
            assert time.monotonic() < deadline, f"no {name} under {parent}; there are {spans}"
            time.sleep(0.2)

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_for(self, text: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in self.output():
            assert self._process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)


@contextlib.contextmanager
def otel_collector(folder: Path) -> Iterator[OtelCollector]:
    """A collector that runs while the context is open."""
    collector = OtelCollector(folder)
    try:
        yield collector
    finally:
        collector.close()
