"""Named limits of a storage node."""

from __future__ import annotations

from typing import Final

WAITING_FETCHES_MAX: Final = 100_000
"""Fetches of all streams that may wait for data; one more is answered at once with what there is."""

WAIT_MS_MAX: Final = 600_000
"""The longest that a fetch or an append may wait, whatever it asks for."""

PARKED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Record bytes that may wait for one partition whose log is still being opened."""

OPENING_WAIT_MS_MAX: Final = 1_000
"""How long an append waits for a log that is still being opened before it is refused, and how long after the opening
has begun a look-up does."""

UNNAMED_PARTITIONS_MAX: Final = 10_000
"""Of which a node remembers since when somebody looks for them, while its metadata do not name them: about 2 MB."""

REFUSED_WHILE_ABSENT_MAX: Final = 10_000
"""Partitions that a node does not have, and producers in them, whose refused appends it remembers: about 5 MB. More
than one partition's producers (`REFUSED_PRODUCERS_MAX`), so that what was refused last is always remembered."""

LANE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Record bytes of appends that may wait for one log directory; what comes on top is refused."""

MOVE_STEP_BYTES_MAX: Final = 1024 * 1024
"""Record bytes that a move between log directories copies at a time, but for a larger batch."""

MOVE_ROUNDS: Final = 3
"""How often a move copies what came while it made durable what it had, before appends wait for the rest."""

MOVE_HOLD_SECONDS_MAX: Final = 1.0
"""How long a move waits for appends that are under way, while others wait for it, before it gives way."""

MOVE_CHANGE_SECONDS_MAX: Final = 5.0
"""How long appends wait for a log directory that their replica is about to move to: then it does not move; where the
places change already, as long once more: then it is offline."""

MOVE_AGAIN_SECONDS: Final = 5.0
"""After this a move that gave way tries again."""

MOVE_PACE_SECONDS_MAX: Final = 1.0
"""After this a move that is ahead of its rate looks at the rate again."""

RETIRE_AGAIN_SECONDS: Final = 10.0
"""How soon it is tried again to remove what a replica has left behind."""

FORMER_LOG_SECONDS: Final = 1.0
"""How long the log that a partition moved away from stays open for reads that had begun."""

PREFERRED_DIRECTORIES_MAX: Final = 100_000
"""Partitions to come of which a node remembers in which log directory they are wanted; the oldest is forgotten."""

CHECKS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Record bytes of a node's appends that may wait for a look at their records, or behind such of their partition; what
comes on top is refused. One partition gets a half of it."""

CHECKS_LOOP_SHARE_MAX: Final = 0.25
CHECKS_LOOP_SECONDS_MAX: Final = 0.01
"""How much of the event loop's time may go into short looks at records, and how much of that may be saved up: what they
take beyond it is a thread's."""

RECORD_ERRORS_MAX: Final = 10_000
"""Bad records of one append request that are named, over all its partitions: a small request can have millions."""

SLOW_APPEND_SECONDS: Final = 0.05
"""An append on the event loop that took longer sends those after it to the directory's writer thread. On a machine
whose processors are all busy, 0.02 s pass often enough without any disk."""

SLOW_IN_THREAD_SECONDS: Final = 0.1
"""An append in the writer thread that took longer keeps the following ones there."""

DIRECT_AGAIN_SECONDS: Final = 1.0
"""How long a log directory must have been fast before appends to it run on the event loop again; twice as long each
time that it is soon slow again."""

DIRECT_AGAIN_SECONDS_MAX: Final = 60.0
"""The longest that it comes to, and how long a directory must have been well for its past to be forgotten."""

STALLED_SECONDS: Final = 1.0
"""How long an append may run before its log directory is taken for stalled."""

PROVEN_SECONDS: Final = 1.0
"""How long after its last append a log directory is still taken for healthy."""

TROUBLE_OVER_SECONDS: Final = 10.0
"""How long a disk must not have refused before it is taken for well."""

REFUSALS_MIN: Final = 3
REFUSALS_SECONDS_MAX: Final = 10.0
"""So many refusals of a disk within such a time, and others are to lead what is in its log directory."""

REFUSAL_APART_SECONDS: Final = 0.1
"""Refusals that come sooner after one another count as one: many partitions may meet the same hitch."""

