"""Transactions."""

from __future__ import annotations

from typing import Final

from barnabas.metadata.settings.row import (
    BOOLEAN,
    CLUSTER,
    FIXED,
    HIGH,
    INT,
    LOW,
    NOT_NEGATIVE,
    POSITIVE,
    SHORT,
    Row,
)

SETTINGS: Final[tuple[Row, ...]] = (
    ("transaction.max.timeout.ms", INT, "900000", POSITIVE, HIGH, FIXED,
     "Milliseconds of the longest timeout that a transactional producer may ask for."),
    ("transactional.id.expiration.ms", INT, "604800000", POSITIVE, HIGH, FIXED,
     "Milliseconds after which an unused transactional id is forgotten."),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000", POSITIVE, LOW, FIXED,
     "Milliseconds between two looks for transactions that took too long."),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000", POSITIVE, LOW, FIXED,
     "Milliseconds between two looks for unused transactional ids."),
    ("transaction.partition.verification.enable", BOOLEAN, "true", None, LOW, CLUSTER,
     "Whether a partition checks that it is part of a transaction before it appends to it."),
    ("transaction.two.phase.commit.enable", BOOLEAN, "false", None, LOW, FIXED,
     "Whether transactions may be prepared for a commit that another system decides (KIP-939)."),
    ("transaction.state.log.num.partitions", INT, "50", POSITIVE, HIGH, FIXED,
     "Partitions of __transaction_state when it is created."),
    ("transaction.state.log.replication.factor", SHORT, "3", POSITIVE, HIGH, FIXED,
     "Replicas of __transaction_state when it is created."),
    ("transaction.state.log.min.isr", INT, "2", POSITIVE, HIGH, FIXED,
     "In-sync replicas that __transaction_state needs."),
    ("transaction.state.log.segment.bytes", INT, "104857600", POSITIVE, HIGH, FIXED,
     "Segment size of __transaction_state in bytes."),
    ("transaction.state.log.load.buffer.size", INT, "5242880", POSITIVE, HIGH, FIXED,
     "Bytes per read while the state of transactions is loaded."),
    ("add.partitions.to.txn.retry.backoff.ms", INT, "20", POSITIVE, HIGH, FIXED,
     "Milliseconds before the broker tries again to add a partition to a transaction."),
    ("add.partitions.to.txn.retry.backoff.max.ms", INT, "100", NOT_NEGATIVE, HIGH, FIXED,
     "Milliseconds for which it goes on trying."),
)  # fmt: skip
