"""What the runtime must know of a kind of coordinator: its topic, its state machine, and its records as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from barnabas.coordinator.runtime.core.decision import Decision, Waiter
from barnabas.coordinator.runtime.core.producers import PLAIN, BatchHead, LogProducer

RecordT = TypeVar("RecordT")
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)


class UnreadableRecord(Exception):
    """A record of a kind that we know, in a version or a shape that we do not."""


class Shard(Protocol[RecordT_contra]):
    """All that a coordinator knows of one partition; a pure state machine.

    Its handlers decide: they add records to a decision. Only replaying a record changes what the log says.
    """

    def replay(self, record: RecordT_contra) -> None:
        """Take in one record of the log."""
        ...

    def replay_uncommitted(self, record: RecordT_contra) -> None:
        """Take in one record that is decided and on its way into the log; `on_committed` follows."""
        ...

    def on_committed(self, record: RecordT_contra) -> None:
        """The oldest record that `replay_uncommitted` took in is in the log now."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When time is needed next, in monotonic ms, or a little earlier; None for never."""
        ...

    def on_jump(self, now_ms: int, jumped_ms: int) -> None:
        """A test moved the clock to `now_ms` (monotonic): who is waited for must get the time to show that he lives."""
        ...


ShardT = TypeVar("ShardT", bound=Shard[Any])
DecisionT = TypeVar("DecisionT", bound=Decision[Any])


def _plain(_: object) -> BatchHead:
    return PLAIN


@dataclass(frozen=True, slots=True)
class Kind(Generic[ShardT, DecisionT, RecordT]):
    """One kind of coordinator."""

    topic: str
    """The internal topic that is its log."""
    barrier: RecordT
    """A record that means nothing: what loading starts with."""
    make_shard: Callable[[], ShardT]
    make_decision: Callable[[int, int, Callable[[], object], bool], DecisionT]
    """Of now in ms, monotonic ms, what draws unique ids, and whether the log takes no writes."""
    encode: Callable[[RecordT], tuple[bytes, bytes | None]]
    """Key and value; the value is None for a tombstone. Raises where a record cannot have what it is to say."""
    start_afresh: Callable[[ShardT, Sequence[RecordT], DecisionT], Sequence[Waiter]]
    """These records could not be written: what they are about goes back to what the log says of it. Returns the calls
    that waited there."""
    decode_batch: Callable[[memoryview], Iterator[RecordT]]
    """The records of one batch that it knows. Raises UnreadableRecord."""
    on_loaded: Callable[[ShardT, DecisionT], None]
    """The log has been replayed: time begins."""
    on_time: Callable[[ShardT, DecisionT], None]
    """Deadlines are due."""
    on_resumed: Callable[[ShardT, DecisionT], None]
    """The log takes writes again, after a time in which it took none and deadlines were not handled."""
    count: Callable[[DecisionT], None]
    """Have the metrics count what a decision led to."""
    head: Callable[[RecordT], BatchHead] = _plain
    """Under which producer a record is written. `decode_batch` is to say so in the records that it makes of the batch:
    markers are records too, and a kind that writes nothing under producers can leave them out."""
    on_producers: Callable[[ShardT, Sequence[LogProducer]], None] | None = None
    """The log has been replayed, before `on_loaded`: what its leader knows of producers, which may be more than the
    records say that compaction left. None where no record is written under a producer."""
