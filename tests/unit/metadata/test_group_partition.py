"""Kafka's rule for where a group lives."""

from __future__ import annotations

import pytest

from barnabas.metadata.group_partition import java_string_hash, partition_for_group


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", 0x80000000),  # Java's Integer.MIN_VALUE
        ("😀", 0xD83D * 31 + 0xDE00),  # a surrogate pair counts as two
    ],
)
def test_java_hash(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_the_sign_bit_is_cleared() -> None:
    assert partition_for_group("polygenelubricants", 50) == 0
    assert partition_for_group("hello", 50) == 22
