"""Texts that a record can have."""

from __future__ import annotations

from typing import Final

STRING_BYTES_MAX: Final = 32_767
"""Bytes of UTF-8 that a text in a record can have. Newer requests carry longer ones."""

_CHARACTER_BYTES_MAX: Final = 4


def fits_record(text: str) -> bool:
    """Whether a record can have `text`."""
    return len(text) <= STRING_BYTES_MAX // _CHARACTER_BYTES_MAX or len(text.encode()) <= STRING_BYTES_MAX
