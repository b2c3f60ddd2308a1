"""What a setting is: its name, type, default, valid values; and how its text is read.

Values travel and are stored as text, as in Kafka; `ConfigDef.parse` is the one place that turns text into a value.
The rules of each type follow Kafka's documentation of its configuration types.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, Protocol

from barnabas.kernel.errors import ErrorCode, KafkaError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class ConfigType(IntEnum):
    """Kafka's types of settings, with the codes that DescribeConfigs answers (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """How likely an operator is to need the setting."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Whether a broker's setting can be changed while it runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


ConfigValue = bool | str | int | float | tuple[str, ...] | None


class Validator(Protocol):
    """Says what is wrong with a value, or None."""

    def problem(self, value: ConfigValue) -> str | None: ...


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


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the listed texts."""

    allowed: tuple[str, ...]

    def problem(self, value: ConfigValue) -> str | None:
        return None if value in self.allowed else f"it must be one of {', '.join(self.allowed)}"


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


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*`, or a list of `partition:broker` (KIP-73)."""

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, tuple)
        if value == ("*",) or all(_is_partition_and_broker(entry) for entry in value):
            return None
        return "it must be * or a list of partition:broker pairs such as 0:1,1:2"


@dataclass(frozen=True, slots=True)
class GzipLevel:
    """1 to 9, or -1 for the library's own choice (KIP-390)."""

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, int)
        return None if value == -1 or 1 <= value <= 9 else "it must be between 1 and 9, or -1"


def _is_partition_and_broker(entry: str) -> bool:
    parts = entry.split(":")
    return len(parts) == 2 and all(part.isascii() and part.isdigit() for part in parts)


class Unit(Enum):
    """What a broker setting's number must be multiplied by to become its topic setting."""

    SAME = 1
    MINUTES_TO_MS = 60_000
    HOURS_TO_MS = 3_600_000

    def convert(self, text: str) -> str:
        return text if self is Unit.SAME else str(int(text) * self.value)


@dataclass(frozen=True, slots=True)
class Synonym:
    """The broker setting that stands in for a topic setting that was not set."""

    name: str
    unit: Unit = Unit.SAME


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """One setting. `default` is text, as it would be written in a file; None means that there is none."""

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    synonyms: tuple[Synonym, ...] = ()
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    has_effect: bool = False
    """Whether anything in Barnabas acts on it today; what nothing reads is kept and shown all the same."""

    @property
    def sensitive(self) -> bool:
        """Never shown to clients."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """The value of `text`. Raises KafkaError INVALID_CONFIG saying what to write instead."""
        value = self._read(text.strip() if self.type is not ConfigType.PASSWORD else text)
        if self.validator is not None:
            problem = self.validator.problem(value)
            if problem is not None:
                raise self._invalid(text, problem)
        return value

    def default_value(self) -> ConfigValue:
        return None if self.default is None else self.parse(self.default)

    def _read(self, text: str) -> ConfigValue:
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._invalid(text, "it must be true or false")
                return text.lower() == "true"
            case ConfigType.SHORT:
                return self._read_integer(text, 16)
            case ConfigType.INT:
                return self._read_integer(text, 32)
            case ConfigType.LONG:
                return self._read_integer(text, 64)
            case ConfigType.DOUBLE:
                return self._read_double(text)
            case ConfigType.LIST:
                return split_list(text)
            case _:
                return text

    def _read_integer(self, text: str, bits: int) -> int:
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdigit()):
            raise self._invalid(text, "it must be a whole number")
        limit = 2 ** (bits - 1)
        value = int(text) if len(digits) <= 20 else limit
        if not -limit <= value < limit:
            raise self._invalid(text, f"it must be between {-limit} and {limit - 1}")
        return value

    def _read_double(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise self._invalid(text, "it must be a number") from None
        if not math.isfinite(value):
            raise self._invalid(text, "it must be a finite number")
        return value

    def _invalid(self, text: str, problem: str) -> KafkaError:
        shown = "[hidden]" if self.sensitive else text
        message = f"Invalid value {shown} for configuration {self.name}: {problem}."
        return KafkaError(ErrorCode.invalid_config, message)


def split_list(text: str) -> tuple[str, ...]:
    """The entries of a list setting: parted by commas, without the blanks around them."""
    return tuple(entry for entry in (part.strip() for part in text.split(",")) if entry)


def table_of(definitions: Sequence[ConfigDef]) -> Mapping[str, ConfigDef]:
    """The definitions by name; every default must be valid and no name may come twice."""
    table = {definition.name: definition for definition in definitions}
    assert len(table) == len(definitions), "a setting is defined twice"
    return table
