"""Log directories whose disks refuse to write: others lead what is in them, and they come back when the disk does.

When a directory is given up (`DiskRefusals`), leaders in it that have others in sync take no more records for a moment,
so that those get all that was acknowledged, whatever the acks; then `ReplicaReports` tells of its replicas. As
followers they go on trying. Where nothing comes for them to try with, the directory is probed; once it is taken back,
the controller hears of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from barnabas.kernel.clock import Clock
from barnabas.kernel.files import Files
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.disk_probe import write_probe
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas


class RefusingDisks:
    """Looks after the log directories of one node; each at its own pace."""

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
                tasks.create_task(self._watch(lane), name="refusing disk")

    async def _watch(self, lane: DirectoryLane) -> None:
        while True:
            await lane.given_up.wait()
            await until_copied(lambda: self._replicas_in(lane))
            lane.refusals.is_handed_over = True
            self._look_at_replicas(lane)
            while lane.refusals.is_given_up:
                await self._clock.sleep(limits.PROBE_SECONDS)
                if lane.is_to_be_probed:
                    await self._probe(lane)
            self._look_at_replicas(lane)

    async def _probe(self, lane: DirectoryLane) -> None:
        """Try the disk; one that does not answer keeps its directory given up."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(lane.upkeep, partial(write_probe, self._files, lane.path))
        except OSError:
            return  # what it refuses the log has said already
        lane.on_probe()

    def _look_at_replicas(self, lane: DirectoryLane) -> None:
        for replica in self._replicas_in(lane):
            self._replicas.reports.look_at(replica)

    def _replicas_in(self, lane: DirectoryLane) -> list[Replica]:
        return [each for each in self._replicas.by_partition.values() if each.lane is lane]


async def until_copied(replicas: Callable[[], Iterable[Replica]]) -> None:
    """The others get a moment for what they do not have yet of `replicas`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + limits.HAND_OVER_COPY_SECONDS_MAX
    while loop.time() < until and not all(map(_is_copied, replicas())):
        await asyncio.sleep(limits.COPIED_CHECK_SECONDS)


def _is_copied(replica: Replica) -> bool:
    """Whether all in-sync replicas have what is in the log, or it is not for this node to say."""
    leader, opened = replica.leader, replica.log
    return (
        leader is None or opened is None or leader.is_short or replica.high_watermark >= opened.log_end_offset
    )
