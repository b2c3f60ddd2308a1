"""What a gateway may ask of a storage node in its own process beyond what it asks of any: an answer at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from barnabas.links.storage_link import StorageLink


class Placed(NamedTuple):
    """Where a batch is in its log, acknowledged."""

    base_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps log append time."""
    log_start_offset: int


class NearStorage(Protocol):
    """A storage node's partitions, as a plain function call."""

    def append_at_once(self, topic_id: bytes, partition: int, records: bytes, acks: int) -> Placed | None:
        """Append one batch as the leader, where it can be acknowledged (as `acks` asks) before this returns.

        None, with nothing changed, where it cannot: this node does not lead, the append would have to wait for the
        disk or for replicas, or it is refused. Who asks then takes the general way, which says why.
        """
        ...


@dataclass(frozen=True, slots=True)
class StorageBeside:
    """The storage node in a gateway's own process."""

    node_id: int
    link: StorageLink
    near: NearStorage
