"""Faults that are planted into the code, to see that the simulation finds them.

Each is what somebody could break without noticing. It is kept as what it replaces, not as a diff, so that it breaks
loudly where the code it is about has moved.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from barnabas.controller.fanout import Receiver
from barnabas.kernel.memory_files import MemoryFiles
from barnabas.log.opening import loader
from barnabas.log.producers.producer_state import ProducerState
from barnabas.log.segments import scan
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.storage.replica.durability import Durability


class Plant(NamedTuple):
    """What is replaced, and by what."""

    owner: Any
    name: str
    make: Callable[[Any], Any]
    """From what was there to what is there instead."""
    seed: int
    """One that finds it."""
    replication_factor: int = 1


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


def _only_data_is_synced(fsync: Any) -> Any:
    def instead(self: MemoryFiles, fd: int, /) -> None:
        if not self._open[fd].node.is_directory:
            fsync(self, fd)

    return instead


PLANTED: Final[dict[str, Plant]] = {
    "acknowledge-without-writing": Plant(SegmentFile, "write", _sometimes_not_written, 0),
    "skip-crc-on-recovery": Plant(scan, "crc32c", lambda _: lambda _data: _AlwaysRight(), 243),
    "forget-producers-at-restart": Plant(loader, "_producer_state_at", lambda _: _no_producers, 25),
    "acknowledge-before-sync": Plant(
        Durability, "acknowledgeable", lambda _: lambda _self, end_offset: end_offset, 0
    ),
    "skip-data-sync": Plant(SegmentFile, "sync", lambda _: lambda _self: None, 0),
    "skip-directory-sync": Plant(MemoryFiles, "fsync", _only_data_is_synced, 0),
    "lose-a-delta-of-metadata": Plant(Receiver, "push", _sometimes_not_told, 1),
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The code has this fault while the context is open; none for an empty name."""
    if not name:
        yield
        return
    plant = PLANTED[name]
    real = vars(plant.owner)[plant.name]
    setattr(plant.owner, plant.name, plant.make(real))
    try:
        yield
    finally:
        setattr(plant.owner, plant.name, real)
