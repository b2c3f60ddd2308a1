"""Whether who is in sync has what is committed, at any time and not only in the end: any of them may lead next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from machines import NodeMachine
from world import World

from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.log.partition_log import PartitionLog
from barnabas.storage.replica.replica import Replica


class _Open(NamedTuple):
    """A replica whose log a living process has open."""

    node: NodeMachine
    replica: Replica
    log: PartitionLog

    def has(self, offset: int, epoch: int) -> bool:
        """Whether the record at `offset` is there that was written under `epoch`, and so all before it; or was
        deleted.

        A compacted log, where it was read anew or copied, knows none of the epochs whose records are all gone: what it
        has of `epoch` may be between an older and a later one. NO_EPOCH is one that nobody knows.
        """
        if offset < self.log.log_start_offset:
            return True
        if offset >= self.log.log_end_offset:
            return False
        known, entries = self.log.epochs.epoch_for_offset(offset), self.log.epochs.entries
        if known == epoch or not self.log.config.is_compacted:
            return known == epoch
        if epoch == NO_EPOCH or not entries:
            return True
        later = next((entry.epoch for entry in entries if entry.start_offset > offset), NO_EPOCH)
        return known < epoch <= later


class InSync:
    """Looks at all replicas of each partition at once."""

    def __init__(self, world: World, nodes: Sequence[NodeMachine]) -> None:
        self._world = world
        self._nodes = nodes

    def look(self) -> None:
        """For again and again.

        What is in sync is what the newest metadata say that a node has heard of. A process that may have lost records
        hears with its first metadata that it is in sync no more.
        """
        partitions: dict[tuple[bytes, int], list[_Open]] = defaultdict(list)
        for node in self._nodes:
            for place, replica in () if node.replicas is None else node.replicas.by_partition.items():
                if replica.log is not None and node.node_id in replica.record.replicas:
                    partitions[place].append(_Open(node, replica, replica.log))
        for replicas in partitions.values():
            self._look_at(replicas)

    def _look_at(self, replicas: Sequence[_Open]) -> None:
        record = max((each.replica.record for each in replicas), key=lambda each: each.partition_epoch)
        most = max(replicas, key=lambda each: each.replica.high_watermark)
        last = most.replica.high_watermark - 1
        if last < most.log.log_start_offset:
            return  # it is deleted
        epoch = most.log.epochs.epoch_for_offset(last)
        for each in replicas:
            if each.node.node_id in record.isr and not each.has(last, epoch):
                self._world.violate(
                    f"{each.replica.name}: {each.node.name} is in sync, and does not have the record at {last} of "
                    f"epoch {epoch}, which is committed as {most.node.name} knows; its log ends at "
                    f"{each.log.log_end_offset}"
                )
