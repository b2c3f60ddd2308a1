"""How many bytes readers come to see as the high watermark moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.limits import UNSEEN_PIECES_MAX
from barnabas.storage.replica.unseen_bytes import UnseenBytes


def test_each_move_shows_its_own_bytes() -> None:
    unseen = UnseenBytes()
    for offset in range(4):
        unseen.add(offset, offset + 1, 100 + offset)
    assert [unseen.take(high_watermark) for high_watermark in (1, 3, 3, 4, 4)] == [100, 203, 0, 103, 0]


def test_an_append_that_is_seen_in_part_counts_whole_each_time() -> None:
    unseen = UnseenBytes()
    unseen.add(0, 5, 500)
    unseen.add(5, 6, 60)
    assert [unseen.take(high_watermark) for high_watermark in (2, 3, 5, 6)] == [500, 500, 500, 60]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), max_size=30),
    st.lists(st.integers(0, 90), max_size=20),
)
def test_never_fewer_than_there_are(appends: list[tuple[int, int]], moves: list[int]) -> None:
    unseen, ends = UnseenBytes(), [0]
    for count, size_bytes in appends:
        unseen.add(ends[-1], ends[-1] + count, size_bytes * count)
        ends.append(ends[-1] + count)
    sizes = [size for count, size in appends for _ in range(count)]
    seen = 0
    for high_watermark in sorted(min(move, ends[-1]) for move in moves):
        assert unseen.take(high_watermark) >= sum(sizes[seen:high_watermark])
        seen = high_watermark


def test_however_long_the_high_watermark_stays_it_takes_a_bounded_place() -> None:
    unseen = UnseenBytes()
    for offset in range(3 * UNSEEN_PIECES_MAX):
        unseen.add(offset, offset + 1, 1)
    assert len(unseen._pieces) == UNSEEN_PIECES_MAX
    assert unseen.take(UNSEEN_PIECES_MAX + 1) >= UNSEEN_PIECES_MAX + 1
    assert unseen.take(3 * UNSEEN_PIECES_MAX) >= 2 * UNSEEN_PIECES_MAX - 1
    assert not unseen._pieces
