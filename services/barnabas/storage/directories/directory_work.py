"""What has to be opened, created, deleted and set aside in one log directory, done in its threads.

Removals come before openings of the same name, so that a topic that is created again finds its name free; what is
opened for the first time comes before what is tried again. One thing is done after the other: no log is ever opened
twice at a time. A large topic is deleted bit by bit: others are opened meanwhile, and a node that stops leaves the rest
to its next start.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from barnabas.kernel.clock import Clock
from barnabas.log.checkpoints.stray import StrayKey
from barnabas.log.partition_log import PartitionLog
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.failed_openings import FailedOpenings, is_for_now
from barnabas.storage.replica.replica import Replica


class Opened(NamedTuple):
    """A replica, its log and the high watermark written down; or the path of another log directory, where it is to be
    opened; or why it cannot be opened."""

    replica: Replica
    log: PartitionLog | None = None
    high_watermark: int = 0
    moved_to: str = ""
    failure: Exception | None = None


class DirectoryWork:
    """Owner of the lists of what is to be done in one log directory."""

    def __init__(
        self,
        lane: DirectoryLane,
        clock: Clock,
        *,
        open_all: Callable[[str, Iterable[Replica]], list[Opened]],
        remove_all: Callable[[Iterable[Replica], Iterable[Replica], Mapping[StrayKey, int]], None],
        on_opened: Callable[[DirectoryLane, list[Opened]], None],
        on_set_aside: Callable[[], None],
    ) -> None:
        """`open_all` (given the directory's path) and `remove_all` (what is to be deleted, to be set aside, and to be
        deleted of what was set aside, if it has been so for so many ms) are called in a thread, the others are not.
        """
        self.lane = lane
        self._open_all = open_all
        self._remove_all = remove_all
        self._on_opened = on_opened
        self._on_set_aside = on_set_aside
        self._to_open: dict[Replica, None] = {}
        self._failed = FailedOpenings(lane.path, clock)
        self._to_delete: list[Replica] = []
        self._to_set_aside: list[Replica] = []
        self._strays_to_delete: dict[StrayKey, int] = {}
        """After how many ms of being set aside each is to go: 0 if its topic was deleted."""
        self._to_clear_up: list[Callable[[], None]] = []
        self._is_removing = False
        self._opening = 0
        """Logs that are being opened for the first time."""
        self._is_retrying = False
        self._wake = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        """Whether every log that was asked for is open, or could not be opened: trying again changes nothing of it."""
        return not self._to_open and not self._opening

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be done but for its time, and nothing is being done."""
        is_retrying = self._is_retrying or bool(self._failed.ready)
        return self.is_settled and not is_retrying and not self._is_removing and not self._has_removals()

    def open(self, replica: Replica) -> None:
        """Open or create the partition's log soon. If it was set aside, and its time is over, it stays all the same."""
        self._strays_to_delete.pop(StrayKey(uuid.UUID(bytes=replica.topic_id), replica.index), None)
        if replica.is_offline:
            self._failed.ready[replica] = None
        else:
            self._to_open[replica] = None
        self._wake.set()

    def on_opened(self, replica: Replica) -> None:
        """The partition's log is open."""
        self._failed.on_opened(replica)

    def on_open_failed(self, replica: Replica, error: Exception) -> None:
        """The partition's log could not be opened. Unless that needs somebody to look, it is tried again."""
        if is_for_now(error):
            self._failed.add(replica, str(error))
        else:
            self._failed.forget(replica)

    def try_again(self, replica: Replica) -> None:
        """If the partition's log is to be tried again, the time for it has come."""
        self._failed.hasten(replica)
        self._wake.set()

    def leave(self, replica: Replica) -> None:
        """Do not open the partition's log here if that is still to come."""
        self._to_open.pop(replica, None)
        self._failed.forget(replica)

    def delete(self, replica: Replica) -> None:
        """Delete what the partition has on disk, and do not open it if that is still to come."""
        self.leave(replica)
        self._to_delete.append(replica)
        self._wake.set()

    def set_aside(self, replica: Replica) -> None:
        """Keep what the partition has on disk as a stray one, and do not open it if that is still to come."""
        self.leave(replica)
        self._to_set_aside.append(replica)
        self._wake.set()

    def delete_stray(self, stray: StrayKey, grace_ms: int = 0) -> None:
        """Delete a partition that was set aside, if that was `grace_ms` ago or earlier."""
        self._strays_to_delete[stray] = min(grace_ms, self._strays_to_delete.get(stray, grace_ms))
        self._wake.set()

    def clear_up(self, work: Callable[[], None]) -> None:
        """Do `work`, which removes what something has left here, before anything that was asked for later is opened."""
        self._to_clear_up.append(work)
        self._wake.set()

    def _has_removals(self) -> bool:
        return bool(self._to_delete or self._to_set_aside or self._strays_to_delete or self._to_clear_up)

    async def _do_removals(self) -> None:
        """The next deletions; with the last of them what is to be set aside, for it may have the name of one."""
        doomed = self._to_delete[: limits.REMOVE_BATCH]
        del self._to_delete[: limits.REMOVE_BATCH]
        next_strays = list(islice(self._strays_to_delete, limits.REMOVE_BATCH))
        strays = {stray: self._strays_to_delete.pop(stray) for stray in next_strays}
        aside: list[Replica] = []
        if not self._to_delete:
            aside, self._to_set_aside = self._to_set_aside, []
        left, self._to_clear_up = self._to_clear_up, []
        self._is_removing = True
        loop = asyncio.get_running_loop()
        for work in left:
            await loop.run_in_executor(self.lane.opening, work)
        await loop.run_in_executor(self.lane.opening, self._remove_all, doomed, aside, strays)
        self._is_removing = False
        if aside:
            self._on_set_aside()

    async def run(self) -> None:
        """Do what was asked for, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._failed.run(self._wake.set), name="failed openings")
            tasks.create_task(self._work_off(), name="log directory")

    async def _work_off(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._has_removals() or self._to_open or self._failed.ready:
                if self._has_removals():
                    await self._do_removals()
                    await self._open_next()
                elif self._to_open:
                    await self._open_next()
                else:
                    await self._try_next_again()

    async def _open_next(self) -> None:
        """What has its name free."""
        if not self._to_open:
            return  # or each bit of a large topic's would look through all that are left of it
        taken = {(each.topic, each.index) for each in (*self._to_delete, *self._to_set_aside)}
        free = (each for each in self._to_open if (each.topic, each.index) not in taken)
        batch = list(islice(free, limits.OPEN_BATCH))
        if not batch:
            return
        for replica in batch:
            del self._to_open[replica]
        self._opening = len(batch)
        opened = await self._in_thread(batch)
        self._opening = 0
        self._on_opened(self.lane, opened)

    async def _try_next_again(self) -> None:
        """One at a time: what else is to be done must not wait for a disk that may fail each of them slowly."""
        replica = next(iter(self._failed.ready))
        del self._failed.ready[replica]
        self._is_retrying = True
        opened = await self._in_thread([replica])
        self._is_retrying = False
        self._on_opened(self.lane, opened)

    async def _in_thread(self, batch: Iterable[Replica]) -> list[Opened]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.lane.opening, self._open_all, self.lane.path, batch)
