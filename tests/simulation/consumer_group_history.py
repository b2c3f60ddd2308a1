"""What members of a group that changes its protocol were told: who owns what, in which epoch, and what is committed.

A member owns a partition from when it is told so until it reads it no more, it is told that it is no member, or by its
own clock it was not heard of for its session timeout, or kept what it was to give up for its rebalance timeout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from history import Place
from machines import SESSION_MS
from world import World

SESSION_SECONDS: Final = SESSION_MS / 1000


@dataclass(eq=False, slots=True)
class Membership:
    """One member, from its first request until it leaves or is told that it is none."""

    member_id: str
    seat: str
    epoch: int = 0
    sure_epoch: int = 0
    """The newest that the log has: a generation of the classic protocol is written when it has its assignments."""
    owned: set[Place] = field(default_factory=set)
    until: float = 0.0
    """When its session ends by its own clock, or its time to give partitions up."""
    gives_up_by: float = math.inf
    """When it is out unless it has been heard to have given up what it was asked for."""
    unanswered: int = 0
    """Requests since the last answer, of which nobody knows what became."""
    is_over: bool = False

    def __str__(self) -> str:
        return f"{self.member_id} in epoch {self.epoch}"

    def is_alive(self, now: float) -> bool:
        return not self.is_over and now < self.until


@dataclass(eq=False, slots=True)
class Commit:
    """One of them, as it was sent."""

    member: Membership
    offsets: dict[Place, int]
    owners: dict[Place, Membership]
    """Who owned them then, where that is another member."""


@dataclass(slots=True)
class _Committed:
    """What is known of one partition."""

    offset: int = 0
    """The one that counts: the highest that was acknowledged, or what came behind it."""
    unknown: dict[int, Membership] = field(default_factory=dict)
    """Offsets whose commits were not acknowledged, and whose they are: each may be there now, or may come yet, while
    that member owns the partition."""


class ConsumerGroupHistory:
    """Owner of what the members of one group were told. Gives `Watch` what a coordinator has to know."""

    def __init__(
        self, world: World, coordinators: Callable[[], tuple[object, ...]], is_sure: Callable[[], bool]
    ) -> None:
        """`coordinators` says which take themselves for the group's at the moment, and have read its log; `is_sure`
        whether what the only one says of members is so.
        """
        self.coordinators = coordinators
        self.is_sure = is_sure
        self._world = world
        self._members: list[Membership] = []
        self._owners: dict[Place, Membership] = {}
        self._committed: dict[Place, _Committed] = {}

    @property
    def is_doubtful(self) -> bool:
        """Whether a former coordinator may answer. What it says of a member whom it knows is no word of the group's,
        and prolongs nothing, as in Kafka.
        """
        return len(self.coordinators()) > 1

    # -- membership ---------------------------------------------------------------------------------------------

    def begin(self, member_id: str, seat: str) -> Membership:
        """Somebody is about to join."""
        member = Membership(member_id, seat)
        self._members.append(member)
        return member

    def end(self, member: Membership) -> None:
        """It left, or was told that it is none."""
        member.is_over = True
        member.owned = set()

    def on_answer(
        self, member: Membership, sent_at: float, epoch: int, *, was_doubtful: bool, is_sure: bool = True
    ) -> None:
        """It was told that it is a member, in that epoch."""
        now = self._world.now
        if epoch < member.sure_epoch and not was_doubtful:
            self._world.violate(f"{member} was told that it is in epoch {epoch}")
        member.epoch = epoch
        if is_sure:
            member.sure_epoch = epoch
        member.unanswered = 0
        if was_doubtful:
            return
        member.until = min(sent_at + SESSION_SECONDS, member.gives_up_by)
        if member.is_alive(now):
            for place in sorted(member.owned):
                self._own(member, place)

    def newest_epoch(self) -> int:
        """Of all that are members now: the group has come so far."""
        return max((each.sure_epoch for each in self._alive()), default=0)

    def on_joined(self, member: Membership, newest: int) -> None:
        """It has joined, when others were in `newest`. Not for the classic protocol: who takes the last one's place in
        a group that is about to be rebalanced is told generation 0, as in Kafka."""
        if member.epoch < newest:
            self._world.violate(f"{member} has joined, others were in {newest} before")

    def is_deserved(self, member: Membership, *, was_doubtful: bool) -> bool:
        """Whether it may be told that it is no member, or not in this epoch: nor may the next coordinator know one of a
        classic generation that has not been shared out, for only then it is written.
        """
        is_unwritten = member.epoch > max(member.sure_epoch, self.newest_epoch())
        return was_doubtful or is_unwritten or member.unanswered > 0 or self._world.now >= member.until

    def on_assigned(self, member: Membership, places: Iterable[Place]) -> None:
        """It was told that these are its own, beside what it has not given up yet."""
        for place in places:
            if place not in member.owned:
                member.owned.add(place)
                if member.is_alive(self._world.now):
                    self._own(member, place)

    def on_asked_for(self, member: Membership, by: float) -> None:
        """It is to give something up, and to be heard of that until then."""
        member.gives_up_by = min(member.gives_up_by, by)
        member.until = min(member.until, member.gives_up_by)

    def on_given_up(self, member: Membership, places: Iterable[Place]) -> None:
        """It reads them no more."""
        member.owned.difference_update(places)

    def _alive(self) -> list[Membership]:
        self._members = [each for each in self._members if not each.is_over]
        return [each for each in self._members if each.is_alive(self._world.now)]

    def _own(self, member: Membership, place: Place) -> None:
        owner = self._owner(place)
        if owner is not None and owner is not member:
            self._world.violate(f"TWO OWNERS: {place} is {member}'s, and {owner}'s still")
        self._owners[place] = member

    def _owner(self, place: Place) -> Membership | None:
        owner = self._owners.get(place)
        owns = owner is not None and place in owner.owned and owner.is_alive(self._world.now)
        return owner if owns else None

    # -- offsets ------------------------------------------------------------------------------------------------

    def on_commit(self, member: Membership, offsets: Mapping[Place, int]) -> Commit:
        """A commit is on its way."""
        for place, offset in offsets.items():
            self._of(place).unknown[offset] = member
        owners = {place: owner for place in offsets if (owner := self._owner(place)) not in (None, member)}
        return Commit(member, dict(offsets), owners)

    def on_committed(self, commit: Commit, *, was_doubtful: bool) -> None:
        """It is acknowledged."""
        for place, offset in commit.offsets.items():
            if place in commit.owners and not was_doubtful:
                self._world.violate(
                    f"{commit.member} committed {offset} of {place}, {commit.owners[place]} owned it"
                )
            known = self._of(place)
            known.unknown.pop(offset, None)
            known.offset = max(known.offset, offset)

    def ask(self, places: Iterable[Place]) -> dict[Place, int]:
        """Somebody asks what is committed: what is known by now."""
        return {place: self._of(place).offset for place in places}

    def on_told(self, asked: Mapping[Place, int], told: Mapping[Place, int], member: Membership) -> None:
        """That is the answer."""
        for place, offset in told.items():
            known, acknowledged = self._of(place), asked[place]
            if offset < acknowledged and offset not in known.unknown:
                self._world.violate(
                    f"LOST: {member} was told that {offset} is committed of {place}, {acknowledged} was acknowledged"
                )
            if self._owner(place) is member:
                # What a former owner sent and has not come by now is refused.
                known.unknown = {each: owner for each, owner in known.unknown.items() if owner is member}
                if known.offset == acknowledged:
                    known.offset = offset

    def on_known(self, owner: str, offset_of: Callable[[Place], int]) -> None:
        """What the coordinator that owns the group would tell now whoever asks."""
        for place, known in self._committed.items():
            offset = offset_of(place)
            if offset < known.offset and offset not in known.unknown:
                self._world.violate(
                    f"LOST: {owner} owns the group and knows that {offset} is committed of {place}, {known.offset} "
                    f"was acknowledged"
                )

    def _of(self, place: Place) -> _Committed:
        return self._committed.setdefault(place, _Committed())
