"""Named limits of the coordinator."""

from __future__ import annotations

from typing import Final

BATCH_BYTES_TARGET: Final = 512 * 1024
"""Decisions that wait share a batch up to this many bytes of records: below the topic's max.message.bytes (1 MiB by
default). A decision with more than that is written as several batches."""

GROUP_RECORD_BYTES_MAX: Final = 1000 * 1024
"""The largest generation that is written: one record must fit into a batch of max.message.bytes (1,048,588 by
default). A larger one is refused to its members with UNKNOWN_SERVER_ERROR, as Kafka does after the failed write."""

APPEND_BYTES_TARGET: Final = 2 * BATCH_BYTES_TARGET
APPEND_BATCHES_MAX: Final = 200
"""Decisions that wait while an append is under way leave together, up to so many bytes of records, in so many batches.
Batches are many where many transactions are open: each producer has its own, and each marker."""

BACKLOG_BYTES_MAX: Final = 8 * 1024 * 1024
BACKLOG_DECISIONS_MAX: Final = 10_000
"""What may wait for one partition's log, in bytes of records and in decisions. While more waits, requests that would
write are refused with COORDINATOR_LOAD_IN_PROGRESS, which clients answer by asking again a little later."""

BACKLOG_ANSWERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""How large the answers may be that wait for one partition's log. While more wait, all requests but
heartbeats of the classic protocol are refused so."""

APPEND_ANSWER_MS_MAX: Final = 30_000
"""How long a write may take to reach the in-sync replicas before it is sent again. Long, since a write that is sent
again while the first one is still on its way costs a reload; requests are refused after offsets.commit.timeout.ms."""

APPEND_RETRY_MS_MIN: Final = 50
APPEND_RETRY_MS_MAX: Final = 1_000
"""Pause before a write that the log did not take is sent again; doubles from the first to the second."""

OWNER_KNOWN_SECONDS: Final = 2.0
"""How long it counts, from when the write was sent, that the log's leader refused one as it does to the owner alone.
Longer than the longest pause between two tries, or offsets would be told now and refused then; and short, for another
one may take over and commit meanwhile."""

LOAD_RETRY_MS_MIN: Final = 20
LOAD_RETRY_MS_MAX: Final = 5_000
"""Pause before a partition is loaded again after a failure, and before a read that came too late is tried again;
doubles from the first to the second."""

EARLY_LOAD_RETRY_MS_MAX: Final = 100
"""The same for the first loads, for coordinator.load.wait.ms: requests wait for them, and their failures are no warning
yet. That the log has another leader is known at once, that its node has opened it is not."""

APPEND_GRACE_MS: Final = 1_000
"""How much longer than APPEND_ANSWER_MS_MAX to wait for the storage node's answer before giving it up."""

FETCH_WAIT_MS: Final = 500
"""How long a fetch of the log may wait for the high watermark to move while a partition is being loaded."""

LOAD_YIELD_RECORDS: Final = 100
LOAD_YIELD_BYTES: Final = 256 * 1024
"""While partitions are being loaded, the event loop gets a turn after this many records of any of them, or bytes of
their batches: about a millisecond. The process may be a broker as well, whose records pass the loop a dozen times
each before they are acknowledged."""

OFFSETS_DELETED_AT_ONCE: Final = 500
"""Offsets of deleted topics that are deleted before the event loop gets a turn; of those left over, in one look for
expired ones."""

REBALANCE_PROLONGED_MS_MIN: Final = 1_000
"""A rebalance that nobody joined goes on for so long at least, whatever rebalance timeout its members asked for."""

MEMBER_ID_PREFIX_MAX: Final = 255
"""How many characters of a client id or group.instance.id a new member id starts with: the id must fit into a
string of the record, whatever the client sends."""

SUBSCRIPTION_CHARACTERS_MAX: Final = 200_000
"""What a member of a consumer group may subscribe to, in characters of topic names and of all else that it says of
itself: four bytes each, in one record."""

REGEX_PAUSE_MS: Final = 10_000
"""The topics that match a consumer group's regular expressions are not looked for again sooner."""

REGEX_NAMES_AT_ONCE: Final = 5_000
"""Topics that a regular expression is matched with before the event loop gets a turn: about 20 ms."""

REGEX_TOPICS_BYTES_MAX: Final = 900 * 1024
"""What the names of the topics that a regular expression matches may have together: they are in one record. Where they
have more, the group goes on with the topics that it had."""

TRANSACTION_RECORD_BYTES_MAX: Final = 1000 * 1024
"""The largest transaction that is written, for the same reason: what would make it larger is refused with
TRANSACTION_ABORTABLE, so that the producer can abort and go on."""

TRANSACTION_PARTITIONS_MAX: Final = 20_000
"""Partitions in one transaction: its record, with all of them, is written anew for each that is added. What would make
it more is refused likewise."""

TRANSACTIONAL_IDS_MAX: Final = 20_000
"""Transactional ids that are known in one partition, about 1 KiB of memory each. Another one is refused with
POLICY_VIOLATION until others have not been used for transactional.id.expiration.ms."""

