"""Named limits of the gateway that are not settings."""

from __future__ import annotations

from typing import Final

CONNECTION_IN_FLIGHT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Over this much in unanswered requests of one connection, its socket is not read."""

CONNECTION_IN_FLIGHT_REQUESTS_MAX: Final = 1_000
"""Over this many unanswered requests of one connection, its socket is not read."""

IDLE_CHECK_SECONDS: Final = 10.0
"""How often idle connections are looked for."""

CALL_TIMEOUT_SECONDS: Final = 30.0
"""The longest wait for a controller's or coordinator's answer where the client names no timeout."""

IMAGE_WAIT_SECONDS: Final = 5.0
"""The longest wait for a change of ours to come back in the metadata."""

JOIN_GRACE_SECONDS: Final = 15.0
"""Added to a member's rebalance timeout before a JoinGroup or SyncGroup call is given up."""
