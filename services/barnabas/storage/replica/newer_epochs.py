"""Logs that have seen newer leader epochs than the metadata gives out.

That is so after the metadata store was restored from a backup that is older than the last elections. A leader under an
old epoch appends nothing, for epochs rise in a log; so the node tells the controller what its logs have seen, the
controller gives those partitions epochs above it, and the node leads under them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from barnabas.kernel.logs import get_logger
from barnabas.metadata.leaders import LEADER_EPOCH_MAX
from barnabas.rpc.v1.controller_pb2 import SeenLeaderEpoch
from barnabas.storage import limits
from barnabas.storage.replica.protocol_values import NO_EPOCH
from barnabas.storage.replica.replica import Replica

log = get_logger("storage.newer_epochs")

Tell = Callable[[Sequence[SeenLeaderEpoch]], Awaitable[str]]
"""Tells the controller; returns why it did not take it, or nothing. It may take the same twice."""


class NewerEpochs:
    """Owner of the list of partitions whose logs have seen newer leader epochs than the metadata."""

    def __init__(self) -> None:
        self._partitions: dict[Replica, None] = {}
        self._wake = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether every log may be appended to under the epoch that the metadata gives it."""
        return not self._partitions

    def on_followed(self, partition: Replica) -> None:
        """The partition has followed newer metadata, or its log was opened."""
        if partition.newer_epoch == NO_EPOCH:
            self._partitions.pop(partition, None)
        elif partition.newer_epoch <= LEADER_EPOCH_MAX:
            self._partitions[partition] = None
            self._wake.set()
        else:
            log.error(
                "a log has a leader epoch that cannot be right, and takes no records: its leader-epoch-checkpoint, or "
                "a batch at its end, is damaged",
                partition=partition.name,
                leader_epoch=partition.newer_epoch,
                leader_epoch_max=LEADER_EPOCH_MAX,
            )

    def on_left(self, partition: Replica) -> None:
        """The partition is no longer here."""
        self._partitions.pop(partition, None)

    async def run(self, tell: Tell) -> None:
        """Have the controller raise the epochs, until cancelled. What it did comes with the metadata."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            pause = limits.NEWER_EPOCHS_RETRY_SECONDS_MIN
            while self._partitions:
                log.warning(
                    "logs have seen newer leader epochs than the metadata, which seem to be restored from a backup: "
                    "the controller is asked to raise them",
                    partitions=len(self._partitions),
                )
                refusal = await self._tell_all(tell)
                if refusal:
                    log.warning("the controller did not raise leader epochs", reason=refusal)
                await asyncio.sleep(pause)
                pause = min(2 * pause, limits.NEWER_EPOCHS_RETRY_SECONDS_MAX)

    async def _tell_all(self, tell: Tell) -> str:
        partitions = list(self._partitions)
        for start in range(0, len(partitions), limits.NEWER_EPOCHS_PER_CALL):
            batch = partitions[start : start + limits.NEWER_EPOCHS_PER_CALL]
            refusal = await tell([_seen(partition) for partition in batch])
            if refusal:
                return refusal
        return ""


def _seen(partition: Replica) -> SeenLeaderEpoch:
    return SeenLeaderEpoch(
        topic_id=partition.topic_id, partition=partition.index, leader_epoch=partition.newer_epoch
    )
