"""What members of a group did and were told: owners of partitions, and how far was committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from history import Place
from world import World


@dataclass(slots=True, eq=False)
class Commit:
    """One of them, as it was sent."""

    generation: int
    newest: int
    """The newest generation that somebody was in by then."""
    offsets: dict[Place, int]


@dataclass(slots=True)
class _Committed:
    """What is known of one partition."""

    offset: int = 0
    """The highest that was acknowledged."""
    unknown: dict[int, int] = field(default_factory=dict)
    """Offsets whose commits were not acknowledged, and in which generation: each may be there now, or may come yet,
    while there is no newer one."""


class Asked(NamedTuple):
    """What was known when somebody asked what is committed."""

    newest: int
    """The newest generation that somebody was in."""
    acknowledged: dict[Place, int]


class GroupHistory:
    """Owner of what the members of one group were told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owners: dict[tuple[int, Place], str] = {}
        self._committed: dict[Place, _Committed] = {}
        self._newest = 0
        self.commits = 0

    def on_owned(self, generation: int, member_id: str, places: Iterable[Place]) -> None:
        """A member was told what it owns."""
        self._newest = max(self._newest, generation)
        for place in places:
            owner = self._owners.setdefault((generation, place), member_id)
            if owner != member_id:
                self._world.violate(
                    f"{place}: {owner} and {member_id} both own it in generation {generation}"
                )

    def on_commit(self, generation: int, offsets: Mapping[Place, int]) -> Commit:
        """A commit is on its way; until it is acknowledged nobody knows what becomes of it."""
        for place, offset in offsets.items():
            self._of(place).unknown[offset] = generation
        return Commit(generation, self._newest, dict(offsets))

    def on_committed(self, commit: Commit) -> None:
        """It is acknowledged."""
        self.commits += 1
        if commit.generation < commit.newest:
            self._world.violate(
                f"a member of generation {commit.generation} committed when there was generation {commit.newest}"
            )
        for place, offset in commit.offsets.items():
            known = self._of(place)
            known.unknown.pop(offset, None)
            known.offset = max(known.offset, offset)

    def ask(self, places: Iterable[Place]) -> Asked:
        """Somebody asks what is committed of them."""
        return Asked(self._newest, {place: self._of(place).offset for place in places})

    def on_told(self, asked: Asked, told: Mapping[Place, int], member: str) -> None:
        """That is the answer."""
        for place, offset in told.items():
            known, acknowledged = self._of(place), asked.acknowledged[place]
            if offset < acknowledged and offset not in known.unknown:
                self._world.violate(
                    f"LOST: {member} was told that {offset} is committed of {place}, {acknowledged} was acknowledged"
                )
            if offset in known.unknown and known.offset == acknowledged:
                known.offset = offset  # it came, behind a later one perhaps
            # What was sent before the newest generation, and has not come by now, is refused.
            known.unknown = {
                each: generation for each, generation in known.unknown.items() if generation >= asked.newest
            }

    def on_known(self, owner: str, offset_of: Callable[[Place], int]) -> None:
        """What the coordinator that owns the group would tell now whoever asks."""
        for place, known in self._committed.items():
            offset = offset_of(place)
            if offset < known.offset and offset not in known.unknown:
                self._world.violate(
                    f"LOST: {owner} owns the group and knows that {offset} is committed of {place}, {known.offset} was "
                    f"acknowledged"
                )

    def _of(self, place: Place) -> _Committed:
        return self._committed.setdefault(place, _Committed())
