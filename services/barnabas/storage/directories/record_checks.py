"""Looking at the records of batches before they are written, apart from the threads that write.

A small batch can take a good part of a second to look at (`records.validate`), and nothing but the semantics of its own
topic asks for that. So no other partition waits for it: a short look is had on the event loop, as long as that leaves
the loop the most of its time, every other in one thread for the whole node. A partition has one batch there at a time
(`LaneQueue`), so partitions take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from barnabas.kernel.clock import machine_seconds
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.kernel.threads import Threads
from barnabas.storage import limits

log = get_logger("storage.record_checks")

OnChecked = Callable[["Future[Any]"], None]
"""Called on the event loop with a check that is over, or was cancelled."""

_LONG_AGO: Final = float("-inf")


class LoopTime:
    """How much of the event loop's time is left for looking at records: a `records.validate.WalkTime`.

    A share of all time, so that many short looks, of one request or of many, do not add up to a long one.
    """

    def __init__(self, now: Callable[[], float] = machine_seconds) -> None:
        """`now` in seconds."""
        self._now = now
        self._left_seconds = 0.0
        self._at = _LONG_AGO

    def begin(self) -> bool:
        """Whether there is time for a short look, which begins now."""
        self._gain()
        return self._left_seconds > 0

    def end(self) -> None:
        """The look is over."""
        began = self._at
        self._gain()
        self._left_seconds -= self._at - began

    def _gain(self) -> None:
        now = self._now()
        gained_seconds = (now - self._at) * limits.CHECKS_LOOP_SHARE_MAX
        self._left_seconds = min(self._left_seconds + gained_seconds, limits.CHECKS_LOOP_SECONDS_MAX)
        self._at = now


class RecordChecks:
    """Owner of the thread that looks at records, and of how much may wait for it; for the event loop."""

    def __init__(
        self,
        threads: Threads,
        *,
        now: Callable[[], float] = machine_seconds,
        bytes_max: int = limits.CHECKS_BYTES_MAX,
    ) -> None:
        """`now` in seconds."""
        self.loop_time = LoopTime(now)
        self.waiting_bytes = 0
        """Record bytes that wait for the thread, are in it, or wait behind such of their partition."""
        self._bytes_max = bytes_max
        self._thread = threads.executor("record-check", 1)

    def reserve(self, size_bytes: int, partition_bytes: int) -> None:
        """Make room for `size_bytes` of a partition that has `partition_bytes` waiting.

        Raises KAFKA_STORAGE_ERROR when that would leave too little for others: a partition alone gets a half. The first
        of each may take as much again, and what has 0 bytes is always taken.
        """
        bytes_max = self._bytes_max if partition_bytes else 2 * self._bytes_max
        is_too_much = partition_bytes + size_bytes > bytes_max - self.waiting_bytes
        if size_bytes and is_too_much and self.waiting_bytes:
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"{self.waiting_bytes} bytes of records wait to be looked at, {partition_bytes} of this partition",
            )
        self.waiting_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """What was reserved waits no longer."""
        self.waiting_bytes -= size_bytes

    def submit(self, check: Callable[[], object], on_checked: OnChecked) -> Future[Any]:
        """Run `check` in the thread. What has not begun can be cancelled."""
        loop = asyncio.get_running_loop()

        def tell(future: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
                loop.call_soon_threadsafe(on_checked, future)

        future = self._thread.submit(_logging, check)
        future.add_done_callback(tell)
        return future

    def close(self) -> None:
        """Begin nothing more; what runs changes nothing when it ends."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _logging(check: Callable[[], object]) -> object:
    try:
        return check()
    except KafkaError:
        raise
    except BaseException:
        log.exception("looking at records failed")
        raise
