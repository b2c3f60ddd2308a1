"""What one replica's log says of transactions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from world import World

from barnabas.records.batch import BatchHeader, iterate_headers
from barnabas.records.control import decode_marker
from barnabas.records.record import decode_records
from barnabas.storage.replica.replica import Replica


class Ended(NamedTuple):
    """A transaction that a marker ended, from its first offset to that of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_committed: bool


@dataclass(slots=True)
class View:
    """What the log says once it has been read."""

    values: dict[int, bytes] = field(default_factory=dict)
    committed: dict[bytes, int] = field(default_factory=dict)
    """Values of committed transactions, and their offsets."""
    aborted: dict[bytes, int] = field(default_factory=dict)
    undecided: dict[int, dict[bytes, int]] = field(default_factory=dict)
    """By producer id."""
    first_offsets: dict[int, int] = field(default_factory=dict)
    """Of what is undecided."""
    ended: list[Ended] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    """The newest, by producer id."""


def read_view(world: World, described: str, replica: Replica) -> View:
    """Of the whole log: nothing of these topics is ever deleted."""
    opened = replica.log
    assert opened is not None, f"{replica.name} has no log"
    view = View()
    offset = opened.log_start_offset
    while offset < opened.log_end_offset:
        data = bytes(opened.read(offset, 1_000_000))
        if not data:
            world.violate(f"{described}: nothing can be read at {offset}")
            break
        for position, header in iterate_headers(data):
            _take(world, described, view, header, data[position : position + header.size_in_bytes])
            offset = header.last_offset + 1
    return view


def _take(world: World, described: str, view: View, header: BatchHeader, batch: bytes) -> None:
    producer_id, epoch = header.producer_id, header.producer_epoch
    newest = view.epochs.get(producer_id, -1)
    if epoch < newest:
        world.violate(
            f"ZOMBIE: {described}: epoch {epoch} of producer {producer_id} is at {header.base_offset}, behind {newest}"
        )
    view.epochs[producer_id] = max(epoch, newest)
    if header.is_control:
        marker = decode_marker(batch)
        assert marker is not None, "a control batch is a marker"
        values = view.undecided.pop(producer_id, {})
        (view.committed if marker.committed else view.aborted).update(values)
        first = view.first_offsets.pop(producer_id, None)
        if first is not None:
            view.ended.append(Ended(producer_id, first, header.base_offset, marker.committed))
        return
    view.first_offsets.setdefault(producer_id, header.base_offset)
    undecided = view.undecided.setdefault(producer_id, {})
    for record in decode_records(batch):
        value = record.value or b""
        if value in view.committed or value in view.aborted or value in undecided:
            world.violate(f"DOUBLED: {described} has {value!r} again at {record.offset}")
        undecided[value] = record.offset
        view.values[record.offset] = value
