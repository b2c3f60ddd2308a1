"""Every change of a partition, built in one place and in one order, which is Kafka's (KIP-966).

First a reassignment ends, if it can; then it is found who is *eligible* (has all that is committed without being in
sync), who leads, and under which epochs.

A leader commits nothing while fewer replicas are in sync than min.insync.replicas asks for. So who leaves the ISR when
too few remain still has all that was ever committed, and stays eligible until enough are in sync again, or until it
comes back as a process that may have lost records. The ISR may become empty. Where neither it nor the eligible replicas
have anybody, the *last known leader* may lead again by itself: as a rule it has more than any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass

from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import NO_LEADER


@dataclass(frozen=True, slots=True)
class ElectionTerms:
    """What changes of a topic's partitions go by. Settings are looked up where they are asked for, which is seldom."""

    eligible: Collection[int]
    """The nodes that may come to lead and be in sync."""
    min_in_sync: Callable[[], int]
    """min.insync.replicas of the topic."""
    is_unclean: Callable[[], bool]
    """Whether a replica that may lack committed records may lead where no other can."""
    came_back: Sequence[int] = ()
    """Nodes that came back a moment ago: they lead what no other can, the first of them first."""


class PartitionChange:
    """What a partition is to be; what is not said stays as it is. `build` decides on what follows from it."""

    __slots__ = (
        "_eligible",
        "_eligible_before",
        "_isr_before",
        "_last_known_before",
        "_moving_before",
        "_replicas_before",
        "adding",
        "distrusted",
        "isr",
        "lost_all",
        "offline",
        "partition",
        "prefers_first",
        "removing",
        "replicas",
        "restarted",
        "terms",
    )

    def __init__(self, partition: PartitionRecord, terms: ElectionTerms) -> None:
        # Lists of a message are slow to read: each is read once, and at most.
        self.partition = partition
        self.terms = terms
        self.isr = self._isr_before = partition.isr[:]
        self.replicas = self._replicas_before = partition.replicas[:]
        self.offline: list[int] = []
        self.adding: list[int] = []
        self.removing: list[int] = []
        if len(self.replicas) > 1:  # an only replica has none of them
            self.offline = partition.offline_replicas[:]
            self.adding = partition.adding_replicas[:]
            self.removing = partition.removing_replicas[:]
        self._moving_before = self.offline, self.adding, self.removing
        self.distrusted: Container[int] = ()
        """Nodes that may have lost records: they are not eligible any more."""
        self.lost_all: Container[int] = ()
        """Those of them that may have lost all: none of them leads as the last known leader."""
        self.restarted = NO_LEADER
        """The node that is a new process: where it goes on leading, the leader epoch tells the processes apart."""
        self.prefers_first = False
        """Whether the first replica shall lead, if it can, even if the present leader can too."""
        self._eligible: list[int] = []
        self._eligible_before = partition.eligible_leader_replicas[:]
        self._last_known_before = partition.last_known_eligible_leader_replicas[:]

    def leave(self, node_id: int) -> None:
        """The node is not in sync."""
        self.isr = [replica for replica in self.isr if replica != node_id]

    def build(self) -> PartitionRecord | None:
        """The partition changed, under new epochs; None when nothing changes."""
        if self.adding or self.removing:
            self._finish_reassignment()
        self._forget_offline()
        self._find_eligible()
        leader, heir = self._clean_leader(), NO_LEADER
        if leader == NO_LEADER:
            heir = self._last_known_leader()
            leader = self._unclean_leader(heir)
            if leader != NO_LEADER:
                self.isr, self._eligible = [leader], []
                self._on_elected()
        elif not self.isr:
            self.isr = [leader]
            self._eligible.remove(leader)
            self._on_elected()
        return self._record(leader, [heir] if leader == NO_LEADER and heir != NO_LEADER else [])

    def _finish_reassignment(self) -> None:
        """Those that it needs must be in sync, and one that stays must be able to lead: one that is stopping may be in
        sync.
        """
        target = [replica for replica in self.replicas if replica not in self.removing]
        isr = [replica for replica in target if replica in self.isr]
        needed = needed_to_finish(self.replicas, self.adding, self.removing)
        if set(needed) <= set(isr) and self.can_be_led_by(isr):
            self.replicas, self.isr = target, isr
            self.adding, self.removing = [], []

    def _on_elected(self) -> None:
        """Somebody came to be in sync by being elected. As the leader it may have nothing more to propose, so a
        reassignment that waited for it alone ends here, or never.
        """
        if self.adding or self.removing:
            self._finish_reassignment()
            self._forget_offline()
            self._eligible = [replica for replica in self._eligible if replica in self.replicas]
        if self._eligible and len(self.isr) >= self._needed():
            self._eligible = []

    def _forget_offline(self) -> None:
        """Nobody can take over from an only replica: its clients hear of it from its node."""
        if self.offline:
            self.offline = [node for node in self.offline if node in self.replicas and len(self.replicas) > 1]

    def _find_eligible(self) -> None:
        had_everything = [*self._isr_before, *self._eligible_before]
        candidates = [
            replica
            for replica in self.replicas
            if replica in had_everything and replica not in self.isr and replica not in self.distrusted
        ]
        if candidates and len(self.isr) < self._needed():
            self._eligible = candidates

    def _needed(self) -> int:
        """How many have to be in sync for the leader to commit anything; no leader reckons with fewer.

        Those that are being added are not missed yet: a partition that grows is written to as before.
        """
        count = len(self.replicas) - len(self.adding)
        return 1 if count == 1 else min(self.terms.min_in_sync(), count)

    def _clean_leader(self) -> int:
        """Who has all that is committed: the present leader, if it can, or the first in the order of replicas, where
        those who just came back stand last."""
        candidates = self.isr or self._eligible
        if not candidates:
            return NO_LEADER
        present = self.partition.leader
        first = self.replicas[0] if self.prefers_first else present
        came_back = self.terms.came_back
        replicas = sorted(self.replicas, key=_rank(came_back)) if came_back else self.replicas
        for replica in (first, present, *replicas):
            if replica in candidates and self._may_lead(replica):
                return replica
        # Who is stopping is no candidate, but goes on to lead what nobody else can.
        return present if present in self.isr and present not in self.offline else NO_LEADER

    def can_be_led_by(self, isr: Sequence[int]) -> bool:
        """Whether the partition has a leader at once if those alone are in sync."""
        return any(self._may_lead(replica) or replica == self.partition.leader for replica in isr)

    def _may_lead(self, replica: int) -> bool:
        return replica in self.terms.eligible and replica not in self.offline

    def _last_known_leader(self) -> int:
        """Who led last, as far as it is known, and still may have what it had."""
        known = self._last_known_before
        if not known and self.partition.leader != NO_LEADER:
            known = [self.partition.leader]
        elif not known:
            known = self._isr_before  # of a release that kept the last one in the ISR
        is_left = len(known) == 1 and known[0] in self.replicas and known[0] not in self.lost_all
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

    def _record(self, leader: int, last_known: list[int]) -> PartitionRecord | None:
        before = self.partition
        changed = PartitionRecord()
        changed.CopyFrom(before)
        is_new_epoch = leader != before.leader or (leader == self.restarted and leader != NO_LEADER)
        if self.replicas != self._replicas_before:
            changed.replicas[:] = self.replicas
            # Who leaves has its log deleted, and may come again: a leader counts on what it said for one epoch only.
            is_new_epoch = is_new_epoch or not set(self._replicas_before) <= set(self.replicas)
        if not _same(self.isr, self._isr_before):
            changed.isr[:] = self.isr
        if not _same(self._eligible, self._eligible_before):
            changed.eligible_leader_replicas[:] = self._eligible
        if last_known != self._last_known_before:
            changed.last_known_eligible_leader_replicas[:] = last_known
        if (self.offline, self.adding, self.removing) != self._moving_before:
            changed.offline_replicas[:] = self.offline
            changed.adding_replicas[:] = self.adding
            changed.removing_replicas[:] = self.removing
        if not is_new_epoch and changed == before:
            return None
        changed.leader = leader
        changed.leader_epoch += is_new_epoch
        changed.partition_epoch += 1
        return changed


def needed_to_finish(
    replicas: Sequence[int], adding: Sequence[int], removing: Sequence[int]
) -> Sequence[int]:
    """Which replicas have to be in sync before a reassignment ends: those that it adds, and where it leaves fewer than
    there were all that stay.
    """
    return adding if len(adding) >= len(removing) else [each for each in replicas if each not in removing]


def _rank(came_back: Sequence[int]) -> Callable[[int], int]:
    """0 for all others, then those who came back in their order."""
    ranks = {node: rank for rank, node in enumerate(came_back, start=1)}
    return lambda replica: ranks.get(replica, 0)


def _same(some: list[int], others: list[int]) -> bool:
    """Whether they are the same nodes, in whatever order."""
    return some == others or set(some) == set(others)
