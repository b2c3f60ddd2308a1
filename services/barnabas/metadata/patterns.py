"""Regular expressions that clients send, matched in time that grows with the text alone, whatever the pattern.

Kafka's are Java's for the metrics of clients and RE2's for consumer groups. Java's, as Python's, can take for ever, on
the event loop of whoever matches one: RE2 knows neither look-around nor back-references, and never tries twice.
"""

from __future__ import annotations

from typing import Final, Protocol

PATTERN_MEMORY_BYTES_MAX: Final = 64 * 1024
"""What a compiled pattern may take, which bounds its steps for each character too."""


class Pattern(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: str, /) -> object | None:
        """Something true when the pattern fits the whole of `text`."""
        ...


class PatternRefused(Exception):
    """A pattern that RE2 does not know, or that is too large; says why."""


def compile_pattern(text: str) -> Pattern:
    """The pattern. Raises PatternRefused."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    try:
        pattern: Pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise PatternRefused(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from None
    return pattern
