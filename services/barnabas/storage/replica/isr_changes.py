"""Other in-sync replicas, as leaders on this node propose them to the controller (AlterPartition, KIP-497).

One call is under way at a time, with all that is proposed by then. What the controller accepts comes back with the
metadata, which decide the proposal; until then the leader counts on neither outcome. A proposal without an answer is
sent again, for the controller takes the same one twice; one that it refuses because the leader is behind the metadata
is left to the newer record.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.logs import get_logger
from barnabas.links.errors import LinkError
from barnabas.messages.controller_pb2 import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
    IsrProposal,
    IsrResult,
)
from barnabas.storage import limits
from barnabas.storage.replica.leader_state import Proposal
from barnabas.storage.replica.replica import Replica

if TYPE_CHECKING:
    from barnabas.metadata.image import MetadataImage

log = get_logger("storage.isr")

Ask = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Asks the controller. Raises LinkError."""

_AGAIN: Final = int(ErrorCode.not_controller)
"""The controller is behind the leader: it is to be asked again."""
_INELIGIBLE: Final = int(ErrorCode.ineligible_replica)
"""A member may not be in sync now: the leader takes the proposal back."""


class IsrChanges:
    """Owner of the proposals of this node's leaders that the controller has not answered."""

    def __init__(self, node_id: int, image: Callable[[], MetadataImage]) -> None:
        """`image` gives the newest metadata."""
        self._node_id = node_id
        self._image = image
        self._proposed: dict[Replica, Proposal] = {}
        self._wake = asyncio.Event()
        self.failures = 0
        """Proposals that the controller refused."""

    @property
    def eligible(self) -> Mapping[int, int]:
        """The broker epoch of each node that may be in sync."""
        return self._image().eligible_epochs

    # -- what leads to a proposal -------------------------------------------------------------------------------

    def look_at(self, replica: Replica) -> None:
        """A follower may have come to be in sync: it has fetched, or the metadata have changed."""
        proposal = replica.wider_isr(self.eligible)
        if proposal is not None:
            self._propose(replica, proposal)

    def look_for_refusing_disks(self, replica: Replica) -> None:
        """A follower says that its disk takes nothing more: nobody waits until it has lagged for long enough."""
        self.look_for_laggards(replica, math.inf)

    async def watch(self, replicas: Callable[[], Iterable[Replica]], lag_ms_max: float) -> None:
        """Look for laggards twice in `lag_ms_max`, replica.lag.time.max.ms, but not all the time, until cancelled."""
        while True:
            await asyncio.sleep(max(lag_ms_max / 2000, limits.LAG_CHECK_SECONDS_MIN))
            for number, replica in enumerate(list(replicas())):
                if replica.leader is not None:
                    self.look_for_laggards(replica, lag_ms_max)
                if number % limits.LAG_CHECKS_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def look_for_laggards(self, replica: Replica, lag_ms_max: float) -> None:
        """Followers may have lagged for longer than `lag_ms_max`."""
        proposal = replica.narrower_isr(lag_ms_max, self.eligible)
        if proposal is not None:
            in_sync = [node for node, _ in proposal.isr]
            log.info("followers lag behind", partition=replica.name, in_sync=in_sync)
            self._propose(replica, proposal)

    def on_left(self, replica: Replica) -> None:
        """The partition is no longer here."""
        self._proposed.pop(replica, None)

    def _propose(self, replica: Replica, proposal: Proposal) -> None:
        self._proposed[replica] = proposal
        self._wake.set()

    # -- the controller -----------------------------------------------------------------------------------------

    async def run(self, ask: Ask) -> None:
        """Bring proposals to the controller, until cancelled."""
        pause = limits.ISR_RETRY_SECONDS_MIN
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._proposed:
                if await self._ask(ask):
                    pause = limits.ISR_RETRY_SECONDS_MIN
                    continue
                await asyncio.sleep(pause)
                pause = min(2 * pause, limits.ISR_RETRY_SECONDS_MAX)

    async def _ask(self, ask: Ask) -> bool:
        """One call with what is proposed; whether all of it was decided."""
        asked = dict(list(self._proposed.items())[: limits.ISR_CHANGES_PER_CALL])
        own = self._image().nodes.get(self._node_id)
        request = AlterPartitionRequest(
            node_id=self._node_id,
            node_epoch=-1 if own is None else own.node_epoch,
            partitions=[_message(replica, proposal) for replica, proposal in asked.items()],
        )
        try:
            async with asyncio.timeout(limits.ISR_CALL_SECONDS_MAX):
                response = await ask(request)
        except (LinkError, TimeoutError) as error:
            log.debug("the controller did not decide on in-sync replicas", reason=str(error))
            return False
        return self._on_answer(asked, response.results)

    def _on_answer(self, asked: Mapping[Replica, Proposal], results: Sequence[IsrResult]) -> bool:
        is_decided = True
        for (replica, proposal), result in zip(asked.items(), results, strict=True):
            if result.error_code == _AGAIN:
                is_decided = False
                continue
            if self._proposed.get(replica) == proposal:
                del self._proposed[replica]
            if result.error_code:
                self.failures += 1
                log.info(
                    "the controller keeps the in-sync replicas as they are",
                    partition=replica.name,
                    reason=ErrorCode(result.error_code).name,
                )
            is_as_before = result.partition.partition_epoch == proposal.partition_epoch
            if result.error_code == _INELIGIBLE or (not result.error_code and is_as_before):
                replica.on_proposal_refused(proposal)  # nothing has changed: no newer record will come
                self._propose_another(replica, proposal)
        return is_decided

    def _propose_another(self, replica: Replica, refused: Proposal) -> None:
        """A member may be another process by now, which has all there is: it fetches no more, so that nobody would look
        at it again. What would be refused as before waits until something changes.
        """
        proposal = replica.wider_isr(self.eligible)
        if proposal is None:
            return
        if proposal.isr == refused.isr:
            replica.on_proposal_refused(proposal)
        else:
            self._propose(replica, proposal)


def _message(replica: Replica, proposal: Proposal) -> IsrProposal:
    return IsrProposal(
        topic_id=replica.topic_id,
        partition=replica.index,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        isr=[IsrMember(node_id=node, broker_epoch=epoch) for node, epoch in proposal.isr],
    )
