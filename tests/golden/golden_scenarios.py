"""All scenarios of the session, in the order in which they are played: importing this module puts them on the list."""

from __future__ import annotations

import scenarios_cluster
import scenarios_committed
import scenarios_configs
import scenarios_consumer_groups
import scenarios_fetch
import scenarios_frames
import scenarios_groups
import scenarios_produce
import scenarios_quotas
import scenarios_telemetry
import scenarios_topics
import scenarios_transactions
import scenarios_transactions_read

__all__ = [
    "scenarios_cluster",
    "scenarios_committed",
    "scenarios_configs",
    "scenarios_consumer_groups",
    "scenarios_fetch",
    "scenarios_frames",
    "scenarios_groups",
    "scenarios_produce",
    "scenarios_quotas",
    "scenarios_telemetry",
    "scenarios_topics",
    "scenarios_transactions",
    "scenarios_transactions_read",
]
