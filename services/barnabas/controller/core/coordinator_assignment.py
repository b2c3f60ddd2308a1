"""Which coordinator owns which partition of an internal topic: even, and moving as little as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from barnabas.messages.metadata_pb2 import PartitionRecord

NO_COORDINATOR = ""


def assign_owners(owners: Sequence[str], live: Collection[str], absent: Collection[str] = ()) -> list[str]:
    """The owner of each partition after those in `owners` (empty for none), given the live coordinators.

    Numbers of partitions differ by at most one. A partition moves only when its owner is gone or has more than
    its share. Without any live coordinator nobody owns anything.

    Those of the live ones that are `absent`, which not all may be, get no partition that they do not have: who would
    keeps what it has, and the others share the rest.
    """
    assert not live or set(live) - set(absent), "somebody is to have what nobody owns"
    left_alone: set[str] = set()
    while True:
        shared = [owner for owner in owners if owner not in left_alone]
        result = _shared(shared, set(live) - left_alone)
        before, after = Counter(shared), Counter(result)
        given_more = {name for name in absent if after[name] > before[name]}
        if not given_more:
            following = iter(result)
            return [owner if owner in left_alone else next(following) for owner in owners]
        left_alone |= given_more


def _shared(owners: Sequence[str], live: Collection[str]) -> list[str]:
    if not live:
        return [NO_COORDINATOR] * len(owners)
    counts = Counter(owner for owner in owners if owner in live)
    ranked = sorted(live, key=lambda name: (-counts[name], name))
    floor, extra = divmod(len(owners), len(ranked))
    room = {name: floor + (1 if rank < extra else 0) for rank, name in enumerate(ranked)}
    result = []
    for owner in owners:
        keeps = room.get(owner, 0) > 0
        if keeps:
            room[owner] -= 1
        result.append(owner if keeps else NO_COORDINATOR)
    for index, owner in enumerate(result):
        if owner == NO_COORDINATOR:
            emptiest = min(room, key=lambda name: (-room[name], name))
            room[emptiest] -= 1
            result[index] = emptiest
    return result


def owned_from_the_start(
    partitions: Sequence[PartitionRecord], live: Collection[str]
) -> list[PartitionRecord]:
    """The partitions of a new topic with their first owners."""
    counts: Counter[str] = Counter()
    owned = []
    for partition in partitions:
        owner = min(live, key=lambda name: (counts[name], name), default=NO_COORDINATOR)
        counts[owner] += 1
        changed = PartitionRecord()
        changed.CopyFrom(partition)
        changed.coordinator_id = owner
        owned.append(changed)
    return owned
