"""What holds in the end, and what holds always, whatever has failed in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from fault_plan import Plan
from history import History, Place
from in_sync_checks import InSync
from log_checks import Log, check_agreement, check_log
from machines import CoordinatingMachine, NodeMachine
from world import World

from barnabas.coordinator.groups.core.uncommitted import GroupOffsets
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.messages.storage_pb2 import AppendFrame
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage
from barnabas.records.batch import crc_is_valid, iterate_headers
from barnabas.records.record import decode_records
from barnabas.storage.replica.replica import Replica

LOOK_SECONDS: Final = 0.01


class KnowsCommits(Protocol):
    """What members of a group were told."""

    def on_known(self, owner: str, offset_of: Callable[[Place], int]) -> None:
        """What the coordinator that owns the group would tell now whoever asks."""


class Watch:
    """Looks at the nodes and coordinators again and again. Owner of who was seen to lead in which epoch."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[NodeMachine],
        coordinators: Mapping[str, CoordinatingMachine],
        group_histories: Mapping[str, KnowsCommits],
    ) -> None:
        """`coordinators` by their ids, and `group_histories` by those of groups."""
        self._world = world
        self._nodes = nodes
        self._coordinators = coordinators
        self._group_histories = group_histories
        self._leaders: dict[tuple[bytes, int, int], str] = {}
        self._starts: dict[Replica, int] = {}
        self._in_sync = InSync(world, nodes)

    async def run(self) -> None:
        while True:
            self.look()
            self._in_sync.look()
            self._look_at_group()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        for node in self._nodes:
            if node.replicas is None:
                continue
            for replica in node.replicas.by_partition.values():
                if replica.is_leader:
                    key = replica.topic_id, replica.index, replica.leader_epoch
                    known = self._leaders.setdefault(key, node.name)
                    if known != node.name:
                        self._world.violate(
                            f"{replica.name}: {known} and {node.name} both lead in epoch {replica.leader_epoch}"
                        )
                opened = replica.log
                if opened is None:
                    continue
                start = opened.log_start_offset
                if start < self._starts.get(replica, 0):
                    self._world.violate(
                        f"{replica.name} at {node.name}: the log began at {self._starts[replica]}, and at {start} now"
                    )
                if start:
                    self._starts[replica] = start
                if replica.high_watermark > opened.log_end_offset:
                    self._world.violate(
                        f"{replica.name} at {node.name}: the high watermark {replica.high_watermark} is above the log "
                        f"end {opened.log_end_offset}"
                    )

    def _look_at_group(self) -> None:
        """Who owns the groups, by the newest metadata that a node has, alone writes of them, and knows every commit."""
        replicas = (
            each for node in self._nodes if node.replicas for each in node.replicas.by_partition.values()
        )
        records = (each.record for each in replicas if each.topic == GROUP_METADATA_TOPIC)
        record = max(records, key=lambda each: each.partition_epoch, default=None)
        owner = self._coordinators.get(record.coordinator_id) if record is not None else None
        if record is None or owner is None or owner.coordinator is None:
            return
        runtime = owner.coordinator.partitions.runtime(record.partition)
        if runtime is None or not runtime.is_loaded or runtime.coordinator_epoch != record.coordinator_epoch:
            return
        for group, history in self._group_histories.items():
            history.on_known(owner.name, partial(_offset_of, runtime.shard.committed_offsets(group)))


def _offset_of(committed: GroupOffsets, place: Place) -> int:
    found = committed.get(place.topic, {}).get(place.partition)
    return 0 if found is None else found.offset


def describe_replicas(nodes: Sequence[NodeMachine]) -> Iterable[str]:
    """What each node has of each partition."""
    for node in nodes:
        for replica in node.replicas.by_partition.values() if node.replicas is not None else ():
            part = "leads" if replica.is_leader else f"does not lead (error {replica.error})"
            ends = (
                "no log"
                if replica.log is None
                else f"{replica.log.log_start_offset} to {replica.log.log_end_offset}"
            )
            yield (
                f"{replica.name} at {node.name}: {part} in epoch {replica.leader_epoch}, {ends}, high watermark "
                f"{replica.high_watermark}, ISR {list(replica.record.isr)}"
            )


