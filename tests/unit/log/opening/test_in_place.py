"""Which of a segment's batches may stand where they do, by their headers alone."""

from __future__ import annotations

from typing import Final

import pytest

from barnabas.kernel.kafka_values import INT_MAX
from barnabas.log.segments.scan import ScannedBatch
from barnabas.log.segments.scan_past_damage import in_place
from barnabas.records.batch import HEADER, LOG_OVERHEAD, BatchHeader, parse_header

BASE: Final = 100
SIZE: Final = 80
"""In bytes, of each batch."""

PLAIN: Final = parse_header(bytes(HEADER.size))._replace(magic=2)

Offsets = tuple[int, int]
"""(base offset, last offset) of a batch."""


def scanned(number: int, offsets: Offsets, magic: int) -> ScannedBatch:
    header: BatchHeader = PLAIN._replace(
        base_offset=offsets[0],
        last_offset_delta=offsets[1] - offsets[0],
        magic=magic,
        batch_length=SIZE - LOG_OVERHEAD,
    )
    return ScannedBatch(number * SIZE, header)


def believed(*batches: Offsets, magic_of: dict[int, int] | None = None) -> list[int]:
    """Which of them are, by their numbers; `magic_of` has those whose magic is another one than 2."""
    magics = magic_of or {}
    made = [scanned(number, each, magics.get(number, 2)) for number, each in enumerate(batches)]
    return [
        each.position // SIZE
        for each, is_in_place in in_place(iter(made), BASE, len(made) * SIZE)
        if is_in_place
    ]


A, B, C, D, E = (100, 109), (110, 110), (111, 120), (121, 125), (126, 130)


def test_all_are_where_nothing_is_damaged() -> None:
    assert believed() == []
    assert believed(A) == [0]
    assert believed(A, B, C, D, E) == [0, 1, 2, 3, 4]
    assert believed((105, 106), (200, 200), (300, 400)) == [0, 1, 2], "what is copied may have gaps"
    assert believed(A, (110, BASE + INT_MAX)) == [0, 1], "the last offset of which an index has place"


@pytest.mark.parametrize(
    ("damaged", "left_out"),
    [
        pytest.param((0, 9), {2}, id="offsets of long before"),
        pytest.param((100, 109), {2}, id="those of another batch"),
        pytest.param((109, 112), {2}, id="it begins in what was taken"),
        pytest.param((110, 119), {1}, id="it begins where its predecessor does: which of them, nobody knows"),
        pytest.param((111, 121), {2}, id="one more record than there are"),
        pytest.param((111, 2000), {2}, id="many more"),
        pytest.param((2000, 2009), {2}, id="offsets of far behind"),
        pytest.param((111, 110), {2}, id="an end before its beginning"),
        pytest.param((-5, 120), {2}, id="a negative offset"),
        pytest.param((BASE + INT_MAX, BASE + INT_MAX + 1), {2}, id="an offset that no index can hold"),
        pytest.param((111, 2**63 - 1), {2}, id="nor this one"),
    ],
)
def test_one_that_is_damaged_hides_no_more_than_this(damaged: Offsets, left_out: set[int]) -> None:
    assert set(believed(A, B, damaged, D, E)) == {0, 1, 2, 3, 4} - left_out


def test_the_first_and_the_last_may_be_damaged_as_well() -> None:
    assert believed((2000, 2009), B, C) == [1, 2]
    assert believed((90, 99), B, C) == [1, 2]
    assert believed(A, B, (100, 101)) == [0, 1]
    assert believed(A, B, (BASE + INT_MAX + 1, BASE + INT_MAX + 1)) == [0, 1]


def test_what_has_another_magic_is_no_batch_and_bounds_none() -> None:
    assert believed(A, B, C, D, magic_of={1: 1}) == [0, 2, 3]
    assert believed(A, (50, 60), C, magic_of={1: 3}) == [0, 2]
    assert believed(A, (105, 110), C, magic_of={1: 0}) == [0, 2]


def test_two_damaged_ones_side_by_side_hide_at_most_who_is_before_them() -> None:
    assert set(believed(A, B, (0, 0), (50, 60), E)) >= {0, 1, 4}
