"""Collections that share what did not change: what they hold, and what a change of one entry costs."""

from __future__ import annotations

import random

import pytest

from barnabas.metadata import persistent
from barnabas.metadata.persistent import CHUNK_ENTRIES, GONE, ChunkedSequence, LayeredMapping

SIZES = (0, 1, CHUNK_ENTRIES - 1, CHUNK_ENTRIES, CHUNK_ENTRIES + 1, 1000)


@pytest.mark.parametrize("size", SIZES)
def test_a_sequence_reads_like_a_tuple(size: int) -> None:
    plain = tuple(range(size))
    chunked = ChunkedSequence(plain)
    assert (len(chunked), tuple(chunked), chunked == plain) == (size, plain, True)
    for index in range(-size, size):
        assert chunked[index] == plain[index]
    for index in (size, -size - 1):
        with pytest.raises(IndexError):
            chunked[index]
    for piece in (slice(None), slice(1, 70), slice(None, None, -1), slice(-5, None)):
        assert chunked[piece] == plain[piece]


def test_replaced_entries_are_new_and_the_former_sequence_stays() -> None:
    chunked = ChunkedSequence(range(1000))
    changed = chunked.replacing({0: -1, 63: -2, 64: -3, 999: -4})
    expected = list(range(1000))
    expected[0], expected[63], expected[64], expected[999] = -1, -2, -3, -4
    assert list(changed) == expected
    assert list(chunked) == list(range(1000))
    assert changed != chunked
    with pytest.raises(AssertionError):
        chunked.replacing({1000: 0})


def test_a_mapping_goes_with_a_dict_through_any_changes() -> None:
    rng = random.Random(7)
    plain: dict[int, str] = {key: str(key) for key in range(300)}
    layered: LayeredMapping[int, str] = LayeredMapping(plain)
    versions = []
    for step in range(2000):
        changes: dict[int, object] = {}
        for key in rng.sample(range(400), rng.randrange(4)):
            changes[key] = GONE if rng.random() < 0.4 else f"{key} at {step}"
        layered = layered.replacing(changes)  # type: ignore[arg-type]
        for key, value in changes.items():
            if value is GONE:
                plain.pop(key, None)
            else:
                plain[key] = str(value)
        assert len(layered) == len(plain)
        for key in rng.sample(range(400), 10):
            assert (key in layered, layered.get(key), layered.get(key, "-")) == (
                key in plain,
                plain.get(key),
                plain.get(key, "-"),
            )
        if step % 50 == 0:
            versions.append((layered, dict(plain)))
    for former, then in versions:
        assert former == then
        assert (sorted(former), sorted(former.keys())) == (sorted(then), sorted(then))
        assert sorted(former.values()) == sorted(then.values())
    with pytest.raises(KeyError):
        layered[1000]


def test_what_was_taken_out_is_not_found() -> None:
    layered = LayeredMapping({"a": 1, "b": 2}).replacing({"a": GONE, "c": 3})
    with pytest.raises(KeyError):
        layered["a"]
    assert list(layered.items()) == [("b", 2), ("c", 3)]
    assert layered.replacing({"a": 4})["a"] == 4


def test_a_mapping_is_copied_once_in_many_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = 0
    flat = LayeredMapping._flat

    def counted(mapping: LayeredMapping[int, int]) -> dict[int, int]:
        nonlocal copies
        copies += 1
        return flat(mapping)

    monkeypatch.setattr(LayeredMapping, "_flat", counted)
    layered = LayeredMapping(dict.fromkeys(range(10000), 0))
    for change in range(10 * persistent.LAYER_ENTRIES_MAX):
        layered = layered.replacing({change: 1})
    assert copies <= 10
