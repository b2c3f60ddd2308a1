"""What the leader of a partition knows of its replicas, and what follows from it. Pure: no I/O, no clock of its own.

The high watermark is where every replica is that may be asked to lead next. That is not only the in-sync replicas as
the controller last told them: a change that the leader has proposed may hold there already, or may not yet, and an
answer may be late or lost. So it counts the *maximal* ISR: the committed one and whom a pending proposal adds; whom one
takes out counts until the controller has said so. It counts as well who has caught up and may soon be proposed, for a
follower that is always one fetch behind a busy leader would never get in otherwise (KAFKA-15021 says who may).

Kafka's `Partition`, `PartitionState` and `Replica` in one. Times are milliseconds of any one clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.messages.metadata_pb2 import PartitionRecord

UNKNOWN_OFFSET: Final = -1
UNKNOWN_EPOCH: Final = -1
LONG_AGO: Final = float("-inf")


class Proposal(NamedTuple):
    """What the controller is asked for (AlterPartition): other in-sync replicas under these epochs."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(node, broker epoch) of each; -1 where the leader knows none (KIP-903)."""


class Follower:
    """What the leader knows of one follower; owned by its `LeaderState`."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "disk_refuses",
        "fetched_ms",
        "has_deleted_records",
        "leader_end",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, caught_up_ms: float) -> None:
        self.log_start_offset = UNKNOWN_OFFSET
        self.has_deleted_records = False
        """Whether its log began before the leader's at its last fetch."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        self.caught_up_ms = caught_up_ms
        """When it last had all that the leader had."""
        self.fetched_ms = LONG_AGO
        self.leader_end = UNKNOWN_OFFSET
        """The leader's log end at its last fetch."""
        self.disk_refuses = False
        """Whether it says that its disk does not take what follows: it cannot catch up, whenever it last had all."""

    def on_fetch(self, offset: int, leader_end: int, broker_epoch: int, now_ms: float) -> None:
        """It has everything before `offset`, and fetches what follows."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end_offset = offset
        self.broker_epoch = broker_epoch
        self.leader_end = leader_end
        self.fetched_ms = now_ms


class LeaderState:
    """Owner of what one replica knows as the leader, for as long as it leads without a break.

    `eligible` is, wherever it is asked for, the broker epoch of each node that the metadata has as alive: registered,
    not fenced and not shutting down.
    """

    __slots__ = (
        "_caught_up",
        "_epoch_start",
        "_followers",
        "_isr",
        "_min_insync_replicas",
        "_node_id",
        "_offline",
        "_pending",
        "_record",
        "is_alone",
        "is_short",
    )

    def __init__(
        self,
        node_id: int,
        record: PartitionRecord,
        *,
        log_end_offset: int,
        min_insync_replicas: int,
        now_ms: float,
    ) -> None:
        """The replica `node_id` comes to lead, by `record`."""
        self._node_id = node_id
        self._min_insync_replicas = min_insync_replicas
        self._followers: dict[int, Follower] = {}
        self._isr: frozenset[int] = frozenset()
        """The committed one: as the controller last said."""
        self._offline: frozenset[int] = frozenset()
        """Replicas that cannot use their logs, as the controller says: none of them may come to be in sync."""
        self._pending: frozenset[int] | None = None
        """The one that is proposed."""
        self._caught_up: set[int] = set()
        """Followers outside the ISR that the high watermark waits for."""
        self.is_alone = False
        """Whether the high watermark follows this replica's log alone."""
        self.is_short = False
        """Whether acks=all is refused, and the high watermark stays: fewer are in sync than the settings ask for, or
        than the controller went by when it left replicas eligible that are not in sync (KIP-966).
        """
        self.begin_epoch(record, log_end_offset=log_end_offset, now_ms=now_ms)

    # -- what the controller and the settings say ----------------------------------------------------------------

    def begin_epoch(self, record: PartitionRecord, *, log_end_offset: int, now_ms: float) -> None:
        """A leader epoch of this replica begins at `log_end_offset`; it may have led in the one before as well.

        What followers said counts for the leader epoch in which they said it, and under each they say it anew: metadata
        may come without what was in between. Another one may have led then, and had a follower take back what it had;
        or one was no replica any more, and is one again: the same process, whose log was deleted.
        """
        self._epoch_start = log_end_offset
        self._followers.clear()
        self._caught_up.clear()
        self._take(record, caught_up_ms=now_ms)

    def on_truncated(self, log_end_offset: int) -> None:
        """The log ends here, by what this replica began to do as a follower: its epoch begins no later."""
        self._epoch_start = min(self._epoch_start, log_end_offset)

    def on_taken_back(self, log_end_offset: int) -> None:
        """What this replica began to take back as a follower is gone: followers who had it, as this one did when they
        said so, have nothing of what is written in its place. They are told so, and say anew what they have.
        """
        for follower in self._followers.values():
            follower.log_end_offset = min(follower.log_end_offset, log_end_offset)

    def on_record(self, record: PartitionRecord) -> None:
        """The controller has changed something else than the leader epoch: what was proposed is decided by that.

        A record that is known, or older than what is, decides nothing: the controller may yet accept the proposal.
        """
        if record.partition_epoch > self._record.partition_epoch:
            self._take(record, caught_up_ms=LONG_AGO)

    def _take(self, record: PartitionRecord, *, caught_up_ms: float) -> None:
        self._record = record
        others = [node for node in record.replicas if node != self._node_id]
        self._isr = frozenset(record.isr)
        self._offline = frozenset(record.offline_replicas)
        self._pending = None
        known, self._followers = self._followers, {}
        for node in others:
            self._followers[node] = follower = known.get(node) or Follower(LONG_AGO)
            if node in self._isr:
                follower.caught_up_ms = max(follower.caught_up_ms, caught_up_ms)
        self._caught_up &= self._followers.keys() - self._isr - self._offline
        self._look()

    def set_min_insync_replicas(self, count: int) -> None:
        """min.insync.replicas is `count` from now on."""
        self._min_insync_replicas = count
        self._look()

    def _look(self) -> None:
        """What of it appends ask for, worked out once."""
        # An eligible replica may lead because nothing was committed since it left. A setting may reach this node later
        # than the change of the ISR that goes by it does, so the record counts as well.
        self.is_short = len(self._isr) < self.needed or bool(self._record.eligible_leader_replicas)
        self.is_alone = not self.is_short and not self._caught_up and self._maximal <= {self._node_id}

    @property
    def outsiders(self) -> list[int]:
        """The followers that are not in sync, while nothing is proposed."""
        return (
            [] if self._pending is not None else [node for node in self._followers if node not in self._isr]
        )

    @property
    def epoch_start(self) -> int:
        """Where the leader epoch began: a high watermark before it may be behind what was known earlier (KIP-207)."""
        return self._epoch_start

    @property
    def in_sync(self) -> int:
        """How many replicas are in sync, as the controller last said."""
        return len(self._isr)

    @property
    def needed(self) -> int:
        """How many have to be; a topic with fewer replicas than the setting asks for needs all of them.

        Those that a reassignment is adding come to be in sync by its end, and count from then on.
        """
        return min(self._min_insync_replicas, len(self._record.replicas) - len(self._record.adding_replicas))

    @property
    def _maximal(self) -> frozenset[int]:
        return self._isr if self._pending is None else self._isr | self._pending

    def waits_for(self, node: int) -> bool:
        """Whether the high watermark waits for the follower."""
        return node in self._maximal or node in self._caught_up

    # -- the high watermark --------------------------------------------------------------------------------------

    def replicated(self, log_end_offset: int) -> int:
        """Up to where everybody has the log who has to, of which this replica has (durably) `log_end_offset`.

        The high watermark never goes back, so it is the larger of the two. While `is_short` it does not move: else
        records that no in-sync replica but this one has would count as committed (KAFKA-15583).
        """
        if self.is_short:
            return UNKNOWN_OFFSET
        offset = log_end_offset
        for node in self._maximal | self._caught_up:
            if node != self._node_id:
                follower = self._followers.get(node)
                offset = min(offset, UNKNOWN_OFFSET if follower is None else follower.log_end_offset)
        return offset

    def low_watermark(self, log_start_offset: int, eligible: Mapping[int, int]) -> int:
        """Before which offset nobody has records who may come to lead; this replica's log begins at
        `log_start_offset`. -1 while it is not known of all.

        Who is not there gets in sync before it leads, and not before it has heard where the log begins; but the
        controller may elect one that is eligible (KIP-966) as it comes back, with what it has.
        """
        candidates = eligible.keys() - self._offline | set(self._record.eligible_leader_replicas)
        others = (self._followers[node].log_start_offset for node in self._followers.keys() & candidates)
        return min(log_start_offset, min(others, default=log_start_offset))

    # -- followers -----------------------------------------------------------------------------------------------

    def on_fetch(
        self,
        node: int,
        offset: int,
        *,
        log_start_offset: int,
        leader_start_offset: int,
        log_end_offset: int,
        broker_epoch: int,
        eligible: Mapping[int, int],
        now_ms: float,
        disk_refuses: bool = False,
    ) -> bool:
        """`node` has everything from `log_start_offset` to before `offset`, where it fetches; False if the fetch is
        to be refused. The leader's log begins at `leader_start_offset`, and ends at `log_end_offset`.

        That is one by nobody who has a replica, and one by a process that was since replaced: what it had may be gone
        with it (KAFKA-15221).
        """
        follower = self._followers.get(node)
        if follower is None or broker_epoch < eligible.get(node, broker_epoch):
            return False
        follower.log_start_offset = log_start_offset
        follower.has_deleted_records = log_start_offset < leader_start_offset
        follower.on_fetch(offset, log_end_offset, broker_epoch, now_ms)
        follower.disk_refuses = disk_refuses
        if disk_refuses and node in self._caught_up:
            self._caught_up.discard(node)
            self._look()
        if node not in self._maximal and follower.caught_up_ms == now_ms and self._may_join(node, eligible):
            self._caught_up.add(node)
            self._look()
        return True

    def on_gone(self, node: int) -> None:
        """The follower's stream has ended: it is nobody to take into the ISR before it fetches again."""
        follower = self._followers.get(node)
        if follower is not None:
            follower.broker_epoch = UNKNOWN_EPOCH
            self._caught_up.discard(node)
            self._look()

    def _may_join(self, node: int, eligible: Mapping[int, int]) -> bool:
        """Neither one whose disk refuses, nor one that would show what is deleted if it were elected now: it is told,
        and fetches again.
        """
        follower = self._followers[node]
        return (
            node not in self._offline
            and eligible.get(node) == follower.broker_epoch
            and not follower.has_deleted_records
            and not follower.disk_refuses
        )

    def readable_from(self, offset: int, log_end_offset: int) -> Iterator[tuple[int, int, float]]:
        """(node, its log end, when it last had everything) of each in-sync follower that has a stream, and `offset`."""
        for node in self._isr:
            follower = self._followers.get(node)
            if (
                follower is not None
                and follower.broker_epoch != UNKNOWN_EPOCH
                and follower.log_start_offset <= offset <= follower.log_end_offset
            ):
                has_all = follower.log_end_offset >= log_end_offset  # it need not fetch again to be so
                yield node, follower.log_end_offset, math.inf if has_all else follower.caught_up_ms

    # -- other in-sync replicas ----------------------------------------------------------------------------------

    def expand_by_any(self, high_watermark: int, eligible: Mapping[int, int]) -> Proposal | None:
        """Propose to take the first follower into the ISR that has what it takes."""
        for node in self.outsiders:
            proposal = self.expand(node, high_watermark=high_watermark, eligible=eligible)
            if proposal is not None:
                return proposal
        return None

    def expand(self, node: int, *, high_watermark: int, eligible: Mapping[int, int]) -> Proposal | None:
        """Propose to take `node` into the ISR, if it has what it takes; for after each of its fetches, and whenever
        something else changed, for one that has everything fetches only once.

        It must have all that is committed, also by leaders before this one: they may have known of a higher watermark,
        but of nothing after this leader epoch began (KAFKA-7128).
        """
        follower = self._followers.get(node)
        if (
            follower is None
            or self._pending is not None
            or node in self._isr
            or not self._may_join(node, eligible)
            or follower.log_end_offset < max(high_watermark, self._epoch_start)
        ):
            return None
        return self._propose(self._isr | {node}, eligible)

    def note_caught_up(self, log_end_offset: int, now_ms: float) -> bool:
        """Followers that have all there is are caught up as of now; returns whether all are, and nobody out of sync is
        waited for: then `shrink` has nothing to do. For now and then, as most partitions have nothing new.
        """
        for follower in self._followers.values():
            if follower.log_end_offset != log_end_offset:
                return False
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)  # it need not fetch again to be so
        return not self._caught_up

    def shrink(
        self, *, log_end_offset: int, lag_ms_max: float, eligible: Mapping[int, int], now_ms: float
    ) -> Proposal | None:
        """Propose to take those out of the ISR who have lagged for longer than `lag_ms_max`, or whose disk refuses.

        For now and then, and when a node is fenced: the high watermark waits no longer for who cannot join.
        """
        lagging = set()
        for node, follower in self._followers.items():
            if follower.log_end_offset == log_end_offset:
                follower.caught_up_ms = max(follower.caught_up_ms, now_ms)  # it need not fetch again to be so
            elif follower.disk_refuses or now_ms - follower.caught_up_ms > lag_ms_max:
                lagging.add(node)
        gone = {node for node in self._caught_up if not self._may_join(node, eligible)}
        if not self._caught_up.isdisjoint(lagging | gone):
            self._caught_up -= lagging | gone
            self._look()
        if self._pending is not None or self._isr.isdisjoint(lagging):
            return None
        return self._propose(self._isr - lagging, eligible)

    def _propose(self, isr: frozenset[int], eligible: Mapping[int, int]) -> Proposal:
        self._pending = isr
        self._caught_up -= isr
        self._look()
        own = eligible.get(self._node_id, UNKNOWN_EPOCH)
        members = (
            (node, own if node == self._node_id else self._followers[node].broker_epoch)
            for node in sorted(isr)
        )
        return Proposal(self._record.leader_epoch, self._record.partition_epoch, tuple(members))

    def on_refused(self, proposal: Proposal) -> None:
        """The controller has refused `proposal` for what its members are, and so will not take it later either.

        An answer to an older one changes nothing.
        """
        if self._pending is not None and proposal.partition_epoch == self._record.partition_epoch:
            self._pending = None
            self._look()
