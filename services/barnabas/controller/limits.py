"""Named limits of the controller."""

from __future__ import annotations

from typing import Final

WAITING_REQUESTS_MAX: Final = 10_000
"""Requests that may wait to be decided; further ones are refused."""

STREAM_QUEUED_RECORDS_MAX: Final = 100_000
"""Records that may wait for one receiver; over it, its stream is ended and it starts again from a snapshot."""

STORE_RETRY_SECONDS_MIN: Final = 0.1
STORE_RETRY_SECONDS_MAX: Final = 2.0
"""Pauses between attempts to reach the store."""

STOP_GRACE_SECONDS: Final = 1.0
"""How long running calls may take when the controller stops."""