PROBE_SECONDS: Final = 1.0
"""How often a disk that is given up is tried."""

QUIET_SECONDS_MIN: Final = 2.0
QUIET_SECONDS_MAX: Final = 60.0
"""How long it must have refused nothing before it is taken back: longer than a follower rests between two tries
(replica.fetch.backoff.ms), and twice as long each time that it is soon given up again."""

ANSWER_GRACE_MS: Final = 500
"""How long past its own time-out a request may wait for this node's disk before it is answered without it."""

LOOK_UP_MS_MAX: Final = 10_000
"""How long a look-up, a deletion of records or a description may wait for a log directory."""

COLD_READ_MS_MAX: Final = 500
"""How long a fetch waits for one log directory to read what is not in memory."""

READ_THREADS: Final = 4
"""Threads for each log directory that read what is not in memory, and look up timestamps."""

COLD_FETCHES_PER_STREAM: Final = 4
"""Fetches of one stream that may be read from one log directory's disk at the same time; each may hold
fetch.max.bytes in memory."""

FLUSH_THREADS: Final = 4
"""Threads for each log directory that sync logs for flush.messages and flush.ms."""

DISK_USAGE_SECONDS: Final = 10.0
"""How often each log directory's file system is asked how full it is."""

STOP_ANSWERS_SECONDS_MAX: Final = 4.0
"""How long a stopping node waits for appends that it has taken, which a slow disk holds up, before it answers them
without it."""

STARTING_SECONDS_MAX: Final = 4.0
"""How long a node that is told to stop while it starts waits for its logs to be open, so that it can close them, before
it leaves them to recovery. It has taken no appends then, which would be waited for instead."""

STOP_GRACE_SECONDS: Final = 1.0
"""How long streams and calls may then take to bring the answers away."""

CLOSING_SECONDS_MAX: Final = 20.0
"""How long a stopping node waits for a log directory that does not answer before it leaves it to recovery: no longer
than is left of the kernel's STOP_SECONDS_MAX, which is 13 s where all steps before it, those of a gateway in the same
process among them, took all of their time."""

REOPEN_SECONDS_MIN: Final = 1.0
REOPEN_SECONDS_MAX: Final = 30.0
"""Pauses until a log is tried again that could not be opened: well within the delivery.timeout.ms of those who produce
to it, which is 2 minutes by default."""

OPEN_BATCH: Final = 16
"""Logs that are created or opened in one go, before those that are ready are put into service."""

REMOVE_BATCH: Final = 16
"""Logs that are deleted in one go: some 20 ms each, which a stop of the node waits for, and what is to be opened."""

RECOVERY_BATCH: Final = 32
"""Logs that one thread opens in one go at start: few enough that threads end at the same time, and a tenth of the
hand-overs between threads that one at a time takes."""

NEWER_EPOCHS_PER_CALL: Final = 10_000
"""Partitions whose leader epochs the controller is asked to raise in one call; it takes no more."""

NEWER_EPOCHS_RETRY_SECONDS_MIN: Final = 0.2
NEWER_EPOCHS_RETRY_SECONDS_MAX: Final = 5.0
"""Pauses until the controller is asked again to raise leader epochs that it has not raised."""

NEWER_EPOCHS_CALL_SECONDS_MAX: Final = 10.0
"""How long the controller may take for one such call: with 10,000 partitions it writes a hundred transactions."""

STRAY_KEPT_MS: Final = 24 * 3_600_000
"""How long a partition is kept that the metadata does not know although nobody deleted it. Counted from when it was set
aside, over restarts; Kafka's nearest setting is file.delete.delay.ms."""

STRAY_CHECK_MS: Final = 60_000
"""How often stray partitions are looked over for those that were kept long enough."""

FETCH_ANSWER_BYTES_TARGET: Final = 8 * 1024 * 1024
"""About the most that one fetch is answered with, whatever more it allows: clients ask again at once, and what is
larger leaves the processor's cache between its copies."""

UNSEEN_PIECES_MAX: Final = 1_000
"""Appends of one partition that are told apart; beyond that the newest count as one."""

CLEANING_PAUSE_SECONDS_MAX: Final = 0.25
"""The longest that the thread waits at a time to keep to its rate, so that it soon sees that the node stops."""

CLEANING_PAUSE_SECONDS_MIN: Final = 0.001
"""Less than this it may be ahead of its rate: where there is no limit it always is, by next to nothing."""

