"""What was committed, beneath the decisions that are still on their way into the log.

Decisions are taken on the newest state, which may rest on records that the log has not taken yet. As long as it does,
answers wait for it. When it does not, what is committed must still be told to those who ask: it is the newest state
with the records on their way taken out again.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetRecord

GroupOffsets = dict[str, dict[int, OffsetAndMetadata]]
"""Topic -> partition -> what was committed for it."""


@dataclass(slots=True)
class _Beneath:
    """What the log says of one offset, and how many records that change it are on their way."""

    committed: OffsetAndMetadata | None
    on_their_way: int = 0


class UncommittedOffsets:
    """Owns, for each offset that a record on its way changes, what the log says of it now."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], _Beneath]] = {}

    def on_decided(self, record: OffsetRecord, before: OffsetAndMetadata | None) -> None:
        """`record` sets out for the log; `before` is what it replaces."""
        key = (record.topic, record.partition)
        beneath = self._groups.setdefault(record.group_id, {}).setdefault(key, _Beneath(before))
        beneath.on_their_way += 1

    def on_committed(self, record: OffsetRecord) -> None:
        """`record`, the oldest on its way for its offset, is in the log."""
        group = self._groups[record.group_id]
        key = (record.topic, record.partition)
        beneath = group[key]
        beneath.committed = record.value
        beneath.on_their_way -= 1
        if beneath.on_their_way:
            return
        del group[key]
        if not group:
            del self._groups[record.group_id]

    def taken_out_of(self, newest: GroupOffsets, group_id: str) -> GroupOffsets:
        """The group's offsets as the log has them, given the `newest`."""
        group = self._groups.get(group_id)
        if not group:
            return newest
        committed = {topic: dict(partitions) for topic, partitions in newest.items()}
        for (topic, partition), beneath in group.items():
            if beneath.committed is not None:
                committed.setdefault(topic, {})[partition] = beneath.committed
            elif topic in committed:
                committed[topic].pop(partition, None)
        return {topic: partitions for topic, partitions in committed.items() if partitions}
