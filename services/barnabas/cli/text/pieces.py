"""Input cut at a delimiter, as it arrives: a pipe's writer need not have finished."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from barnabas.cli.refusal import Refused

READ_BYTES: Final = 1 << 20
PIECE_BYTES_MAX: Final = 1 << 30
"""A piece longer than this is no record: the delimiter is wrong."""


def split_input(descriptor: int, delimiter: bytes) -> Iterator[list[bytes]]:
    """Lists of the pieces between delimiters; the last one counts without a delimiter too, when it is not empty."""
    rest: list[bytes] = []
    kept = 0
    # A delimiter of several bytes may lie across chunks: the end of what is kept is looked at again.
    overlap = len(delimiter) - 1
    tail = b""
    while chunk := os.read(descriptor, READ_BYTES):
        seen = tail + chunk
        if delimiter not in seen:
            rest.append(chunk)
            kept += len(chunk)
            if kept > PIECE_BYTES_MAX:
                raise Refused("the input has a record of more than 1 GiB: is the --delimiter right?")
        else:
            pieces = b"".join([*rest, chunk]).split(delimiter)
            seen = pieces.pop()
            rest, kept = [seen], len(seen)
            yield pieces
        tail = seen[-overlap:] if overlap else b""
    last = b"".join(rest)
    if last:
        yield [last]