TIMED_OUT_IDS_AT_ONCE: Final = 500
"""Transactions that are aborted for their time-outs before the event loop gets a turn, 30 µs each."""

EXPIRED_IDS_AT_ONCE: Final = 1_000
"""Transactional ids that are forgotten before the event loop gets a turn."""

OPEN_PRODUCERS_MAX: Final = 20_000
"""Producers that may have a transaction open in one partition of __consumer_offsets. Another one's offsets are refused
with COORDINATOR_LOAD_IN_PROGRESS, which clients answer by asking again, until some transaction has ended."""

TRANSACTION_OFFSETS_MAX: Final = 100_000
"""Offsets that one transaction may have in one partition of __consumer_offsets. What would make it more is refused with
TRANSACTION_ABORTABLE."""

KNOWN_PRODUCERS_MAX: Final = 100_000
"""Producers that are remembered in one partition of __consumer_offsets after their transactions, about 200 bytes each;
of more, those are forgotten that were silent longest. Their log knows them for producer.id.expiration.ms."""

TRANSACTION_ANSWER_SECONDS: Final = 5.0
"""How long a client's offsets wait for the word of a transaction coordinator that the partition is part of the
transaction, with the time in which others are asked about first."""

NO_WAIT_SECONDS_MAX: Final = 1.0
"""How long a "no" to a partition's leader waits for the write that shows who the owner is: the answers to all that
that leader's node has asked about wait with it."""

PRODUCER_ID_WAIT_SECONDS: Final = 1.0
"""How long InitProducerId waits for the controller where no producer id is at hand, before the client is told
COORDINATOR_LOAD_IN_PROGRESS and asks again."""

CONCURRENT_WAIT_MS_MAX: Final = 1_000
"""How long AddPartitionsToTxn waits at most for the transaction before to end, whatever its sender allows."""

MARKERS_UNANSWERED_MAX: Final = 5_000
"""Partitions that one storage node or coordinator may be telling of transactions' ends at a time, and what the last of
these transactions has beyond that. Further transactions wait for it; those for others do not. As many are told by
plain calls in one turn of the event loop, where their logs are in the process."""

MARKER_ANSWER_MS_MAX: Final = 10_000
"""How long a marker may take to reach the in-sync replicas before it is sent again, if nobody else leads meanwhile."""

MARKER_RETRY_MS_MIN: Final = 20
MARKER_RETRY_MS_MAX: Final = 1_000
"""Pause before a marker is sent again; doubles from the first to the second, and ends at once when the metadata name
another node or coordinator for the partition."""

MARKER_GIVEN_UP_MS: Final = 60_000
"""A transaction one of whose partitions says that this coordinator is none any more, is left alone for so long."""

WRITTEN_MARKERS_AT_ONCE: Final = 100
"""Markers of one WriteTxnMarkers that are on their way at a time."""

MARKING_YIELD_PARTITIONS: Final = 500
"""Partitions that are told how transactions ended before the event loop gets a turn, and what the last of these
transactions has beyond that: where a log is in the process, its marker is written meanwhile."""

LAG_INTERVAL_SECONDS: Final = 1.0
"""Lag is not measured again sooner, however often the metrics are asked for."""

LAG_PARTITIONS_MAX: Final = 10_000
"""Groups' partitions whose lag one coordinator measures and shows."""

LAG_LOOK_UP_PARTITIONS: Final = 500
"""Partitions that a storage node is asked for at once: it answers without a pause."""

LAG_LOOK_UP_SECONDS: Final = 1.0
"""How long a storage node may take for that, and for a read."""

LAG_READS_MAX: Final = 256
LAG_READ_BYTES_MAX: Final = 32 * 1024 * 1024
LAG_READS_AT_ONCE: Final = 4
"""Batches, and their bytes, that are read for their timestamps in one measurement."""

AFTER_JUMP_MS: Final = 5_000
"""How long, after a test moved the clock, a member still has to send a heartbeat, to join or to ask for its assignment,
if it had so much left: clients send heartbeats every 3 s by default."""

HAND_OVER_SECONDS_MAX: Final = 0.5
"""How long a coordinator that is to stop waits for others to own what it owns, which takes some milliseconds."""

STOP_GRACE_SECONDS: Final = 0.5
"""How long calls may still be answered once the service is to stop."""

assert max(GROUP_RECORD_BYTES_MAX, TRANSACTION_RECORD_BYTES_MAX) + BATCH_BYTES_TARGET <= BACKLOG_BYTES_MAX
assert OPEN_PRODUCERS_MAX <= KNOWN_PRODUCERS_MAX
assert APPEND_RETRY_MS_MIN <= APPEND_RETRY_MS_MAX
assert APPEND_RETRY_MS_MAX < OWNER_KNOWN_SECONDS * 1000
assert LOAD_RETRY_MS_MIN <= EARLY_LOAD_RETRY_MS_MAX <= LOAD_RETRY_MS_MAX
assert MARKER_RETRY_MS_MIN <= MARKER_RETRY_MS_MAX
