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

LEASES_OF_THE_FORMER_MAX: Final = 2
"""After how many times of its lease a process that holds the election is taken for running. One that is gone holds it
no longer than once; or twice, where the store gave all leases their full time again, as etcd does with a new leader."""

STOP_GRACE_SECONDS: Final = 1.0
"""How long running calls may take when the controller stops."""

TAKEOVER_GRACE_MS: Final = 8_000
"""How much longer than its session timeout a service may take to come to a controller that succeeds another one: where
the former was cut off and not ended, only an unanswered heartbeat (`metadata.heartbeats`) tells a service so, and then
it has to find the new one. Without it, every node would be fenced whenever a controller is cut off."""

SILENCE_MS_MIN: Final = 3_000
"""A registered service whose stream is open but whose heartbeats stay away is given up after its session timeout, but
not before this: a machine that is busy for a moment holds its services up, and takes nobody's place by it."""

SILENCE_CHECK_SECONDS: Final = 0.5
"""How often silent services are looked for."""
