"""Replication and elections."""

from __future__ import annotations

from typing import Final

from barnabas.metadata.settings.row import (
    BOOLEAN,
    CLUSTER,
    FIXED,
    HIGH,
    INT,
    LONG,
    MEDIUM,
    NOT_NEGATIVE,
    POSITIVE,
    STRING,
    Row,
)
from barnabas.metadata.validators import OneOf

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The one selector that Kafka has (KIP-392)."""

SETTINGS: Final[tuple[Row, ...]] = (
    ("min.insync.replicas", INT, "1", POSITIVE, HIGH, CLUSTER,
     "The min.insync.replicas of topics that do not set their own."),
    ("unclean.leader.election.enable", BOOLEAN, "false", None, HIGH, CLUSTER,
     "The unclean.leader.election.enable of topics that do not set their own."),
    ("replica.lag.time.max.ms", LONG, "30000", None, HIGH, FIXED,
     "Milliseconds after which a follower that has not caught up leaves the in-sync replicas."),
    ("replica.fetch.max.bytes", INT, "1048576", NOT_NEGATIVE, MEDIUM, FIXED,
     "Bytes per partition in a follower's fetch."),
    ("replica.fetch.min.bytes", INT, "1", None, HIGH, FIXED,
     "Bytes for which a follower's fetch waits."),
    ("replica.fetch.wait.max.ms", INT, "500", None, HIGH, FIXED,
     "Milliseconds that a follower's fetch may wait."),
    ("replica.fetch.backoff.ms", INT, "1000", NOT_NEGATIVE, MEDIUM, FIXED,
     "Milliseconds of rest after a failed fetch."),
    ("replica.fetch.response.max.bytes", INT, "10485760", NOT_NEGATIVE, MEDIUM, FIXED,
     "Bytes of a whole answer to a follower's fetch."),
    ("replica.high.watermark.checkpoint.interval.ms", LONG, "5000", None, HIGH, FIXED,
     "Milliseconds between two checkpoints of the high watermarks."),
    ("replica.selector.class", STRING, None, OneOf((RACK_AWARE,)), MEDIUM, FIXED,
     "What picks the replica from which a consumer reads: the leader when not set, else a replica in its rack."),
    ("replica.socket.receive.buffer.bytes", INT, "65536", None, HIGH, FIXED,
     "SO_RCVBUF of a follower's sockets in bytes."),
    ("replica.socket.timeout.ms", INT, "30000", None, HIGH, FIXED,
     "Milliseconds that a follower waits at a connection to a leader."),
    ("num.replica.fetchers", INT, "1", POSITIVE, HIGH, CLUSTER,
     "Threads per leader that a follower fetches with."),
    ("num.replica.alter.log.dirs.threads", INT, None, None, HIGH, FIXED,
     "Threads that move replicas between log directories."),
    ("auto.leader.rebalance.enable", BOOLEAN, "true", None, HIGH, FIXED,
     "Whether leadership moves back to preferred leaders by itself."),
    ("leader.imbalance.check.interval.seconds", LONG, "300", POSITIVE, HIGH, FIXED,
     "Seconds between two looks for leadership that should move back."),
    ("unclean.leader.election.interval.ms", LONG, "300000", POSITIVE, MEDIUM, FIXED,
     "Milliseconds between two looks for partitions that only an unclean election can bring back."),
    ("follower.fetch.last.tiered.offset.enable", BOOLEAN, "false", None, MEDIUM, CLUSTER,
     "Whether a new follower begins after what is in remote storage."),
)  # fmt: skip