def image_of(world: World) -> MetadataImage:
    """The metadata as they are stored."""
    assert world.quorum is not None
    snapshot = world.quorum.snapshot("")
    records = [
        MetadataRecord.FromString(entry.value)
        for key, entry in snapshot.entries.items()
        if key != "election" and not key.startswith("controllers/")
    ]
    return MetadataImage().apply(records, snapshot.revision)


def is_only_about(world: World, topic: str) -> Callable[[bytes], bool]:
    """Whether an append, as bytes, is to `topic` and to no other."""
    own = image_of(world).topics[topic].topic_id
    return lambda frame: (
        {each.topic_id for request in AppendFrame.FromString(frame).requests for each in request.partitions}
        == {own}
    )


def check_terms(world: World) -> None:
    """In all that was ever stored: one leader an epoch, and epochs that only rise."""
    leaders: dict[tuple[bytes, int, int], int] = {}
    epochs: dict[tuple[bytes, int], tuple[int, int]] = {}
    assert world.quorum is not None
    for changes in world.quorum.read_history(1, ""):
        for change in changes.changes:
            if change.value is None or not change.key.startswith("partition"):
                continue
            record = MetadataRecord.FromString(change.value).partition
            partition = record.topic_id, record.partition
            if record.leader >= 0:
                known = leaders.setdefault((*partition, record.leader_epoch), record.leader)
                if known != record.leader:
                    world.violate(f"epoch {record.leader_epoch} has the leaders {known} and {record.leader}")
            now = record.leader_epoch, record.partition_epoch
            before = epochs.get(partition, (-1, -1))
            if now < before:
                world.violate(f"partition {record.partition}: epochs went from {before} back to {now}")
            epochs[partition] = now


def read_log(world: World, node: str, replica: Replica) -> Log:
    """All records; each must be at its own place, whole, and behind the one before it."""
    opened = replica.log
    assert opened is not None, f"{replica.name} has no log"
    found: Log = {}
    offset = opened.log_start_offset
    while offset < opened.log_end_offset:
        data = bytes(opened.read(offset, 1_000_000))
        if not data:
            world.violate(f"{replica.name} at {node}: nothing can be read at {offset}")
            break
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size_in_bytes]
            if not crc_is_valid(batch):
                world.violate(f"{replica.name} at {node}: the batch at {header.base_offset} is damaged")
            for record in decode_records(batch):
                if record.offset < offset:
                    continue
                if record.offset != offset and not world.trace.is_gap(
                    replica.name, range(offset, record.offset)
                ):
                    world.violate(f"{replica.name} at {node}: offset {offset} is missing")
                assert record.value is not None
                found[record.offset] = record.value, header.partition_leader_epoch
                offset = record.offset + 1
    return found


def check_logs(
    world: World, plan: Plan, history: History, nodes: Sequence[NodeMachine], places: Iterable[Place]
) -> None:
    """Hold what clients were told against every in-sync replica."""
    image, by_id = image_of(world), {node.node_id: node for node in nodes}
    for place in places:
        record = image.topics[place.topic].partitions[place.partition]
        logs: dict[str, Log] = {}
        high_watermarks: dict[str, int] = {}
        starts: dict[str, int] = {}
        for node_id in record.isr:
            node = by_id[node_id]
            assert node.replicas is not None, f"{node.name} is up"
            replica = node.replicas.find(record.topic_id, place.partition)
            if replica is None or replica.log is None:
                world.violate(f"{place}: {node.name} is in sync and has no log")
                continue
            logs[node.name] = read_log(world, node.name, replica)
            high_watermarks[node.name] = replica.high_watermark
            starts[node.name] = replica.log.log_start_offset
        for name, log in logs.items():
            described = (
                f"{place} at {name} (ISR {list(record.isr)}, epoch {record.leader_epoch}, {len(log)} records)"
            )
            check_log(
                *(world, history, place, log, described),
                is_one_enough=plan.is_one_enough,
                start=starts[name],
            )
        offsets = range(max(starts.values(), default=0), min(high_watermarks.values(), default=0))
        check_agreement(world, place, logs, offsets)
