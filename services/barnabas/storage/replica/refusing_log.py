"""One replica's log that cannot be written although its disk takes what else is written to it.

Its directory was renamed or unmounted, something else stands where its next file is to be, or the file system is
damaged there. Nothing else in the log directory suffers, and nothing mends it but somebody who looks. So the service's
log says it, rarely, and a log that refuses several times in a row is given up: another replica in sync is to lead
(`RefusingLogs`). It goes on where there is none, for what is in it can be read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from barnabas.kernel.clock import machine_seconds
from barnabas.kernel.logs import get_logger
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.disk_refusals import DiskRefusals

if TYPE_CHECKING:
    from barnabas.storage.replica.replica import Replica

log = get_logger("storage.refusing_log")


class RefusingLog:
    """Owner of how often in a row the log of one replica was refused for a reason of its own."""

    __slots__ = ("_lane", "_replica", "refusals")

    def __init__(self, replica: Replica, lane: DirectoryLane) -> None:
        """`lane` is the way to the log's disk."""
        self._replica = replica
        self._lane = lane
        self.refusals = DiskRefusals(seconds_max=math.inf)

    @property
    def hands_over(self) -> bool:
        """Whether another replica is about to lead."""
        return self.refusals.is_given_up and self.refusals.hands_over(machine_seconds())

    def on_refusal(self, reason: str) -> None:
        """It could not be written."""
        replica, lane = self._replica, self._lane
        lane.lines.error(
            "cannot append to one partition, its disk takes what else is written: look at its directory",
            replica.name,
            partition=replica.name,
            log_dir=lane.path,
            reason=reason,
        )
        if self.refusals.on_refusal(machine_seconds()):
            lane.log_given_up.set()
            log.error(
                "a partition's log is given up: another replica is to lead, if one is in sync",
                partition=replica.name,
                in_sync=list(replica.record.isr),
                reason=reason,
            )

    @property
    def is_to_be_probed(self) -> bool:
        """Whether it is given up, and has refused nothing for a while; a follower may only rest between two tries."""
        return self.refusals.is_quiet(machine_seconds()) and not self._replica.following.disk_refuses

    def on_probe(self) -> bool:
        """A file could be written where the log is; whether the log is taken back by that."""
        is_back = self.refusals.on_probe(machine_seconds())
        if is_back:
            log.info(
                "a partition's log is taken back: its directory can be written", partition=self._replica.name
            )
        return is_back
