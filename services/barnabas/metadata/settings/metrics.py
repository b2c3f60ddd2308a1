"""Metrics, and those of clients (KIP-714)."""

from __future__ import annotations

from typing import Final

from barnabas.metadata.settings.row import (
    CLUSTER,
    FIXED,
    INT,
    LIST,
    LONG,
    LOW,
    POSITIVE,
    STRING,
    Row,
)

SETTINGS: Final[tuple[Row, ...]] = (
    ("metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter", None, LOW, CLUSTER,
     "Classes that are told of metrics."),
    ("metrics.num.samples", INT, "2", POSITIVE, LOW, FIXED,
     "Samples that metrics are worked out over."),
    ("metrics.recording.level", STRING, "INFO", None, LOW, FIXED,
     "How fine the metrics are: INFO, DEBUG or TRACE."),
    ("metrics.sample.window.ms", LONG, "30000", POSITIVE, LOW, FIXED,
     "Milliseconds of one such sample."),
    ("kafka.metrics.reporters", LIST, "", None, LOW, FIXED,
     "Classes that are told of the older kind of metrics."),
    ("kafka.metrics.polling.interval.secs", INT, "10", POSITIVE, LOW, FIXED,
     "Seconds between two looks of these at the metrics."),
    ("telemetry.max.bytes", INT, "1048576", POSITIVE, LOW, FIXED,
     "Bytes of metrics that a client may push at a time (KIP-714)."),
)  # fmt: skip
