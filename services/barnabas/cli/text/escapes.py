"""Backslash escapes and one-character delimiters, as flags give them: `\\n`, `\\t`, `\\x1f`, `\\037`, `\\\\`."""

from __future__ import annotations

import os
import re
from typing import Final

_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{1,2}|[0-3][0-7]{2}|[nrt0\\])")
_NAMED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


def unescape(text: str) -> bytes:
    """The bytes that a flag's text stands for; an unknown escape stays as it is."""
    return _ESCAPE.sub(_replacement, os.fsencode(text))


def _replacement(match: re.Match[bytes]) -> bytes:
    word = match[1]
    if word in _NAMED:
        return _NAMED[word]
    return bytes([int(word[1:], 16) if word.startswith(b"x") else int(word, 8)])
