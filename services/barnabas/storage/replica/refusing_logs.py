"""Logs that cannot be written although their disks can (`RefusingLog`): others lead these partitions, and only these.

As with a log directory that is given up (`RefusingDisks`): a leader that has others in sync takes no more records for a
moment, so that those get all that was acknowledged; then `ReplicaReports` tells of it. As a follower it goes on trying.
It is taken back when nothing was refused for a while, the log is in its place, and its directory can be written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from barnabas.kernel.clock import Clock
from barnabas.kernel.files import Files
from barnabas.log.partition_log import PartitionLog
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.disk_probe import write_probe
from barnabas.storage.replica.refusing_disks import until_copied
from barnabas.storage.replica.refusing_log import RefusingLog
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas


class RefusingLogs:
    """Looks after the logs of one node that are given up."""

    def __init__(
        self, replicas: Replicas, lanes: Mapping[str, DirectoryLane], clock: Clock, files: Files
    ) -> None:
        self._replicas = replicas
        self._lanes = lanes
        self._clock = clock
        self._files = files

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for lane in self._lanes.values():
                given_up: dict[Replica, RefusingLog] = {}
                some = asyncio.Event()
                tasks.create_task(self._hand_over(lane, given_up, some), name="refusing logs")
                tasks.create_task(self._take_back(lane, given_up, some), name="refusing logs' probes")

    async def _hand_over(
        self, lane: DirectoryLane, given_up: dict[Replica, RefusingLog], some: asyncio.Event
    ) -> None:
        while True:
            await lane.log_given_up.wait()
            lane.log_given_up.clear()
            new: dict[Replica, RefusingLog] = {}
            for replica in self._replicas.by_partition.values():
                refusing = replica.appending.refusing
                if replica.lane is not lane or refusing is None or not refusing.refusals.is_given_up:
                    continue
                if given_up.get(replica) is not refusing:
                    new[replica] = refusing
            await until_copied(new.keys)
            given_up |= new
            for replica, refusing in new.items():
                refusing.refusals.is_handed_over = True
                self._look_at(replica)
            some.set()

    async def _take_back(
        self, lane: DirectoryLane, given_up: dict[Replica, RefusingLog], some: asyncio.Event
    ) -> None:
        while True:
            await some.wait()
            some.clear()
            while given_up:
                await self._clock.sleep(limits.PROBE_SECONDS)
                for replica, refusing in list(given_up.items()):
                    if not await self._is_over(replica, refusing, lane):
                        continue
                    if given_up[replica] is refusing:  # else another log of it was given up meanwhile
                        del given_up[replica]
                    self._look_at(replica)

    async def _is_over(self, replica: Replica, refusing: RefusingLog, lane: DirectoryLane) -> bool:
        """Whether the log is taken back, or it is about another one by now. One whose disk does not answer is not."""
        opened = replica.log
        if opened is None or replica.appending.refusing is not refusing or not self._is_here(replica):
            return True
        if not refusing.is_to_be_probed:
            return False
        try:
            await asyncio.get_running_loop().run_in_executor(lane.upkeep, _probe, self._files, opened)
        except OSError:
            return False  # what it refuses the log has said already
        return refusing.on_probe()

    def _look_at(self, replica: Replica) -> None:
        if self._is_here(replica):
            self._replicas.reports.look_at(replica)

    def _is_here(self, replica: Replica) -> bool:
        return self._replicas.by_partition.get((replica.topic_id, replica.index)) is replica


def _probe(files: Files, opened: PartitionLog) -> None:
    """For a thread. Raises OSError."""
    opened.check_place()  # what can be written may be an empty directory that somebody made in its place
    write_probe(files, opened.directory)
