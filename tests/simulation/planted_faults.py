"""Faults that are planted into the code, to see that the simulation finds them.

Each is what somebody could break without noticing. It is kept as what it replaces, not as a diff, so that it breaks
loudly where the code it is about has moved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from planted_in_brokers import by_the_leader_alone
from planted_in_compaction import all_that_is_written, not_even_the_last, tombstones_go_at_once
from planted_in_groups import IN_GROUPS
from planted_in_membership import (
    by_its_name,
    counted_as_in_sync,
    goes_by_what_was_said_before,
    nothing_is_removed,
    only_what_is_new,
    sometimes_behind_the_next,
    what_was_copied_before,
)
from planted_in_transactions import IN_TRANSACTIONS

from barnabas.controller import writer
from barnabas.controller.core import in_sync, nodes
from barnabas.controller.core.in_sync import UNKNOWN_BROKER_EPOCH
from barnabas.controller.core.partition_change import PartitionChange
from barnabas.controller.fanout import Receiver
from barnabas.controller.store.protocol import Compare, KeyAbsent, Store
from barnabas.controller.whole_decisions import PlannedDecision
from barnabas.coordinator.runtime import topic_log
from barnabas.gateway.clients.connection import Connection
from barnabas.gateway.clients.fetch_sessions import FetchSession
from barnabas.gateway.clients.sequence_gaps import SequenceGaps
from barnabas.gateway.handlers import produce
from barnabas.host import local_link
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.memory_files import MemoryFiles
from barnabas.log.appender import LogAppender
from barnabas.log.cleaning.batch_filter import BatchFilter
from barnabas.log.moving.future_log import FutureLog
from barnabas.log.moving.settling import Settling
from barnabas.log.opening import loader
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendInfo
from barnabas.log.producers.producer_state import ProducerState
from barnabas.log.segments import scan
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.messages.controller_pb2 import IsrProposal
from barnabas.metadata.image import NO_LEADER
from barnabas.metadata.producer_ids import ProducerIds
from barnabas.storage.directories.disk_refusals import DiskRefusals
from barnabas.storage.fetching import reading
from barnabas.storage.handlers.append import AppendHandler
from barnabas.storage.handlers.append_operation import AppendOperation
from barnabas.storage.replica.appending import Appending
from barnabas.storage.replica.coordinator_claim import CoordinatorClaim
from barnabas.storage.replica.durability import Durability
from barnabas.storage.replica.following import Following
from barnabas.storage.replica.leader_state import LeaderState
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas
from barnabas.storage.upkeep import cleaning


class Plant(NamedTuple):
    """What is replaced, and by what."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    """From what was there to what is there instead."""
    seed: int
    """One that finds it."""
    replication_factor: int = 1
    finds: str = ""
    """What a violation has to say for it to be found: other violations are by chance."""
    also: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = ()
    """What else is replaced: some of what can go wrong is kept from it in two places."""

    def is_found_by(self, violations: Iterable[str]) -> bool:
        """Not by what breaks because the code that it replaces takes other arguments now."""
        return any(self.finds in each and "TypeError" not in each for each in violations)


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


def _as_if_alone(_: Any) -> Any:
    return property(lambda self: self.leader is not None and self._durability is not None)


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


def _whoever_has_a_replica(_: Any) -> Any:
    def instead(self: PartitionChange) -> int:
        able = [replica for replica in self.replicas if self._may_lead(replica)]
        leader = self.partition.leader if self.partition.leader in able else next(iter(able), NO_LEADER)
        if leader != NO_LEADER and leader not in self.isr:
            self.isr = [*self.isr, leader]
        return leader

    return instead


def _under_the_same_epoch(record: Any) -> Any:
    def instead(self: PartitionChange, *arguments: Any) -> Any:
        changed = record(self, *arguments)
        if changed is not None and self.partition.leader_epoch > 0:
            changed.leader_epoch = self.partition.leader_epoch
        return changed

    return instead


def _as_clean(after_node_restarted: Any) -> Any:
    def instead(partition: Any, restart: Any, terms: Any) -> Any:
        return after_node_restarted(partition, restart._replace(is_clean=True), terms)

    return instead


def _whatever_may_be_lost(find_eligible: Any) -> Any:
    def instead(self: PartitionChange) -> None:
        self.distrusted = ()
        find_eligible(self)

    return instead


def _for_ever(find_eligible: Any) -> Any:
    """Whoever once had all that was committed, however much has been since."""

    def instead(self: PartitionChange) -> None:
        find_eligible(self)
        had = [*self._isr_before, *self._eligible_before]
        self._eligible = [each for each in self.replicas if each in had and each not in self.isr]

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


def _only_the_proposed(_: Any) -> Any:
    def instead(self: LeaderState) -> frozenset[int]:
        return self._isr if self._pending is None else self._pending

    return property(instead)


def _also_below_min_isr(replicated: Any) -> Any:
    def instead(self: LeaderState, log_end_offset: int) -> int:
        is_short, self.is_short = self.is_short, False
        try:
            return int(replicated(self, log_end_offset))
        finally:
            self.is_short = is_short

    return instead


def _whoever_decides(decide: Any) -> Any:
    async def instead(store: Store, _: Compare, planned: PlannedDecision) -> int:
        return int(await decide(store, KeyAbsent("nobody"), planned))

    return instead


def _of_whichever_process(decided: Any) -> Any:
    def instead(image: Any, sender: int, known: Any, proposal: IsrProposal) -> Any:
        for member in proposal.isr:
            member.broker_epoch = UNKNOWN_BROKER_EPOCH
        return decided(image, sender, known, proposal)

    return instead


def _at_once_when_repeated(appended: Any) -> Any:
    """What is in the log already needs no wait, one might think."""

    def instead(self: Any, number: int, replica: Replica, info: AppendInfo) -> Any:
        return appended(self, number, replica, info._replace(last_offset=-1) if info.duplicate else info)

    return instead


def _under_the_last_epoch(append: Any) -> Any:
    """Whatever epoch the log had last is written on."""

    def instead(self: LogAppender, records: Any, leader_epoch: int, **options: Any) -> Any:
        last = self._state.epochs.latest_epoch
        return append(self, records, leader_epoch if last < 0 else last, **options)

    return instead


def _still_wait(_: Any) -> Any:
    def instead(self: Replica, error_code: int) -> None:
        self.appending.withdraw_all(error_code)

    return instead


def _all_that_is_there(_: Any) -> Any:
    def instead(replica: Replica, opened: PartitionLog) -> tuple[int, int, int]:
        return opened.log_end_offset, opened.log_end_offset, opened.log_start_offset

    return instead


def _leads_or_not(client_code: Any) -> Any:
    def instead(code: int) -> ErrorCode:
        return ErrorCode.none if code == ErrorCode.not_leader_or_follower else client_code(code)

    return instead


def _never_refused(_: Any) -> Any:
    return lambda *_, **__: None


def _of_any_epoch(check: Any) -> Any:
    """One might think that the epoch is for nothing: who claims it, and which process, is checked by the metadata."""

    def instead(self: CoordinatorClaim, partition: Any, *, internal: bool) -> None:
        claim = dataclasses.replace(self, coordinator_epoch=partition.coordinator_epoch)
        check(claim, partition, internal=internal)

    return instead


def _the_first_again(allocate: Any) -> Any:
    async def instead(self: ProducerIds) -> int:
        producer_id = int(await allocate(self))
        self._present = range(producer_id, self._present.stop)
        return producer_id

    return instead


def _whoever_is_done(send_answers: Any) -> Any:
    """Answers leave as they come, though clients tell them apart by their order."""

    def instead(self: Connection) -> None:
        self._slots = deque(sorted(self._slots, key=lambda slot: not slot.is_done))
        send_answers(self)

    return instead


OWNER_KNOWS_LESS: Final = "owns the group and knows that"
"""What is said where a coordinator does not know all commits that were acknowledged."""

PLANTED: Final[dict[str, Plant]] = {
    "acknowledge-without-writing": Plant(SegmentFile, "write", _sometimes_not_written, 0),
    "skip-crc-on-recovery": Plant(scan, "crc32c", lambda _: lambda _data: _AlwaysRight(), 407),
    "forget-producers-at-restart": Plant(loader, "_producer_state_at", lambda _: _no_producers, 18),
    "acknowledge-before-sync": Plant(
        Durability, "acknowledgeable", lambda _: lambda _self, end_offset: end_offset, 0
    ),
    "skip-data-sync": Plant(SegmentFile, "sync", lambda _: lambda _self: None, 0),
    "skip-directory-sync": Plant(MemoryFiles, "fsync", _only_data_is_synced, 383),
    "lose-a-delta-of-metadata": Plant(Receiver, "push", _sometimes_not_told, 1),
    "acknowledge-at-once-before-replicas": Plant(Replica, "acknowledges_at_once", _as_if_alone, 0, 3),
    "acknowledge-before-replicas": Plant(
        LeaderState, "replicated", lambda _: lambda _self, log_end_offset: log_end_offset, 1, 3
    ),
    "truncate-to-the-high-watermark": Plant(Following, "begin", _truncates_to_the_high_watermark, 8, 3),
    "never-say-where-logs-part": Plant(
        PartitionLog,
        "end_offset_for_epoch",
        lambda _: lambda self, leader_epoch: (leader_epoch, self.log_end_offset),
        4,
        3,
    ),
    "forget-producers-at-failover": Plant(LogAppender, "append_as_follower", _keeps_no_producers, 253, 3),
    "elect-out-of-sync": Plant(PartitionChange, "_clean_leader", _whoever_has_a_replica, 0, 3),
    "reuse-a-leader-epoch": Plant(PartitionChange, "_record", _under_the_same_epoch, 0, 3),
    "count-an-unclean-restart-as-clean": Plant(nodes, "after_node_restarted", _as_clean, 28, 3),
    "elect-the-eligible-after-an-unclean-restart": Plant(
        PartitionChange, "_find_eligible", _whatever_may_be_lost, 28, 3
    ),
    "eligible-for-ever": Plant(PartitionChange, "_find_eligible", _for_ever, 6, 3),
    "join-without-catching-up": Plant(LeaderState, "expand", _whoever_fetches, 13, 3),
    "count-only-the-proposed-isr": Plant(LeaderState, "_maximal", _only_the_proposed, 4, 3),
    "high-watermark-moves-below-min-isr": Plant(LeaderState, "replicated", _also_below_min_isr, 1, 3),
    "deposed-controller-writes": Plant(writer, "decide", _whoever_decides, 16, 3),
    "former-incarnation-joins": Plant(
        in_sync,
        "_decided",
        _of_whichever_process,
        26,
        3,
        also=((LeaderState, "_may_join", lambda _: lambda _self, _node, _eligible: True),),
    ),
    "acknowledge-what-is-repeated": Plant(AppendOperation, "_appended", _at_once_when_repeated, 5, 3),
    "ignore-the-leader-epoch-of-an-append": Plant(
        LogAppender,
        "append_as_leader",
        _under_the_last_epoch,
        0,
        3,
        also=(
            (LogAppender, "append_checked", _under_the_last_epoch),
            (Appending, "begin_epoch", lambda _: lambda _self, _leader_epoch: None),
        ),
    ),
    "acknowledge-what-others-decided": Plant(
        Replica, "_fail_appends", _still_wait, 34, 3, finds="was acknowledged to"
    ),
    "read-above-the-high-watermark": Plant(reading, "_ends", _all_that_is_there, 0, 3),
    "answer-a-commit-before-it-is-replicated": Plant(topic_log, "ALL_REPLICAS", lambda _: 1, 6, 3),
    "broker-answers-a-commit-before-it-is-replicated": Plant(
        local_link, "_as_request", by_the_leader_alone, 85, 3, finds=OWNER_KNOWS_LESS
    ),
    "ignore-the-coordinator-epoch": Plant(
        CoordinatorClaim, "check_owner", _of_any_epoch, 14, finds="is refused with unknown_server_error"
    ),
    "former-coordinator-writes": Plant(
        CoordinatorClaim,
        "check_owner",
        _never_refused,
        11,
        finds=OWNER_KNOWS_LESS,
        # What it could write all the same would not be acknowledged.
        also=((AppendOperation, "_code_of_former_owner", lambda _: lambda _self, _number, _replica: 0),),
    ),
    "write-wherever-the-log-ends": Plant(
        CoordinatorClaim, "check_log_end", _never_refused, 168, finds=OWNER_KNOWS_LESS
    ),
    # Each of the two keeps out what comes from a former coordinator when the next one has written.
    "take-what-a-former-coordinator-wrote": Plant(
        CoordinatorClaim,
        "check_owner",
        _never_refused,
        168,
        finds=OWNER_KNOWS_LESS,
        also=((CoordinatorClaim, "check_log_end", _never_refused),),
    ),
    "gateway-takes-a-refusal-for-an-answer": Plant(produce, "client_code", _leads_or_not, 0, 3),
    "gateway-forgets-what-it-refused": Plant(
        SequenceGaps,
        "is_behind",
        lambda _: lambda _self, _produce, _refused=(), **_: False,
        43,
        3,
        # What is not refused at once is told to the leader, which would refuse it.
        also=((SequenceGaps, "behind", lambda _: lambda _self, _produce, _refused=(): frozenset()),),
    ),
    "gateway-hands-out-producer-ids-twice": Plant(ProducerIds, "allocate", _the_first_again, 0, 1),
    "gateway-reorders-what-it-answers": Plant(Connection, "_send_answers", _whoever_is_done, 0, 3),
    "tell-an-old-high-watermark": Plant(
        Replica, "is_high_watermark_known", lambda _: property(lambda _self: True), 26, 3
    ),
    "go-by-what-followers-said-before": Plant(
        LeaderState, "begin_epoch", goes_by_what_was_said_before, 12, 3
    ),
    "count-what-is-taken-back": Plant(LeaderState, "on_taken_back", _never_refused, 188, 3),
    "count-who-is-being-added-as-in-sync": Plant(
        PartitionChange, "_finish_reassignment", counted_as_in_sync, 13, 3
    ),
    "keep-what-went-elsewhere": Plant(Replicas, "_remove", nothing_is_removed, 17, 3, finds="on its disk"),
    "know-topics-by-their-names": Plant(Replicas, "_follow", by_its_name, 47, 3),
    "append-behind-the-next": Plant(AppendHandler, "handle", sometimes_behind_the_next, 13, 3),
    "session-keeps-its-first-offsets": Plant(FetchSession, "update", only_what_is_new, 3, 3),
    "move-without-the-last-records": Plant(FutureLog, "complete", what_was_copied_before, 53, 3),
    "keep-a-directory-that-refuses": Plant(
        DiskRefusals,
        "on_refusal",
        lambda _: lambda _self, _now: False,
        44,
        3,
        finds="although its disk refuses",
    ),
    "keep-what-a-move-has-left": Plant(Settling, "_is_found", lambda _: lambda *_: False, 2, 3),
    "compact-tombstones-at-once": Plant(BatchFilter, "_stays", tombstones_go_at_once, 4),
    "compact-the-last-of-a-key": Plant(BatchFilter, "_stays", not_even_the_last, 4),
    "compact-what-is-not-committed": Plant(cleaning, "measure", all_that_is_written, 106, 3),
    **{name: Plant(*each) for name, each in (IN_TRANSACTIONS | IN_GROUPS).items()},
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The code has this fault while the context is open; none for an empty name."""
    if not name:
        yield
        return
    plant = PLANTED[name]
    with contextlib.ExitStack() as replaced:
        for owner, attribute, make in ((plant.owner, plant.name, plant.make), *plant.also):
            real = vars(owner)[attribute]
            setattr(owner, attribute, make(real))
            replaced.callback(setattr, owner, attribute, real)
        yield
