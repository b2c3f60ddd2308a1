"""What was committed, beneath the decisions that are still on their way into the log.

Decisions are taken on the newest state, which may rest on records that the log has not taken yet. As long as it does,
answers wait for it. When it does not, what is committed must still be told to those who ask: it is the newest state
with the records on their way taken out again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetKey

GroupOffsets = dict[str, dict[int, OffsetAndMetadata]]
"""Topic -> partition -> what was committed for it."""


class OffsetState(NamedTuple):
    """What is known of one offset."""

    committed: OffsetAndMetadata | None
    is_pending: bool
    """Whether an open transaction has another."""


@dataclass(slots=True)
class _Beneath:
    """What the log says of one offset, and how many records that change it are on their way."""

    state: OffsetState
    on_their_way: int = 0


class UncommittedOffsets:
    """Owns, for each offset that a record on its way changes, what the log says of it now."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], _Beneath]] = {}
        self._on_their_way: deque[list[tuple[OffsetKey, OffsetState]]] = deque()
        """Of each record on its way, oldest first: what it leads to."""

    def on_decided(self, changes: Sequence[tuple[OffsetKey, OffsetState, OffsetState]]) -> None:
        """A record sets out for the log. It changes these, each from one state to another; nothing, maybe."""
        for key, before, _ in changes:
            group = self._groups.setdefault(key.group_id, {})
            group.setdefault((key.topic, key.partition), _Beneath(before)).on_their_way += 1
        self._on_their_way.append([(key, after) for key, _, after in changes])

    def on_committed(self) -> None:
        """The oldest record on its way is in the log."""
        for key, after in self._on_their_way.popleft():
            group = self._groups[key.group_id]
            beneath = group[key.topic, key.partition]
            beneath.state = after
            beneath.on_their_way -= 1
            if beneath.on_their_way:
                continue
            del group[key.topic, key.partition]
            if not group:
                del self._groups[key.group_id]

    def is_pending(self, key: OffsetKey) -> bool | None:
        """Whether an open transaction has an offset there, by what the log says; None where that is as in the newest
        state."""
        beneath = self._groups.get(key.group_id, {}).get((key.topic, key.partition))
        return None if beneath is None else beneath.state.is_pending

    def taken_out_of(self, newest: GroupOffsets, group_id: str) -> GroupOffsets:
        """The group's offsets as the log has them, given the `newest`."""
        group = self._groups.get(group_id)
        if not group:
            return newest
        offsets = {topic: dict(partitions) for topic, partitions in newest.items()}
        for (topic, partition), beneath in group.items():
            if beneath.state.committed is not None:
                offsets.setdefault(topic, {})[partition] = beneath.state.committed
            elif topic in offsets:
                offsets[topic].pop(partition, None)
        return {topic: partitions for topic, partitions in offsets.items() if partitions}
