"""Quotas and throttled replication."""

from __future__ import annotations

from typing import Final

from barnabas.metadata.settings.row import (
    CLASS,
    CLUSTER,
    FIXED,
    INT,
    LONG,
    LONG_MAX_TEXT,
    LOW,
    MEDIUM,
    NOT_NEGATIVE,
    POSITIVE,
    Row,
)

SETTINGS: Final[tuple[Row, ...]] = (
    ("quota.window.num", INT, "11", POSITIVE, LOW, FIXED,
     "Samples that client quotas are measured over."),
    ("quota.window.size.seconds", INT, "1", POSITIVE, LOW, FIXED,
     "Seconds of one such sample."),
    ("controller.quota.window.num", INT, "11", POSITIVE, LOW, FIXED,
     "Samples that the quota of controller mutations is measured over."),
    ("controller.quota.window.size.seconds", INT, "1", POSITIVE, LOW, FIXED,
     "Seconds of one such sample."),
    ("replication.quota.window.num", INT, "11", POSITIVE, LOW, FIXED,
     "Samples that throttled replication is measured over."),
    ("replication.quota.window.size.seconds", INT, "1", POSITIVE, LOW, FIXED,
     "Seconds of one such sample."),
    ("alter.log.dirs.replication.quota.window.num", INT, "11", POSITIVE, LOW, FIXED,
     "Samples that throttled moves between log directories are measured over."),
    ("alter.log.dirs.replication.quota.window.size.seconds", INT, "1", POSITIVE, LOW, FIXED,
     "Seconds of one such sample."),
    ("client.quota.callback.class", CLASS, None, None, LOW, FIXED,
     "A class that decides which quota a client falls under."),
    ("leader.replication.throttled.rate", LONG, LONG_MAX_TEXT, NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Bytes a second that a leader sends for throttled replicas (KIP-73)."),
    ("follower.replication.throttled.rate", LONG, LONG_MAX_TEXT, NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Bytes a second that a follower fetches for throttled replicas (KIP-73)."),
    ("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX_TEXT, NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Bytes a second of moves between log directories (KIP-113)."),
)  # fmt: skip
