"""Logs that have seen newer leader epochs than the metadata gives out.

That is so after the metadata store was restored from a backup that is older than the last elections. A leader under an
old epoch appends nothing, for epochs rise in a log; so the node tells the controller what its logs have seen, the
controller gives those partitions epochs above it, and the node leads under them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.kernel.logs import get_logger
from barnabas.messages.controller_pb2 import SeenLeaderEpoch
from barnabas.metadata.leaders import LEADER_EPOCH_MAX
from barnabas.storage import limits
from barnabas.storage.replica.replica import Replica

log = get_logger("storage.newer_epochs")

Tell = Callable[[Sequence[SeenLeaderEpoch]], Awaitable[str]]
"""Tells the controller; returns why it did not take it, or nothing. It may take the same twice."""


class NewerEpochs:
    """Owner of the list of partitions whose logs have seen newer leader epochs than the metadata."""

    def __init__(self) -> None:
        self._replicas: dict[Replica, None] = {}
        self._wake = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether every log may be appended to under the epoch that the metadata gives it."""
        return not self._replicas

    def on_followed(self, replica: Replica) -> None:
        """The partition has followed newer metadata, or its log was opened."""
        if replica.newer_epoch == NO_EPOCH:
            self._replicas.pop(replica, None)
        elif replica.newer_epoch <= LEADER_EPOCH_MAX:
            self._replicas[replica] = None
            self._wake.set()
        else:
            log.error(
                "a log has a leader epoch that cannot be right, and takes no records: its leader-epoch-checkpoint, or "
                "a batch at its end, is damaged",
                partition=replica.name,
                leader_epoch=replica.newer_epoch,
                leader_epoch_max=LEADER_EPOCH_MAX,
            )

    def on_left(self, replica: Replica) -> None:
        """The partition is no longer here."""
        self._replicas.pop(replica, None)

    async def run(self, tell: Tell) -> None:
        """Have the controller raise the epochs, until cancelled. What it did comes with the metadata."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            pause = limits.NEWER_EPOCHS_RETRY_SECONDS_MIN
            while self._replicas:
                log.warning(
                    "logs have seen newer leader epochs than the metadata, which seem to be restored from a backup: "
                    "the controller is asked to raise them",
                    partitions=len(self._replicas),
                )
                refusal = await self._tell_all(tell)
                if refusal:
                    log.warning("the controller did not raise leader epochs", reason=refusal)
                await asyncio.sleep(pause)
                pause = min(2 * pause, limits.NEWER_EPOCHS_RETRY_SECONDS_MAX)

    async def _tell_all(self, tell: Tell) -> str:
        replicas = list(self._replicas)
        for start in range(0, len(replicas), limits.NEWER_EPOCHS_PER_CALL):
            batch = replicas[start : start + limits.NEWER_EPOCHS_PER_CALL]
            refusal = await tell([_seen(replica) for replica in batch])
            if refusal:
                return refusal
        return ""


def _seen(replica: Replica) -> SeenLeaderEpoch:
    return SeenLeaderEpoch(
        topic_id=replica.topic_id, partition=replica.index, leader_epoch=replica.newer_epoch
    )
