"""Replicas whose logs cannot be used, as this node reports them to the controller (ReportReplicas).

A log may be damaged, its directory may be offline, its disk may have failed a sync, or take no more records
(`RefusingDisks`), or the log alone may take none (`RefusingLogs`). Where the partition has other replicas one of those
shall lead, and this one is not to be counted as in sync. So the controller hears of it, and hears again once the log
can be used. One that only takes no more records goes on where nobody in sync can take over: it is better than none.
What the controller took comes back with the metadata, in the partition's record; for as long as that says something
else than is so, it is told again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.kernel.logs import get_logger
from barnabas.messages.controller_pb2 import ReplicaReport
from barnabas.metadata.image import NO_LEADER
from barnabas.storage import limits

if TYPE_CHECKING:
    from barnabas.storage.replica.replica import Replica

log = get_logger("storage.replica_reports")

Tell = Callable[[Sequence[ReplicaReport]], Awaitable[str]]
"""Tells the controller; returns why it did not take it, or nothing. It may take the same twice."""


class ReplicaReports:
    """Owner of the list of replicas of which the metadata say something else than is so."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._untold: dict[Replica, None] = {}
        self._told: dict[Replica, None] = {}
        """Those that the controller has heard of, while the metadata do not show it yet."""
        self._wake = asyncio.Event()
        """Set when there is something untold."""

    def look_at(self, replica: Replica) -> None:
        """Its log has come to be usable or unusable, or there is another record of its partition."""
        if self._is_right(replica):
            self.on_left(replica)
        elif replica not in self._told:
            self._untold[replica] = None
            self._wake.set()

    def _is_right(self, replica: Replica) -> bool:
        """Whether nothing is to be told of it: nobody could take over from an only replica."""
        record = replica.record
        is_said = self._node_id in record.offline_replicas
        return replica.is_opening or self._is_unusable(replica) == is_said or len(record.replicas) <= 1

    def _is_unusable(self, replica: Replica) -> bool:
        """Whether the controller is to take its log for one that cannot be used."""
        if replica.is_offline or not replica.appending.is_handed_over:
            return replica.is_offline
        record = replica.record
        if record.leader == self._node_id:
            return len(record.isr) > 1
        return record.leader != NO_LEADER

    def on_left(self, replica: Replica) -> None:
        """The partition is no longer here."""
        self._untold.pop(replica, None)
        self._told.pop(replica, None)

    async def run(self, tell: Tell) -> None:
        """Tell the controller, until cancelled."""
        pause = limits.REPORT_RETRY_SECONDS_MIN
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._untold or self._told:
                if not self._untold:
                    await self._await_metadata()
                elif await self._tell(tell):
                    pause = limits.REPORT_RETRY_SECONDS_MIN
                else:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, limits.REPORT_RETRY_SECONDS_MAX)

    async def _await_metadata(self) -> None:
        """What they do not show in time is told again."""
        self._wake.clear()
        try:
            async with asyncio.timeout(limits.REPORT_SHOWN_SECONDS_MAX):
                await self._wake.wait()
        except TimeoutError:
            self._untold |= self._told
            self._told.clear()

    async def _tell(self, tell: Tell) -> bool:
        """One call; whether the controller took it."""
        told = {each: self._is_unusable(each) for each in list(self._untold)[: limits.REPORTS_PER_CALL]}
        refusal = await tell([_report(*each) for each in told.items()])
        if refusal:
            log.debug("the controller did not hear which replicas are offline", reason=refusal)
            return False
        for replica, is_offline in told.items():
            if replica in self._untold and self._is_unusable(replica) == is_offline:
                del self._untold[replica]
                self._told[replica] = None
        return True


def _report(replica: Replica, is_offline: bool) -> ReplicaReport:
    return ReplicaReport(
        topic_id=replica.topic_id,
        partition=replica.index,
        offline=is_offline,
        refuses_writes=is_offline and not replica.is_offline,
    )
