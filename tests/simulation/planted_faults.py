"""Faults that are planted into the code, to see that the simulation finds them.

Each is what somebody could break without noticing. It is kept as what it replaces, not as a diff, so that it breaks
loudly where the code it is about has moved.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from barnabas.controller.core import elections
from barnabas.controller.fanout import Receiver
from barnabas.kernel.memory_files import MemoryFiles
from barnabas.log.appender import LogAppender
from barnabas.log.opening import loader
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producers.producer_state import ProducerState
from barnabas.log.segments import scan
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.storage.replica.durability import Durability
from barnabas.storage.replica.following import Following
from barnabas.storage.replica.leader_state import LeaderState


class Plant(NamedTuple):
    """What is replaced, and by what."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    """From what was there to what is there instead."""
    seed: int
    """One that finds it."""
    replication_factor: int = 1


def _sometimes_not_written(write: Any) -> Any:
    chance = random.Random("not written")

    def instead(self: SegmentFile, parts: Any, position: int, length: int) -> None:
        if chance.random() < 0.02:
            parts = [bytes(length)]
        write(self, parts, position, length)

    return instead


def _sometimes_not_told(push: Any) -> Any:
    chance = random.Random("not told")

    def instead(self: Receiver, delta: Any) -> None:
        if delta.snapshot or chance.random() < 0.7:
            push(self, delta)

    return instead


class _AlwaysRight:
    """A checksum that is whatever it is held against."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> bool:
        return True


def _no_producers(*arguments: Any) -> tuple[ProducerState, int]:
    segments, end_offset = arguments[3], arguments[4]
    state = ProducerState(segments[0].base_offset)
    state.end_offset = end_offset
    return state, -1


def _only_data_is_synced(fsync: Any) -> Any:
    def instead(self: MemoryFiles, fd: int, /) -> None:
        if not self._open[fd].node.is_directory:
            fsync(self, fd)

    return instead


def _truncates_to_the_high_watermark(begin: Any) -> Any:
    """As Kafka did before KIP-101."""

    def instead(self: Following, leader: int, leader_epoch: int) -> None:
        replica, opened = self._replica, self._log
        assert opened is not None
        if replica.high_watermark < opened.log_end_offset:
            replica.on_truncating(replica.high_watermark)
            replica.on_truncated(opened.truncate_to(replica.high_watermark))
        begin(self, leader, leader_epoch)

    return instead


def _keeps_no_producers(append: Any) -> Any:
    def instead(self: LogAppender, *arguments: Any, **options: Any) -> Any:
        info = append(self, *arguments, **options)
        self._producers.state.clear(self._state.end[0])
        return info

    return instead


def _whoever_has_a_replica(elected: Any) -> Any:
    def instead(partition: Any, isr: Any, eligible: Any, is_unclean: Any) -> Any:
        return elected(partition, list(partition.replicas), eligible, is_unclean)

    return instead


def _under_the_same_epoch(changed_partition: Any) -> Any:
    def instead(partition: Any, *arguments: Any, **options: Any) -> Any:
        changed = changed_partition(partition, *arguments, **options)
        if changed is not None and partition.leader_epoch > 0:
            changed.leader_epoch = partition.leader_epoch
        return changed

    return instead


def _whoever_fetches(_: Any) -> Any:
    def instead(self: LeaderState, node: int, *, high_watermark: int, eligible: Any) -> Any:
        follower = self._followers.get(node)
        if (
            follower is None
            or self._pending is not None
            or node in self._isr
            or not self._may_join(node, eligible)
        ):
            return None
        return self._propose(self._isr | {node}, eligible)

    return instead


PLANTED: Final[dict[str, Plant]] = {
    "acknowledge-without-writing": Plant(SegmentFile, "write", _sometimes_not_written, 0),
    "skip-crc-on-recovery": Plant(scan, "crc32c", lambda _: lambda _data: _AlwaysRight(), 72),
    "forget-producers-at-restart": Plant(loader, "_producer_state_at", lambda _: _no_producers, 12),
    "acknowledge-before-sync": Plant(
        Durability, "acknowledgeable", lambda _: lambda _self, end_offset: end_offset, 0
    ),
    "skip-data-sync": Plant(SegmentFile, "sync", lambda _: lambda _self: None, 0),
    "skip-directory-sync": Plant(MemoryFiles, "fsync", _only_data_is_synced, 0),
    "lose-a-delta-of-metadata": Plant(Receiver, "push", _sometimes_not_told, 1),
    "acknowledge-before-replicas": Plant(
        LeaderState, "replicated", lambda _: lambda _self, log_end_offset: log_end_offset, 0, 3
    ),
    "truncate-to-the-high-watermark": Plant(Following, "begin", _truncates_to_the_high_watermark, 4, 3),
    "never-say-where-logs-part": Plant(
        PartitionLog,
        "end_offset_for_epoch",
        lambda _: lambda self, leader_epoch: (leader_epoch, self.log_end_offset),
        0,
        3,
    ),
    "forget-producers-at-failover": Plant(LogAppender, "append_as_follower", _keeps_no_producers, 5, 3),
    "elect-out-of-sync": Plant(elections, "elected", _whoever_has_a_replica, 5, 3),
    "reuse-a-leader-epoch": Plant(elections, "changed_partition", _under_the_same_epoch, 0, 3),
    "join-without-catching-up": Plant(LeaderState, "expand", _whoever_fetches, 33, 3),
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The code has this fault while the context is open; none for an empty name."""
    if not name:
        yield
        return
    plant = PLANTED[name]
    real = vars(plant.owner)[plant.name]
    setattr(plant.owner, plant.name, plant.make(real))
    try:
        yield
    finally:
        setattr(plant.owner, plant.name, real)
