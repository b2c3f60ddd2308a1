"""Streams groups (KIP-1071)."""

from __future__ import annotations

from typing import Final

from barnabas.metadata.settings.row import (
    CLUSTER,
    FIXED,
    INT,
    INT_MAX_TEXT,
    MEDIUM,
    NOT_NEGATIVE,
    POSITIVE,
    Row,
)

SETTINGS: Final[tuple[Row, ...]] = (
    ("group.streams.session.timeout.ms", INT, "45000", POSITIVE, MEDIUM, FIXED,
     "Session timeout of members of streams groups (KIP-1071)."),
    ("group.streams.min.session.timeout.ms", INT, "45000", POSITIVE, MEDIUM, FIXED,
     "The least session timeout that one streams group can be given."),
    ("group.streams.max.session.timeout.ms", INT, "60000", POSITIVE, MEDIUM, FIXED,
     "The greatest session timeout that one streams group can be given."),
    ("group.streams.heartbeat.interval.ms", INT, "5000", POSITIVE, MEDIUM, FIXED,
     "Milliseconds between two heartbeats of a member of a streams group."),
    ("group.streams.min.heartbeat.interval.ms", INT, "5000", POSITIVE, MEDIUM, FIXED,
     "The least heartbeat interval that one streams group can be given."),
    ("group.streams.max.heartbeat.interval.ms", INT, "15000", POSITIVE, MEDIUM, FIXED,
     "The greatest heartbeat interval that one streams group can be given."),
    ("group.streams.assignment.interval.ms", INT, "1000", NOT_NEGATIVE, MEDIUM, CLUSTER,
     "Milliseconds between two computations of a streams group's assignment."),
    ("group.streams.min.assignment.interval.ms", INT, "0", NOT_NEGATIVE, MEDIUM, FIXED,
     "The least assignment interval that one streams group can be given."),
    ("group.streams.max.assignment.interval.ms", INT, "15000", NOT_NEGATIVE, MEDIUM, FIXED,
     "The greatest assignment interval that one streams group can be given."),
    ("group.streams.initial.rebalance.delay.ms", INT, "3000", NOT_NEGATIVE, MEDIUM, FIXED,
     "Milliseconds that a new streams group waits for more members."),
    ("group.streams.num.standby.replicas", INT, "0", NOT_NEGATIVE, MEDIUM, FIXED,
     "Standby replicas of each task of a streams group."),
    ("group.streams.max.standby.replicas", INT, "2", NOT_NEGATIVE, MEDIUM, FIXED,
     "The most standby replicas that one streams group can be given."),
    ("group.streams.max.size", INT, INT_MAX_TEXT, POSITIVE, MEDIUM, FIXED,
     "Members that one streams group may have."),
)  # fmt: skip
