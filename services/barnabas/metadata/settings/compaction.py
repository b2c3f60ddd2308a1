"""Compaction: what topics fall back to, and how much work it may do."""

from __future__ import annotations

from typing import Final

from barnabas.metadata.settings.row import (
    BOOLEAN,
    CLUSTER,
    DOUBLE,
    FIXED,
    INT,
    LIST,
    LONG,
    LONG_MAX_TEXT,
    MEDIUM,
    NOT_NEGATIVE,
    POSITIVE,
    Row,
)
from barnabas.metadata.validators import Between, EachOf

SETTINGS: Final[tuple[Row, ...]] = (
    ("log.cleaner.delete.retention.ms", LONG, "86400000", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "The value of delete.retention.ms for topics that do not set it."),
    ("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX_TEXT, POSITIVE, MEDIUM, CLUSTER,
     "The value of max.compaction.lag.ms for topics that do not set it."),
    ("log.cleaner.min.cleanable.ratio", DOUBLE, "0.5", Between(0, 1), MEDIUM, CLUSTER,
     "The value of min.cleanable.dirty.ratio for topics that do not set it."),
    ("log.cleaner.min.compaction.lag.ms", LONG, "0", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "The value of min.compaction.lag.ms for topics that do not set it."),
    ("log.cleanup.policy", LIST, "delete", EachOf(("compact", "delete")), MEDIUM, CLUSTER,
     "The value of cleanup.policy for topics that do not set it."),
    ("log.cleaner.enable", BOOLEAN, "true", None, MEDIUM, FIXED,
     "Whether compacted topics are compacted at all."),
    ("log.cleaner.threads", INT, "1", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Threads that compact logs."),
    ("log.cleaner.backoff.ms", LONG, "15000", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Milliseconds of rest when no log needs compaction."),
    ("log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", None, MEDIUM, CLUSTER,
     "Bytes a second that compaction may read and write together."),
    ("log.cleaner.io.buffer.size", INT, "524288", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Bytes of buffers for the reads and writes of compaction."),
    ("log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", None, MEDIUM, CLUSTER,
     "How full the map of keys may get, from 0 to 1."),
    ("log.cleaner.dedupe.buffer.size", LONG, "134217728", None, MEDIUM, CLUSTER,
     "Bytes of memory for the map of keys."),
)  # fmt: skip
