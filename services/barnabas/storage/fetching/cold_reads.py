"""Reading in threads what a fetch did not find in memory; a log directory that does not answer is left out.

Every directory reads in its own threads, and no fetch waits longer than COLD_READ_MS_MAX for one: then it goes on with
what the others have. To a client, what was not read looks like nothing new: it asks again at once. To a coordinator
it is an error, REQUEST_TIMED_OUT: while it loads its state it must not take it for the log's end. While all threads of
a directory are held up so, fetches do not wait for it at all. A read that comes back late leaves its bytes in memory,
where the next fetch finds them: so a slow disk still serves. If its own fetch still waits for more, it is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.fetching.delayed_fetch import DelayedFetch
from barnabas.storage.fetching.reading import FetchReader, ReadOutcome


class ColdReads:
    """Owner of the reads of one stream that are in threads: COLD_FETCHES_PER_STREAM for each directory."""

    def __init__(
        self, reader: FetchReader, wait_for_room: Callable[[], Awaitable[None]], *, is_client: bool
    ) -> None:
        """`wait_for_room` returns when there is room for what is read; `is_client`: that goes to clients."""
        self._reader = reader
        self._in_place_of_late = reader.nothing_new if is_client else reader.not_read_in_time
        self._wait_for_room = wait_for_room
        self._slots: dict[DirectoryLane, asyncio.Semaphore] = {}

    async def finish(self, fetch: DelayedFetch, outcome: ReadOutcome) -> None:
        """Read the partitions that `outcome` does not have yet, in their order, and add them."""
        reader, request = self._reader, fetch.request
        late: list[asyncio.Future[ReadOutcome]] = []
        while (at := len(outcome.answers)) < len(request.partitions) and not fetch.is_withdrawn:
            lane = reader.lane_of(request, at)
            found = None if lane is None else await self._read_in(lane, fetch, outcome, late)
            outcome.add(self._in_place_of_late(request, at) if found is None else found)
            reader.read_on(request, outcome)
        for reading in late:
            # Not before: while the fetch does not wait yet it cannot be woken. One that is back already calls soon.
            reading.add_done_callback(partial(_read_again, fetch))

    async def _read_in(
        self,
        lane: DirectoryLane,
        fetch: DelayedFetch,
        outcome: ReadOutcome,
        late: list[asyncio.Future[ReadOutcome]],
    ) -> ReadOutcome | None:
        """The next partitions, as far as they are in `lane`; None when that takes too long, which is then `late`."""
        slots = self._slots.setdefault(lane, asyncio.Semaphore(limits.COLD_FETCHES_PER_STREAM))
        if lane.late_reads >= limits.READ_THREADS or not await _acquire(slots, lane):
            return None
        try:
            await self._wait_for_room()
            if fetch.is_withdrawn:
                slots.release()
                return None
            work = partial(self._reader.read_in_thread, fetch.request, outcome.progress(), lane)
            reading = asyncio.get_running_loop().run_in_executor(lane.read, work)
        except BaseException:
            slots.release()
            raise
        # The slot is the thread's: it holds the bytes even when nobody waits for them any more.
        reading.add_done_callback(lambda _: slots.release())
        try:
            async with asyncio.timeout(limits.COLD_READ_MS_MAX / 1000):
                return await asyncio.shield(reading)
        except TimeoutError:
            lane.late_reads += 1
            reading.add_done_callback(partial(_come_back, lane))
            late.append(reading)
            return None


async def _acquire(slots: asyncio.Semaphore, lane: DirectoryLane) -> bool:
    """Take a slot, however long others use them for reads that do come back."""
    while True:
        try:
            async with asyncio.timeout(limits.COLD_READ_MS_MAX / 1000):
                return await slots.acquire()
        except TimeoutError:
            if lane.late_reads:
                return False


def _come_back(lane: DirectoryLane, reading: asyncio.Future[ReadOutcome]) -> None:
    lane.late_reads -= 1
    if not reading.cancelled():
        reading.exception()  # looked at: nobody else does


def _read_again(fetch: DelayedFetch, _: asyncio.Future[ReadOutcome]) -> None:
    fetch.complete()
