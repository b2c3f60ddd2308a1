"""Named limits of the canary."""

from __future__ import annotations

from typing import Final

PENDING_RECORDS_MAX: Final = 100_000
"""Records that may be unread at once; above it nothing is sent, and every turn counts as a failed produce."""

REMEMBERED_SEQUENCES_MAX: Final = 1_000
"""Sequences remembered per sender and partition, to tell a duplicate from a record that came out of order."""

POLL_SECONDS: Final = 0.1
"""How long a client's thread waits for something to happen; a stop waits no longer than this."""

GIVE_UP_SECONDS_MAX: Final = 1.0
"""How long the client library may take to say that what it had not sent will not be."""

START_RETRY_SECONDS: Final = 1.0
"""Pause between attempts to make the topic."""

ADMIN_SECONDS_MAX: Final = 10.0
"""How long one look at the topic may take, all requests together."""

REQUEST_SECONDS_MIN: Final = 0.1
"""What is left for the last of them at least, so that it fails with the client library's own error."""

SWEEP_SECONDS: Final = 0.25
"""How often to look for records whose time is over."""

RECONNECT_MS_MIN: Final = 50
RECONNECT_MS_MAX: Final = 1_000
"""Pauses of the client library before it connects again: a gateway that is back shall be seen at once."""

assert RECONNECT_MS_MIN <= RECONNECT_MS_MAX
