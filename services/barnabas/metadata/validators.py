"""What values a setting may have, beyond what its type says.

A validator says what is wrong with a value that was read already, and describes in a few words what is right, for
`docs/configuration.md`. The rules are Apache Kafka 4.3's.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final, Protocol

ConfigValue = bool | str | int | float | tuple[str, ...] | None


class Validator(Protocol):
    """Says what is wrong with a value, or None."""

    def problem(self, value: ConfigValue) -> str | None: ...

    @property
    def valid_values(self) -> str:
        """What is right, in a few words."""
        ...


@dataclass(frozen=True, slots=True)
class Between:
    """A number from `low` to `high`, both included."""

    low: float = -math.inf
    high: float = math.inf

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, int | float)
        if value < self.low:
            return f"it must be at least {self.low}"
        if value > self.high:
            return f"it must be at most {self.high}"
        return None

    @property
    def valid_values(self) -> str:
        return f"at least {self.low}" if self.high == math.inf else f"{self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the listed texts."""

    allowed: tuple[str, ...]
    any_case: bool = False
    """Whether capitals do not matter; `allowed` is then in small letters."""

    def problem(self, value: ConfigValue) -> str | None:
        known = value.lower() if self.any_case and isinstance(value, str) else value
        return None if known in self.allowed else f"it must be one of {', '.join(self.allowed)}"

    @property
    def valid_values(self) -> str:
        return ", ".join(self.allowed) + (" (in any case)" if self.any_case else "")


@dataclass(frozen=True, slots=True)
class EachOf:
    """A list whose entries are all among the listed texts."""

    allowed: tuple[str, ...]
    empty_allowed: bool = True

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, tuple)
        if not value and not self.empty_allowed:
            return f"it must name at least one of {', '.join(self.allowed)}"
        if all(entry in self.allowed for entry in value):
            return None
        return f"its entries must be among {', '.join(self.allowed)}"

    @property
    def valid_values(self) -> str:
        return f"a list of {', '.join(self.allowed)}"


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """A text or list with something in it."""

    def problem(self, value: ConfigValue) -> str | None:
        return None if value else "it must not be empty"

    @property
    def valid_values(self) -> str:
        return "not empty"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*`, or a list of `partition:broker` (KIP-73)."""

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, tuple)
        if value == ("*",) or all(_is_partition_and_broker(entry) for entry in value):
            return None
        return f"it must be {self.valid_values} such as 0:1,1:2"

    @property
    def valid_values(self) -> str:
        return "* or a list of partition:broker pairs"


@dataclass(frozen=True, slots=True)
class GzipLevel:
    """1 to 9, or -1 for the library's own choice (KIP-390)."""

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, int)
        return None if value == -1 or 1 <= value <= 9 else "it must be between 1 and 9, or -1"

    @property
    def valid_values(self) -> str:
        return "1 to 9, or -1"


_DURATION: Final = re.compile(
    r"P(?=\d|T\d)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?", re.ASCII | re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class WhereToBegin:
    """earliest, latest, or by_duration: and how long ago in ISO 8601, such as by_duration:PT1H (KIP-932)."""

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, str)
        if value in ("earliest", "latest"):
            return None
        kind, separator, duration = value.partition(":")
        if kind == "by_duration" and separator and _DURATION.fullmatch(duration):
            return None
        return "it must be earliest, latest or by_duration: and an ISO 8601 duration such as by_duration:PT1H"

    @property
    def valid_values(self) -> str:
        return "earliest, latest, by_duration:PnDTnHnMn.nS"


def _is_partition_and_broker(entry: str) -> bool:
    parts = entry.split(":")
    return len(parts) == 2 and all(part.isascii() and part.isdigit() for part in parts)
