"""Tells partitions how transactions ended, until all of them know.

A parcel is what one process is to be told of one transaction: the partitions that it leads, or whose offsets it owns.
It is under way, or waits: for its place to have room, or to be tried again. When the metadata name another process for
a partition, the partition leaves its parcel for another one at once, and what the former process answers about it does
not count.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from barnabas.coordinator import limits
from barnabas.coordinator.transactions.core.completion import complete, left_to_mark, on_marked
from barnabas.coordinator.transactions.core.shard import EndedTransaction
from barnabas.coordinator.transactions.core.transaction import TopicPartition
from barnabas.coordinator.transactions.kind import TransactionPartitions, TransactionRuntime
from barnabas.coordinator.transactions.markers.marker import Marker, marker_of
from barnabas.coordinator.transactions.markers.metrics import MarkerCounts
from barnabas.coordinator.transactions.markers.places import NoPlace, Place, Places
from barnabas.coordinator.transactions.markers.post import Post
from barnabas.coordinator.transactions.markers.reactions import REACTIONS, Reaction
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.metadata.image import MetadataImage

log = get_logger("coordinator.markers")


@dataclass(slots=True, eq=False)
class _Marking:
    """One transaction that is being told, by the partition of the log under which it was given out."""

    runtime: TransactionRuntime
    ended: EndedTransaction
    marker: Marker
    began: float
    """By the event loop's time."""
    parcels: dict[_Parcel, None] = field(default_factory=dict)
    is_given_up: bool = False


@dataclass(slots=True, eq=False)
class _Parcel:
    marking: _Marking
    partitions: dict[TopicPartition, None]
    """Those of it that nobody else has been asked to tell."""
    place: Place | None
    """Where it goes, or was tried last; None where there is nobody."""
    pause_ms: int
    """Before the next try."""
    stop: Callable[[], object] = lambda: None
    """Ends what is under way of it."""


@dataclass(slots=True)
class _Room:
    """What one place is being told, and what waits for it."""

    unanswered: int = 0
    waiting: deque[_Parcel] = field(default_factory=deque)