CLEANING_BACKOFF_MS_MIN: Final = 100
"""The shortest rest between two looks for dirty logs, whatever the setting says."""

REPLICA_NEWS_SECONDS: Final = 0.1
"""How long a follower may not know of a higher watermark that does not go with records. Kafka's tell it within
replica.fetch.wait.max.ms, half a second."""

ISR_CALL_SECONDS_MAX: Final = 10.0
"""How long the controller may take to decide on other in-sync replicas before it is asked again."""

ISR_RETRY_SECONDS_MIN: Final = 0.05
ISR_RETRY_SECONDS_MAX: Final = 1.0
"""Pauses until it is asked again."""

ISR_CHANGES_PER_CALL: Final = 1_000
"""Partitions in one call."""

LAG_CHECK_SECONDS_MIN: Final = 0.1
"""How often followers that lag are looked for at most: replica.lag.time.max.ms has no bound, as in Kafka."""

LAG_CHECKS_AT_ONCE: Final = 1_000
"""Partitions whose followers are looked over before others have their turn on the event loop."""

REPORTS_PER_CALL: Final = 10_000
"""Replicas that the controller is told of in one call; it takes no more."""

REPORT_CALL_SECONDS_MAX: Final = 10.0
"""How long the controller may take to hear which replicas can be used, before it is told again."""

REPORT_RETRY_SECONDS_MIN: Final = 0.05
REPORT_RETRY_SECONDS_MAX: Final = 1.0
"""Pauses until it is told again."""

REPORT_SHOWN_SECONDS_MAX: Final = 5.0
"""How long the metadata may take to show what the controller was told, before it is told again."""

HAND_OVER_SECONDS_MAX: Final = 5.0
"""How long a stopping node waits for others to lead what it leads, however often it is asked to have them do so. With
the other steps it fits into the kernel's STOP_SECONDS_MAX."""

HAND_OVER_PAUSE_SECONDS: Final = 0.05
"""Until the controller is asked again whether they do."""

HAND_OVER_COPY_SECONDS_MAX: Final = 0.1
"""How long a node that is about to hand over waits until what it has taken is answered, and on the other in-sync
replicas, too: some milliseconds where they are well. Where they are not, the change of leader refuses what is left."""

COPIED_CHECK_SECONDS: Final = 0.005
"""How often it looks whether they have it."""

HAND_OVER_REFUSAL_SECONDS_MAX: Final = 0.5
"""How long, from before that wait on, it takes no records of clients for what others are to lead. Where the controller
has not answered by then, it takes them again until it stops."""

UNASKED_SECONDS: Final = 0.05
"""A node that has handed over ends its streams when no append has come for so long: who does not know yet asks again
after a shorter time (the gateway's RESEND_PAUSE_SECONDS)."""

UNASKED_SECONDS_MAX: Final = 0.5
"""After this it ends them in any case."""

POSITIONS_AT_ONCE: Final = 1_000
"""Positions of a follower in one frame, before others have their turn on the event loop."""

ANSWERED_BYTES_AT_ONCE: Final = 256 * 1024
"""Record bytes of a leader's answers that are taken before others have their turn on the event loop."""

ANSWER_COST_BYTES: Final = 4 * 1024
"""What an answer costs beside its records, as bytes of records."""

HELD_BACK_SECONDS_MIN: Final = 0.05
HELD_BACK_SECONDS_MAX: Final = 1.0
"""How soon what a replication quota has held back is looked at again."""

THROTTLED_AT_ONCE: Final = 10
THROTTLED_BYTES: Final = 1024 * 1024
"""For how many throttled replicas a follower asks before it looks again at what came: each may bring THROTTLED_BYTES,
which is replica.fetch.max.bytes by default. Ten bring what one fetch of Kafka's may; more are asked for where the rate
is above that.
"""

UNVERIFIED_BYTES_MAX: Final = 64 * 1024 * 1024
UNVERIFIED_PARTITION_BYTES_MAX: Final = 16 * 1024 * 1024
"""Record bytes of a node, and of one partition, that may wait until transaction coordinators have been asked about
them; what comes on top is refused."""

UNVERIFIED_BATCH_COST_BYTES: Final = 1024
"""What a batch that waits so costs beside its records, as bytes of records."""
