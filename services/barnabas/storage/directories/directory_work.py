"""What has to be opened, created, deleted and set aside in one log directory, done in its threads.

Removals come before openings, so that a topic that is created again finds its name free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.log.checkpoints.stray import StrayKey
from barnabas.log.partition_log import PartitionLog
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.replica.replica import Replica


class Opened(NamedTuple):
    """A partition, its log or None when it cannot be opened, and the high watermark written down; or the path of
    another log directory, where it is to be opened."""

    replica: Replica
    log: PartitionLog | None
    high_watermark: int
    moved_to: str = ""


class DirectoryWork:
    """Owner of the lists of what is to be done in one log directory."""

    def __init__(
        self,
        lane: DirectoryLane,
        *,
        open_all: Callable[[str, Iterable[Replica]], list[Opened]],
        remove_all: Callable[[Iterable[Replica], Iterable[Replica], Iterable[StrayKey]], None],
        on_opened: Callable[[DirectoryLane, list[Opened]], None],
        on_set_aside: Callable[[], None],
    ) -> None:
        """`open_all` (given the directory's path) and `remove_all` (what is to be deleted, to be set aside, and to be
        deleted of what was set aside) are called in a thread, the others are not.
        """
        self.lane = lane
        self._open_all = open_all
        self._remove_all = remove_all
        self._on_opened = on_opened
        self._on_set_aside = on_set_aside
        self._to_open: dict[Replica, None] = {}
        self._to_delete: list[Replica] = []
        self._to_set_aside: list[Replica] = []
        self._strays_to_delete: list[StrayKey] = []
        self._is_removing = False
        self._opening = 0
        self._wake = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        """Whether every log that was asked for is open."""
        return not self._to_open and not self._opening

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be done, and nothing is being done."""
        return self.is_settled and not self._is_removing and not self._has_removals()

    def open(self, replica: Replica) -> None:
        """Open or create the partition's log soon."""
        self._to_open[replica] = None
        self._wake.set()

    def delete(self, replica: Replica) -> None:
        """Delete what the partition has on disk, and do not open it if that is still to come."""
        self._to_open.pop(replica, None)
        self._to_delete.append(replica)
        self._wake.set()

    def set_aside(self, replica: Replica) -> None:
        """Keep what the partition has on disk as a stray one, and do not open it if that is still to come."""
        self._to_open.pop(replica, None)
        self._to_set_aside.append(replica)
        self._wake.set()

    def delete_stray(self, stray: StrayKey) -> None:
        """Delete a partition that was set aside."""
        self._strays_to_delete.append(stray)
        self._wake.set()

    def _has_removals(self) -> bool:
        return bool(self._to_delete or self._to_set_aside or self._strays_to_delete)

    async def _do_removals(self) -> None:
        doomed, self._to_delete = self._to_delete, []
        aside, self._to_set_aside = self._to_set_aside, []
        strays, self._strays_to_delete = self._strays_to_delete, []
        self._is_removing = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.lane.opening, self._remove_all, doomed, aside, strays)
        self._is_removing = False
        if aside:
            self._on_set_aside()

    async def run(self) -> None:
        """Do what was asked for, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._has_removals() or self._to_open:
                if self._has_removals():
                    await self._do_removals()
                    continue
                batch = list(self._to_open)[: limits.OPEN_BATCH]
                for replica in batch:
                    del self._to_open[replica]
                self._opening = len(batch)
                opened = await loop.run_in_executor(self.lane.opening, self._open_all, self.lane.path, batch)
                self._opening = 0
                self._on_opened(self.lane, opened)