class MarkerSender:
    """Owns the transactions that are being told, one entry for each that is decided and not complete.

    `partitions` give them out; which of a transaction's partitions are left to tell is the shard's to know.
    """

    def __init__(
        self,
        partitions: TransactionPartitions,
        places: Places,
        post: Post,
        counts: MarkerCounts,
        now: Callable[[], float],
        on_complete: Callable[[str], None],
    ) -> None:
        """`now` is the time, in seconds, by which lines of the log are spared. `on_complete` hears of each
        transactional id when its transaction's completion is decided."""
        self._partitions = partitions
        self._places = places
        self._post = post
        self._counts = counts
        self._lines = RareLines(log, now)
        self._on_complete = on_complete
        self._markings: dict[TransactionRuntime, dict[str, _Marking]] = {}
        self._by_topic: dict[str, dict[_Parcel, None]] = {}
        """Parcels that the metadata of a topic may move; not those that are given up."""
        self._rooms: dict[Place, _Room] = {}
        self._told_now = 0
        """Partitions that were told at once since the event loop last had a turn for their sake."""
        self._ready = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Tell until cancelled. Images may be given before and while it runs."""
        async with asyncio.TaskGroup() as self._group:
            try:
                while True:
                    await self._ready.wait()
                    self._ready.clear()
                    await self._begin_all()
            finally:
                for runtime in list(self._markings):
                    self._forget_all(runtime)

    def wake(self) -> None:
        """Some partition of the log has transactions to be told."""
        self._ready.set()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Forget what others own by now, and tell at once who leads or owns instead of those who were told."""
        for runtime in list(self._markings):
            if self._partitions.runtime(runtime.partition) is not runtime:
                self._forget_all(runtime)
        changed = _changed_topics(old, new)
        for name in list(self._by_topic) if changed is None else changed:
            for parcel in list(self._by_topic.get(name, ())):
                self._look_again(parcel, name)

    def waiting(self) -> Iterator[tuple[int, bool]]:
        """Of each transaction that is being told: for how many partitions there is nobody to tell, and whether it is
        given up."""
        for markings in self._markings.values():
            for marking in markings.values():
                nobody = (len(each.partitions) for each in marking.parcels if each.place is None)
                yield sum(nobody), marking.is_given_up

    async def send_once(self, marker: Marker, partitions: Sequence[TopicPartition]) -> list[ErrorCode]:
        """Tell each of `partitions` once, because somebody wants it, and return what became of it, in their order."""
        codes: dict[TopicPartition, ErrorCode] = {}
        groups: dict[Place, list[TopicPartition]] = {}
        for partition in dict.fromkeys(partitions):
            place = self._places.find(partition)
            if isinstance(place, Place):
                groups.setdefault(place, []).append(partition)
            else:
                is_there = place is NoPlace.NOBODY
                codes[partition] = (
                    ErrorCode.not_leader_or_follower if is_there else ErrorCode.unknown_topic_or_partition
                )
        sent = await asyncio.gather(
            *(self._post.send(place, marker, group) for place, group in groups.items())
        )
        for group, answers in zip(groups.values(), sent, strict=True):
            codes.update(zip(group, answers, strict=True))
        return [codes[each] for each in partitions]

    # -- transactions -----------------------------------------------------------------------------------------------

    async def _begin_all(self) -> None:
        """Begin what the partitions of the log give out."""
        begun = 0
        for runtime in self._partitions.runtimes():
            if not runtime.is_loaded:
                continue
            for ended in runtime.shard.take_ready_to_mark():
                self._begin(runtime, ended)
                begun += max(1, len(ended.partitions))
                if begun >= limits.MARKING_YIELD_PARTITIONS:
                    begun = 0
                    await asyncio.sleep(0)

    def _begin(self, runtime: TransactionRuntime, ended: EndedTransaction) -> None:
        if self._partitions.runtime(runtime.partition) is not runtime:
            return  # it was given up meanwhile
        try:
            left = left_to_mark(runtime.shard, ended)
        except KafkaError:  # it is being read again, and will give out what is left to tell
            return
        if left is None:
            return  # the log was read again, and who was being told before that has answered since
        known = self._markings.setdefault(runtime, {})
        former = known.get(ended.transactional_id)
        if former is not None:
            self._forget(former)  # the log was read again, and gives out all that it does not know to be told
        marker = marker_of(ended, runtime.coordinator_epoch)
        marking = _Marking(runtime, ended, marker, asyncio.get_running_loop().time())
        known[ended.transactional_id] = marking
        # Sets have no order that another run would have, too.
        self._dispatch(marking, sorted(left), limits.MARKER_RETRY_MS_MIN)
        if not left:
            self._told(marking, ())

    def _told(self, marking: _Marking, partitions: Iterable[TopicPartition]) -> None:
        """`partitions` know: complete the transaction if they were the last."""
        runtime, ended = marking.runtime, marking.ended
        try:
            is_complete = on_marked(runtime.shard, ended, partitions)
        except KafkaError:  # it is being read again, and will give out what is left to tell
            self._forget(marking)
            return
        if marking.parcels:
            return
        self._forget(marking)
        if is_complete:
            self._counts.on_complete(asyncio.get_running_loop().time() - marking.began)
            runtime.do(
                lambda shard, decision: complete(
                    shard, ended.transactional_id, ended.producer_id, ended.producer_epoch, decision
                )
            )
            self._on_complete(ended.transactional_id)

    def _give_up(self, marking: _Marking, partition: TopicPartition, code: ErrorCode) -> None:
        """Leave the transaction alone for a while: it is somebody else's by now, as we will hear; or an administrator
        wrote a marker in the name of a coordinator that is still to come, and somebody has to look."""
        log.warning(
            "a transaction's end is refused as old: nobody is told of it for now",
            transactional_id=marking.ended.transactional_id,
            producer_id=marking.marker.producer_id,
            producer_epoch=marking.marker.producer_epoch,
            coordinator_epoch=marking.marker.coordinator_epoch,
            partition=f"{partition.topic}-{partition.partition}",
            code=code.name.upper(),
            again_in_ms=limits.MARKER_GIVEN_UP_MS,
        )
        left = sorted(each for parcel in marking.parcels for each in parcel.partitions)
        for parcel in list(marking.parcels):
            self._end(parcel)
        marking.is_given_up = True
        parcel = _Parcel(marking, dict.fromkeys(left), None, limits.MARKER_RETRY_MS_MIN)
        marking.parcels[parcel] = None
        self._try_later(parcel, limits.MARKER_GIVEN_UP_MS)

    def _forget_all(self, runtime: TransactionRuntime) -> None:
        for marking in self._markings.pop(runtime).values():
            for parcel in list(marking.parcels):
                self._end(parcel)

    def _forget(self, marking: _Marking) -> None:
        for parcel in list(marking.parcels):
            self._end(parcel)
        known = self._markings.get(marking.runtime)
        if known is not None and known.get(marking.ended.transactional_id) is marking:
            del known[marking.ended.transactional_id]
            if not known:
                del self._markings[marking.runtime]

    # -- parcels ----------------------------------------------------------------------------------------------------

    def _dispatch(self, marking: _Marking, partitions: Iterable[TopicPartition], pause_ms: int) -> None:
        """Tell `partitions`, as far as there is somebody to tell; `pause_ms` is that before the next try."""
        gone: list[TopicPartition] = []
        told: list[TopicPartition] = []
        groups: dict[Place | None, dict[TopicPartition, None]] = {}
        for partition in partitions:
            place = self._places.find(partition)
            if place is NoPlace.GONE:
                gone.append(partition)
            else:
                groups.setdefault(place if isinstance(place, Place) else None, {})[partition] = None
        for to, group in groups.items():
            if to is not None:
                told += self._tell_at_once(marking, to, group)
                if not group:
                    continue
            parcel = self._open(marking, group, to, pause_ms)
            if to is None:
                self._try_later(parcel, pause_ms)
                continue
            room = self._rooms.setdefault(to, _Room())
            if room.unanswered < limits.MARKERS_UNANSWERED_MAX:
                self._send(parcel, to, room)
            else:
                room.waiting.append(parcel)
        if gone:
            self._counts.on_gone(len(gone))
        if gone or told:
            self._told(marking, gone + told)

    def _tell_at_once(
        self, marking: _Marking, place: Place, partitions: dict[TopicPartition, None]
    ) -> list[TopicPartition]:
        """Those of `partitions` that know now; they leave. Not more in a turn than could be on their way."""
        some = list(islice(partitions, max(0, limits.MARKERS_UNANSWERED_MAX - self._told_now)))
        try:
            told = self._post.send_at_once(place, marking.marker, some) if some else []
        except Exception:
            log.exception("a marker cannot be sent", place=place.id)
            return []
        self._told_now += len(told)
        if told and self._told_now >= limits.MARKERS_UNANSWERED_MAX:
            asyncio.get_running_loop().call_soon(self._on_turn)
        for each in told:
            del partitions[each]
            self._counts.on_answer(Reaction.TOLD)
        return told

    def _on_turn(self) -> None:
        self._told_now = 0

    def _open(
        self,
        marking: _Marking,
        partitions: dict[TopicPartition, None],
        place: Place | None,
        pause_ms: int,
    ) -> _Parcel:
        parcel = _Parcel(marking, partitions, place, pause_ms)
        marking.parcels[parcel] = None
        for topic, _ in partitions:
            self._by_topic.setdefault(topic, {})[parcel] = None
        return parcel

    def _close(self, parcel: _Parcel) -> None:
        """It is answered, or its time to wait is over: what is left of it goes on in others."""
        parcel.marking.parcels.pop(parcel, None)
        for topic, _ in parcel.partitions:
            parcels = self._by_topic.get(topic)
            if parcels is not None:
                parcels.pop(parcel, None)
                if not parcels:
                    del self._by_topic[topic]

    def _end(self, parcel: _Parcel) -> None:
        """Nobody wants to know what becomes of it."""
        self._close(parcel)
        parcel.partitions.clear()
        parcel.stop()

    def _try_later(self, parcel: _Parcel, pause_ms: int) -> None:
        loop = asyncio.get_running_loop()
        parcel.stop = loop.call_later(pause_ms / 1000, self._try_again, parcel).cancel

    def _try_again(self, parcel: _Parcel) -> None:
        marking = parcel.marking
        marking.is_given_up = False
        self._close(parcel)
        self._dispatch(marking, parcel.partitions, _doubled(parcel.pause_ms))

    def _send(self, parcel: _Parcel, place: Place, room: _Room) -> None:
        assert self._group is not None, "markers are sent once the sender runs"
        partitions = list(parcel.partitions)
        room.unanswered += len(partitions)
        task = self._group.create_task(self._deliver(parcel, place, partitions), name="markers")
        task.add_done_callback(lambda _: self._leave(place, room, len(partitions)))
        parcel.stop = task.cancel

    async def _deliver(self, parcel: _Parcel, place: Place, partitions: list[TopicPartition]) -> None:
        try:
            codes = await self._post.send(place, parcel.marking.marker, partitions)
        except Exception:
            log.exception("a marker cannot be sent", place=place.id)
            codes = [ErrorCode.unknown_server_error] * len(partitions)
        self._on_answer(parcel, dict(zip(partitions, codes, strict=True)))

    def _leave(self, place: Place, room: _Room, count: int) -> None:
        """`count` partitions are answered for; others may be told."""
        room.unanswered -= count
        while room.waiting and room.unanswered < limits.MARKERS_UNANSWERED_MAX:
            parcel = room.waiting.popleft()
            if parcel.partitions:
                self._send(parcel, place, room)
        if not room.unanswered:
            self._rooms.pop(place, None)

    def _on_answer(self, parcel: _Parcel, codes: dict[TopicPartition, ErrorCode]) -> None:
        marking = parcel.marking
        self._close(parcel)
        told: list[TopicPartition] = []
        again: dict[TopicPartition, None] = {}
        refused: TopicPartition | None = None
        for partition in parcel.partitions:
            code = codes[partition]
            reaction = REACTIONS.get(code)
            self._counts.on_answer(reaction)
            if reaction is Reaction.TOLD or reaction is Reaction.OVERTAKEN:
                told.append(partition)
                if reaction is Reaction.OVERTAKEN:
                    self._say(
                        "a partition has heard of a newer epoch than a transaction's end has",
                        partition,
                        parcel,
                        code,
                    )
                continue
            again[partition] = None
            if reaction is Reaction.GIVE_UP:
                refused = partition
            elif reaction is None or parcel.pause_ms >= limits.MARKER_RETRY_MS_MAX:
                self._say("a partition is not told yet how a transaction ended", partition, parcel, code)
        if again:
            waiting = self._open(marking, again, parcel.place, parcel.pause_ms)
            if refused is None:
                self._try_later(waiting, parcel.pause_ms)
            else:
                self._give_up(marking, refused, codes[refused])
        self._told(marking, told)

    def _say(self, what: str, partition: TopicPartition, parcel: _Parcel, code: ErrorCode) -> None:
        name = f"{partition.topic}-{partition.partition}"
        self._lines.warning(
            what,
            name,
            partition=name,
            transactional_id=parcel.marking.ended.transactional_id,
            place=None if parcel.place is None else parcel.place.id,
            code=code.name.upper(),
        )

    def _look_again(self, parcel: _Parcel, topic: str) -> None:
        """The metadata of `topic` changed: what of it is somebody else's to tell leaves the parcel."""
        moved = [
            each for each in parcel.partitions if each.topic == topic and not self._is_at(each, parcel.place)
        ]
        if not moved:
            return
        if len(moved) == len(parcel.partitions):
            self._end(parcel)
        else:
            for each in moved:
                del parcel.partitions[each]
            if not any(each.topic == topic for each in parcel.partitions):
                self._by_topic[topic].pop(parcel)
        self._dispatch(parcel.marking, moved, limits.MARKER_RETRY_MS_MIN)

    def _is_at(self, partition: TopicPartition, place: Place | None) -> bool:
        found = self._places.find(partition)
        if place is None:
            return found in (NoPlace.NOBODY, NoPlace.UNKNOWN)
        return found == place


def _doubled(pause_ms: int) -> int:
    return min(pause_ms * 2, limits.MARKER_RETRY_MS_MAX)


def _changed_topics(old: MetadataImage, new: MetadataImage) -> list[str] | None:
    """Names of the topics that are not in `new` as they were in `old`; None where that is not known."""
    changes = new.changes_since(old)
    if changes is None:
        return None
    ids = dict.fromkeys(
        (*changes.topics, *changes.deleted_topics, *(topic_id for topic_id, _ in changes.partitions))
    )
    topics = (new.topics_by_id.get(each) or old.topics_by_id.get(each) for each in ids)
    names = [topic.name for topic in topics if topic is not None]
    names += [new.deleted_topics[each].name for each in changes.deleted_topics if each in new.deleted_topics]
    return list(dict.fromkeys(names))
