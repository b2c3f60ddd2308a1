"""Named limits of a storage node."""

from __future__ import annotations

from typing import Final

APPEND_ANSWERS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Results of one Append stream that may wait to be written before its next frame is taken."""

APPEND_ANSWER_BYTES: Final = 64
"""What one partition's append result counts against that limit."""

RECORD_ERROR_BYTES: Final = 128
"""What a record that is to blame for a refusal counts against it."""

FETCH_ANSWERS_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of results of one Fetch stream that may wait to be written before further fetches of it are read."""

WAITING_FETCHES_MAX: Final = 100_000
"""Fetches of all streams that may wait for data; one more is answered at once with what there is."""

WAIT_MS_MAX: Final = 600_000
"""The longest that a fetch or an append may wait, whatever it asks for."""

PARKED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Record bytes that may wait for one partition whose log is still being opened."""

OPENING_WAIT_MS_MAX: Final = 1_000
"""How long an append or a look-up waits for a log that is still being opened before it is refused."""

READ_THREADS: Final = 4
"""Threads that read what is not in memory, and look up timestamps."""

COLD_FETCHES_PER_STREAM: Final = 4
"""Fetches of one stream that may be read from disk at the same time; each may hold fetch.max.bytes in memory."""

FLUSH_THREADS: Final = 4
"""Threads that sync logs to disk for flush.messages and flush.ms."""

OPEN_BATCH: Final = 16
"""Logs that are created or opened in one go, before those that are ready are put into service."""

RECOVERY_BATCH: Final = 32
"""Logs that one thread opens in one go at start: few enough that threads end at the same time, and a tenth of the
hand-overs between threads that one at a time takes."""

STOP_GRACE_SECONDS: Final = 0.2
"""How long streams may finish what they are writing when the node stops."""

STRAY_KEPT_MS: Final = 24 * 3_600_000
"""How long a partition is kept that the metadata does not know although nobody deleted it. Counted from when it was set
aside, over restarts; Kafka's nearest setting is file.delete.delay.ms."""

STRAY_CHECK_MS: Final = 60_000
"""How often stray partitions are looked over for those that were kept long enough."""
