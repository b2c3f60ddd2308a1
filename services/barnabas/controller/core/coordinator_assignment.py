"""Which coordinator owns which partition of an internal topic: even, moving as little as possible, and then near.

Near is the process that has a replica of the partition, its preferred leader's above all: where they share a broker
clients are sent to it, and a coordinator writes to its log, and is asked, by plain calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from barnabas.messages.metadata_pb2 import CoordinatorRecord, PartitionRecord
from barnabas.metadata.image import MetadataImage

NO_COORDINATOR = ""


class Candidate(NamedTuple):
    """A partition that a coordinator is to own."""

    owner: str
    """Until now; empty for none."""
    near: tuple[str, ...] = ()
    """Coordinators beside its replicas, that of the preferred leader first."""

    def distance_to(self, name: str) -> int:
        return self.near.index(name) if name in self.near else len(self.near)


def candidates(
    image: MetadataImage,
    partitions: Sequence[PartitionRecord],
    coordinators: Mapping[str, CoordinatorRecord],
) -> list[Candidate]:
    """The partitions with their owners until now, and with those of `coordinators` that are near."""
    at = {coordinator.address: name for name, coordinator in coordinators.items()}
    beside = {node_id: at[node.address] for node_id, node in image.nodes.items() if node.address in at}
    return [
        Candidate(
            partition.coordinator_id, tuple(beside[each] for each in partition.replicas if each in beside)
        )
        for partition in partitions
    ]


def assign_owners(
    partitions: Sequence[Candidate], live: Collection[str], absent: Collection[str] = ()
) -> list[str]:
    """The owner of each partition from now on, given the live coordinators.

    Numbers of partitions differ by at most one. A partition moves only when its owner is gone or has more than
    its share. Without any live coordinator nobody owns anything.

    Those of the live ones that are `absent`, which not all may be, get no partition that they do not have: who would
    keeps what it has, and the others share the rest.
    """
    assert not live or set(live) - set(absent), "somebody is to have what nobody owns"
    left_alone: set[str] = set()
    while True:
        shared = [partition for partition in partitions if partition.owner not in left_alone]
        result = _shared(shared, set(live) - left_alone)
        before, after = Counter(partition.owner for partition in shared), Counter(result)
        given_more = {name for name in absent if after[name] > before[name]}
        if not given_more:
            following = iter(result)
            return [
                partition.owner if partition.owner in left_alone else next(following)
                for partition in partitions
            ]
        left_alone |= given_more


def _shared(partitions: Sequence[Candidate], live: Collection[str]) -> list[str]:
    if not live:
        return [NO_COORDINATOR] * len(partitions)
    counts = Counter(partition.owner for partition in partitions if partition.owner in live)
    ranked = sorted(live, key=lambda name: (-counts[name], name))
    floor, extra = divmod(len(partitions), len(ranked))
    room = {name: floor + (1 if rank < extra else 0) for rank, name in enumerate(ranked)}
    receivers = [name for name in ranked if counts[name] < room[name]]

    def would_be_nearer(number: int) -> int:
        partition = partitions[number]
        elsewhere = min(map(partition.distance_to, receivers), default=len(partition.near))
        return partition.distance_to(partition.owner) - elsewhere

    result = [NO_COORDINATOR] * len(partitions)

    def give(number: int, name: str) -> None:
        result[number] = name
        room[name] -= 1

    # Who has too much gives up what comes nearest by it.
    for number in sorted(range(len(partitions)), key=would_be_nearer):
        owner = partitions[number].owner
        if room.get(owner, 0) > 0:
            give(number, owner)
    # What is nobody's goes to the nearest that has room: all that have it beside their leader first.
    for distance in range(max((len(partition.near) for partition in partitions), default=0)):
        for number, partition in enumerate(partitions):
            if result[number] == NO_COORDINATOR and distance < len(partition.near):
                nearest = partition.near[distance]
                if room.get(nearest, 0) > 0:
                    give(number, nearest)
    # The rest is near nobody who has room.
    for number, owner in enumerate(result):
        if owner == NO_COORDINATOR:
            give(number, min(room, key=lambda name: (-room[name], name)))
    return result


def with_first_owners(image: MetadataImage, partitions: Sequence[PartitionRecord]) -> list[PartitionRecord]:
    """The partitions of a new topic with their first owners."""
    coordinators = image.coordinators
    given = []
    for partition, owner in zip(
        partitions, assign_owners(candidates(image, partitions, coordinators), coordinators), strict=True
    ):
        changed = PartitionRecord()
        changed.CopyFrom(partition)
        changed.coordinator_id = owner
        given.append(changed)
    return given
