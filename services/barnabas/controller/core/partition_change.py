"""Every change of a partition, built in one place and in one order, which is Kafka's (KIP-966).

First a reassignment ends, if it can; then it is found who is *eligible* (has all that is committed without being in
sync), who leads, and under which epochs.

A leader commits nothing while fewer replicas are in sync than min.insync.replicas asks for. So who leaves the ISR when
too few remain still has all that was ever committed, and stays eligible until enough are in sync again, or until it
comes back as a process that may have lost records. The ISR may become empty. Where neither it nor the eligible replicas
have anybody, the *last known leader* may lead again by itself: it has more than any other.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import NO_LEADER


@dataclass(frozen=True, slots=True)
class ElectionTerms:
    """What changes of a topic's partitions go by. Settings are looked up where they are asked for, which is seldom."""

    eligible: Container[int]
    """The nodes that may come to lead and be in sync."""
    min_in_sync: Callable[[], int]
    """min.insync.replicas of the topic."""
    is_unclean: Callable[[], bool]
    """Whether a replica that may lack committed records may lead where no other can."""


@dataclass(slots=True)
class PartitionChange:
    """What a partition is to be; what is not said stays as it is. `build` decides on what follows from it."""

    partition: PartitionRecord
    terms: ElectionTerms
    isr: Sequence[int] = field(init=False)
    offline: Sequence[int] = field(init=False)
    replicas: Sequence[int] = field(init=False)
    adding: Sequence[int] = field(init=False)
    removing: Sequence[int] = field(init=False)
    distrusted: Container[int] = ()
    """Nodes that may have lost records: they are not eligible any more."""
    emptied: Container[int] = ()
    """Those of them that may have lost all: none of them leads as the last known leader."""
    restarted: int = NO_LEADER
    """The node that is a new process: where it goes on leading, the leader epoch tells the processes apart."""
    prefers_first: bool = False
    """Whether the first replica shall lead, if it can, even if the present leader can too."""
    _eligible: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        partition = self.partition
        self.isr = partition.isr
        self.offline = partition.offline_replicas
        self.replicas = partition.replicas
        self.adding = partition.adding_replicas
        self.removing = partition.removing_replicas

    def build(self) -> PartitionRecord | None:
        """The partition changed, under new epochs; None when nothing changes."""
        self._finish_reassignment()
        self._find_eligible()
        leader = self._clean_leader()
        heir = self._last_known_leader()
        if leader == NO_LEADER:
            leader = self._unclean_leader(heir)
            if leader != NO_LEADER:
                self.isr, self._eligible = [leader], []
        elif not self.isr:
            self.isr = [leader]
            others = [replica for replica in self._eligible if replica != leader]
            self._eligible = others if len(self.isr) < self._needed() else []
        last_known = [heir] if leader == NO_LEADER and heir != NO_LEADER else []
        return self._record(leader, last_known)

    def _finish_reassignment(self) -> None:
        """All that it adds must be in sync, and where it leaves fewer replicas than there were, all that stay."""
        if not self.adding and not self.removing:
            return
        target = [replica for replica in self.replicas if replica not in self.removing]
        isr = [replica for replica in target if replica in self.isr]
        needed = target if len(self.adding) < len(self.removing) else self.adding
        if isr and set(needed) <= set(isr):
            self.replicas, self.isr = target, isr
            self.adding = self.removing = ()

    def _find_eligible(self) -> None:
        before = self.partition
        candidates = [
            replica
            for replica in self.replicas
            if replica not in self.isr
            and replica not in self.distrusted
            and (replica in before.isr or replica in before.eligible_leader_replicas)
        ]
        if candidates and len(self.isr) < self._needed():
            self._eligible = candidates

    def _needed(self) -> int:
        """How many have to be in sync for the leader to commit anything; leaders reckon the same."""
        count = len(self.replicas)
        return 1 if count == 1 else min(self.terms.min_in_sync(), count)

    def _clean_leader(self) -> int:
        """Who has all that is committed: the present leader, if it can, or the first in the order of replicas."""
        candidates = self.isr or self._eligible
        if not candidates:
            return NO_LEADER
        present = self.partition.leader
        first = self.replicas[0] if self.prefers_first else present
        for replica in (first, present, *self.replicas):
            if replica in candidates and self._may_lead(replica):
                return replica
        # Who is stopping is no candidate, but goes on to lead what nobody else can.
        return present if present in self.isr and present not in self.offline else NO_LEADER

    def _may_lead(self, replica: int) -> bool:
        return replica in self.terms.eligible and replica not in self.offline

    def _last_known_leader(self) -> int:
        """Who led last, as far as it is known, and still may have what it had."""
        before = self.partition
        known: Sequence[int] = before.last_known_eligible_leader_replicas
        if not known and before.leader != NO_LEADER:
            known = (before.leader,)
        elif not known and len(before.isr) == 1:
            known = before.isr  # of a release that kept the last one in the ISR
        is_left = len(known) == 1 and known[0] in self.replicas and known[0] not in self.emptied
        return known[0] if is_left else NO_LEADER

    def _unclean_leader(self, heir: int) -> int:
        """Who may lack committed records: the last known leader, or where that is allowed anyone."""
        if not self.isr and not self._eligible:
            if len(self.replicas) == 1:
                heir = self.replicas[0]  # nobody else can ever have anything
            if self._may_lead(heir):
                return heir
        if self.terms.is_unclean():
            return next((replica for replica in self.replicas if self._may_lead(replica)), NO_LEADER)
        return NO_LEADER

    def _record(self, leader: int, last_known: Sequence[int]) -> PartitionRecord | None:
        before = self.partition
        offline = [replica for replica in self.offline if replica in self.replicas]
        is_new_epoch = (
            leader != before.leader
            or leader == self.restarted != NO_LEADER
            or not set(before.replicas) <= set(self.replicas)
        )
        if (
            not is_new_epoch
            and _same(self.isr, before.isr)
            and _same(self._eligible, before.eligible_leader_replicas)
            and _same(last_known, before.last_known_eligible_leader_replicas)
            and _same(offline, before.offline_replicas)
            and list(self.replicas) == list(before.replicas)
            and _same(self.adding, before.adding_replicas)
            and _same(self.removing, before.removing_replicas)
        ):
            return None
        changed = PartitionRecord()
        changed.CopyFrom(before)
        changed.leader = leader
        changed.leader_epoch += is_new_epoch
        changed.partition_epoch += 1
        changed.replicas[:] = self.replicas
        changed.isr[:] = self.isr
        changed.eligible_leader_replicas[:] = self._eligible
        changed.last_known_eligible_leader_replicas[:] = last_known
        changed.offline_replicas[:] = offline
        changed.adding_replicas[:] = self.adding
        changed.removing_replicas[:] = self.removing
        return changed


def _same(some: Sequence[int], others: Sequence[int]) -> bool:
    """Whether they are the same nodes, in whatever order."""
    return len(some) == len(others) and set(some) == set(others)
