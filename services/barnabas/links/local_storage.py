"""What a gateway may ask of a storage node in its own process beyond what it asks of any: an answer at once.

`host.local_node.LocalNode` is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.links.storage_link import AnswerRoom, StorageLink

if TYPE_CHECKING:
    from barnabas.messages.storage_pb2 import AppendTransaction


class Placed(NamedTuple):
    """Where a batch is in its log, acknowledged."""

    base_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps log append time."""
    log_start_offset: int


class Sought(NamedTuple):
    """What a fetch asks of one partition; the fields are those of a PartitionFetch."""

    topic_id: bytes
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


class Read(NamedTuple):
    """What there is for a fetch in one partition."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes | memoryview
    aborted_transactions: Sequence[tuple[int, int]]
    """(producer id, first offset) of each, for who reads committed records only."""


class ReadWait(Protocol):
    """A read at once that found too little and waits."""

    on_over: Callable[[], None]
    """Called once when it is to be read again: enough may be there, its time may be over, or something else is to be
    told. Never before what gave the wait has returned."""

    def end(self) -> None:
        """Nobody waits any more; it may have been over."""
        ...


class LocalStorage(StorageLink, Protocol):
    """The storage node in a gateway's own process: a link like any, and its partitions as plain function calls."""

    @property
    def node_id(self) -> int: ...

    async def hand_over(self) -> None:
        """Have other nodes lead what they can: both are about to stop, and clients are to find others that serve."""
        ...

    def read_within(self, room: AnswerRoom) -> None:
        """What is sent as a Fetch is read where there is room, from now on. (A read at once asks for it itself.)"""
        ...

    def append_at_once(
        self,
        topic_id: bytes,
        partition: int,
        records: memoryview,
        acks: int,
        transaction: AppendTransaction | None = None,
    ) -> Placed | None:
        """Append one batch as the leader, where it can be acknowledged (as `acks` asks) before this returns.

        None, with nothing changed, where it cannot: this node does not lead, the append would have to wait for the
        disk or for replicas, its `transaction`'s coordinator would have to be asked, or it is refused. Who asks then
        takes the general way, which says why.
        """
        ...

    def read_at_once(
        self,
        sought: Sequence[Sought],
        *,
        min_bytes: int,
        max_bytes: int,
        committed: bool,
        max_wait_ms: int,
        rack_id: str = "",
        wait: ReadWait | None = None,
    ) -> list[Read] | ReadWait | None:
        """Read for a client, where all of it is in memory and at least `min_bytes` are there.

        Where less is there it waits for `max_wait_ms`; `wait` is that of a read that is made again. None, with nothing
        counted, where there is anything else to tell of a partition: it is not led here, its log has another history
        than the client's, the disk has to be waited for. A client with a `rack_id` means this very node (KIP-392): it
        is read for where this node is an in-sync follower, too, and not where as leader it knows a nearer one.
        """
        ...
