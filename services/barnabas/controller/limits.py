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
"""After how many times of its lease a process that holds the election, or an id, is taken for running. One that is gone
holds it no longer than once; or twice, where the store gave all leases their full time again, as etcd does with a new
leader."""

STOP_GRACE_SECONDS: Final = 1.0
"""How long running calls may take when the controller stops."""

TAKEOVER_GRACE_MS: Final = 8_000
"""How much longer than its session timeout a service may take to come to a controller that succeeds another one: where
the former was cut off and not ended, only an unanswered heartbeat (`metadata.heartbeats`) tells a service so, and then
it has to find the new one. Without it, every node would be fenced whenever a controller is cut off."""

FOUND_GATEWAY_GRACE_MS: Final = 1_000
"""How much longer than its session timeout a gateway may take to come to a new term at least: while no controller
answered, it has come to pause for RETRY_SECONDS_MAX between its attempts."""

SILENCE_MS_MIN: Final = 3_000
"""A registered service whose stream is open but whose heartbeats stay away is given up after its session timeout, but
not before this: a machine that is busy for a moment holds its services up, and takes nobody's place by it."""

PRESENT_SECONDS: Final = 1.5
"""Nobody is handed a leadership or groups who was not heard from for two heartbeats: one of them may be late or lost.
Who is frozen and leads costs SILENCE_MS_MIN; who is well and was passed over costs little, for once the old leader has
gone it is asked every PROBE_PAUSE_SECONDS who is present by then."""

CAME_BACK_SECONDS: Final = 10.0
"""Who came back within this is handed a leadership only where nobody else can take it, the last one last: while it was
away its address refused, and clients then wait before they try it again (librdkafka's reconnect.backoff.max.ms: 10 s).
"""

SILENCE_CHECK_SECONDS: Final = 0.5
"""How often silent services are looked for."""

FIRST_LOOK_SECONDS: Final = 1.0
"""How long a term gives coordinators to come before it asks at their addresses: where a whole cluster starts, who comes
first is not to be given everything, for others to have it a moment later."""

PROBE_SECONDS_MAX: Final = 0.5
"""How long a service whose stream broke may take to be reached or to refuse; one that does neither is silent."""

PROBE_PAUSE_SECONDS_MIN: Final = 0.01
PROBE_PAUSE_SECONDS: Final = 0.2
"""Pause before it is asked again, until it comes back or its time is over: doubles from the first to the second. Of a
process that ends, the kernel may close the connections a moment before the address refuses."""

EXPIRY_RETRY_SECONDS: Final = 0.1
"""Pause before the removal of a silent service is submitted again, where too much waits for the store."""

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""Partitions that one request may create, as in Kafka."""

DELETED_TOPIC_KEPT_MS: Final = 7 * 24 * 3_600_000
"""How long it is remembered that a topic was deleted."""

DELETED_TOPICS_MAX: Final = 10_000
"""Deleted topics that are remembered, the latest ones."""

SEEN_LEADER_EPOCHS_MAX: Final = 10_000
"""Partitions whose leader epochs one request may ask to raise."""

ISR_PROPOSALS_MAX: Final = 10_000
"""Partitions whose in-sync replicas one request may propose to change."""

REPLICA_REPORTS_MAX: Final = 10_000
"""Replicas whose state one request may report."""

ELECTIONS_PER_RUN_MAX: Final = 1_000
"""Leaders that are elected in one run of those that nobody asks for; the next one follows at once."""

INTERNAL_TOPICS_CHECK_SECONDS: Final = 2.0
"""How often partitions of internal topics are looked for that have too few replicas."""

INTERNAL_PARTITIONS_GROWING_MAX: Final = 10
"""Partitions of internal topics that get further replicas at the same time."""

ETCD_REQUEST_SECONDS_MAX: Final = 3.0
"""How long one call to one etcd endpoint may take."""

ETCD_LEASE_SECONDS_MAX: Final = 1.0
"""How long one endpoint may take to prolong a lease: less than the lease (3 s), so that a member that was cut off does
not cost it while another would answer."""

ETCD_RECEIVE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest answer accepted: a watch sends a whole revision as one message."""

ETCD_RECONNECT_SECONDS_MIN: Final = 0.05
ETCD_RECONNECT_SECONDS_MAX: Final = 1.0
"""Pause before a watch that ended is begun again; doubles from the first to the second."""

ETCD_KEEPALIVE_MS: Final = 5_500
"""etcd ends connections that are probed more often than its --grpc-keepalive-min-time of 5 s."""

ETCD_KEEPALIVE_TIMEOUT_MS: Final = 2_500
"""A member whose probe is not answered within this is given up: 8 s after it was heard of last, where no call with a
limit of its own noticed before."""

SQLITE_HISTORY_REVISIONS_MAX: Final = 10_000
"""Revisions that a watch can go back; older ones are compacted."""

SQLITE_WATCH_READ_REVISIONS_MAX: Final = 256
"""Revisions that one watch reads from the file at a time."""

UNCLEAN_LEADERS_TOLD_MAX: Final = 100
"""Partitions of one decision whose leaders may lack records, a line of the log each; of more only the number."""
