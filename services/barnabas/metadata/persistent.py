"""Collections that never change and share with their successors all that stayed the same.

A change of one entry costs what one chunk or one small layer costs, not what the whole collection does: an image of
10,000 partitions takes the change of one in microseconds. Reading costs one step more than a tuple or a dict does.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from itertools import chain
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

_CHUNK_BITS: Final = 6
_CHUNK_MASK: Final = (1 << _CHUNK_BITS) - 1

CHUNK_ENTRIES: Final = 1 << _CHUNK_BITS
"""Entries of a sequence that are copied when one of them changes; a power of two."""

LAYER_ENTRIES_MAX: Final = 128
"""Entries of a mapping that may lie over its base before both are made one: the price of a copy, paid that seldom."""


class _Gone:
    """The type of what stands in a layer for a key that the base has and the mapping has not."""


GONE: Final = _Gone()


class ChunkedSequence(Sequence[T_co]):
    """A tuple in chunks of CHUNK_ENTRIES. Equal to any sequence of the same entries; not hashable."""

    __slots__ = ("_chunks", "_length")

    def __init__(self, entries: Iterable[T_co] = ()) -> None:
        flat = tuple(entries)
        self._length = len(flat)
        self._chunks = tuple(flat[at : at + CHUNK_ENTRIES] for at in range(0, len(flat), CHUNK_ENTRIES))

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(self._length)))
        if index < 0:
            index += self._length
            if index < 0:
                raise IndexError(index)
        return self._chunks[index >> _CHUNK_BITS][index & _CHUNK_MASK]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T_co]:
        return chain.from_iterable(self._chunks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ChunkedSequence({list(self)!r})"

    def replacing(self, changes: Mapping[int, T]) -> ChunkedSequence[T | T_co]:
        """The sequence with other entries at some of its indexes."""
        by_chunk: dict[int, dict[int, T]] = {}
        for index, entry in changes.items():
            assert 0 <= index < self._length, f"index {index} of {self._length} entries"
            by_chunk.setdefault(index >> _CHUNK_BITS, {})[index & _CHUNK_MASK] = entry
        chunks: list[tuple[T | T_co, ...]] = list(self._chunks)
        for at, entries in by_chunk.items():
            chunk: list[T | T_co] = list(chunks[at])
            for place, entry in entries.items():
                chunk[place] = entry
            chunks[at] = tuple(chunk)
        changed: ChunkedSequence[T | T_co] = ChunkedSequence()
        changed._length, changed._chunks = self._length, tuple(chunks)
        return changed


class LayeredMapping(Mapping[K, V_co]):
    """A dict that is shared, under a small dict of what changed since. Iterates in the order of insertion.

    Whoever walks over all entries pays for making both one, once for all that walk over the same mapping.
    """

    __slots__ = ("_layers", "_length")

    def __init__(self, entries: Mapping[K, V_co] | Iterable[tuple[K, V_co]] = ()) -> None:
        base = dict(entries)
        # One attribute, so that a thread that reads sees the layers belong together.
        self._layers: tuple[dict[K, V_co], dict[K, V_co | _Gone]] = (base, {})
        self._length = len(base)

    @classmethod
    def of(cls, mapping: Mapping[K, V_co]) -> LayeredMapping[K, V_co]:
        """`mapping` itself when it is layered already, else a copy of it."""
        return mapping if isinstance(mapping, LayeredMapping) else LayeredMapping(mapping)

    def __getitem__(self, key: K) -> V_co:
        base, top = self._layers
        if top:
            found = top.get(key)
            if found is not None:
                if found is GONE:
                    raise KeyError(key)
                return found  # type: ignore[return-value]
        return base[key]

    def get(self, key: K, default: Any = None) -> Any:
        base, top = self._layers
        if top:
            found = top.get(key)
            if found is not None:
                return default if found is GONE else found
        return base.get(key, default)

    def __contains__(self, key: object) -> bool:
        base, top = self._layers
        found = top.get(key)  # type: ignore[arg-type]
        return key in base if found is None else found is not GONE

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        return iter(self._flat())

    def keys(self) -> KeysView[K]:
        return self._flat().keys()

    def values(self) -> ValuesView[V_co]:
        return self._flat().values()

    def items(self) -> ItemsView[K, V_co]:
        return self._flat().items()

    def __repr__(self) -> str:
        return f"LayeredMapping({self._flat()!r})"

    def replacing(self, changes: Mapping[K, V | _Gone]) -> LayeredMapping[K, V | V_co]:
        """The mapping with other values, and without the keys whose value is GONE. Values are never None."""
        base, top = self._layers
        merged: dict[K, Any] = {**top, **changes}
        changed: LayeredMapping[K, Any] = LayeredMapping()
        changed._layers = (base, merged)
        changed._length = self._length + sum(
            (value is not GONE) - (key in self) for key, value in changes.items()
        )
        if len(merged) > LAYER_ENTRIES_MAX:
            changed._flat()
        return changed

    def _flat(self) -> dict[K, V_co]:
        """All entries as one dict, which becomes the base."""
        base, top = self._layers
        if top:
            base = {**base, **top}  # type: ignore[dict-item]
            for key, value in top.items():
                if value is GONE:
                    del base[key]
            self._layers = (base, {})
        return base
