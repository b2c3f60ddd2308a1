"""Numbers to which Kafka's protocol gives a meaning, for all that speak it."""

from __future__ import annotations

from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

NO_EPOCH: Final = -1
"""A leader epoch that is not known, or not said."""

ALL_REPLICAS: Final = -1
"""acks=all: those in sync."""
VALID_ACKS: Final = frozenset({ALL_REPLICAS, 0, 1})

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""The isolation level that stops at the last stable offset (KIP-98)."""

PRODUCER_EPOCH_MAX: Final = 2**15 - 1
NEW_EPOCH_VERSION: Final = 2
"""The version of transactions from which on each has a producer epoch of its own, and brokers add partitions
(KIP-890)."""

# What ListOffsets may be asked for in place of a timestamp.
LATEST: Final = -1
"""Where records may be read up to."""
EARLIEST: Final = -2
"""Where the log starts."""
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

# What settings can belong to: ConfigResource.Type.
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
"""The log levels of a broker."""
CLIENT_METRICS_RESOURCE: Final = 16
"""A subscription to clients' metrics (KIP-714)."""
GROUP_RESOURCE: Final = 32

# What IncrementalAlterConfigs does with a setting: AlterConfigOp.OpType (KIP-339).
SET_CONFIG: Final = 0
DELETE_CONFIG: Final = 1
APPEND_CONFIG: Final = 2
SUBTRACT_CONFIG: Final = 3

# Which way UpdateFeatures may go: UpgradeType (KIP-778).
UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3

HIGH_WATERMARK: Final = -1
"""In DeleteRecords in place of an offset: all that consumers may have read."""
