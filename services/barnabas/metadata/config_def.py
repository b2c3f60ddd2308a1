"""What a setting is: its name, type, default, valid values; and how its text is read.

Values travel and are stored as text, as in Kafka; `ConfigDef.parse` is the one place that turns text into a value.
The rules of each type follow Kafka's documentation of its configuration types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from barnabas.metadata.validators import ConfigValue, Validator

if TYPE_CHECKING:
    from barnabas.kernel.errors import KafkaError


class ConfigType(IntEnum):
    """Kafka's types of settings, with the codes that DescribeConfigs answers (KIP-569)."""

    UNKNOWN = 0
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


class Unit(Enum):
    """What a broker setting's number must be multiplied by to become its topic setting."""

    SAME = 1
    MINUTES_TO_MS = 60_000
    HOURS_TO_MS = 3_600_000

    def convert(self, text: str) -> str:
        """The number in the other unit; any below zero means that there is no limit, as -1 does."""
        return text if self is Unit.SAME else str(max(int(text) * self.value, -1))


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
    internal: bool = False
    """Shown only where it is set: for those who work on the broker, or without meaning until it is set."""

    @property
    def sensitive(self) -> bool:
        """Never shown to clients; what nobody knows might be a secret too."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    @property
    def valid_values(self) -> str:
        """What values are right, in a few words; empty where the type says it all."""
        return "" if self.validator is None else self.validator.valid_values

    def parse(self, text: str) -> ConfigValue:
        """The value of `text`. Raises KafkaError INVALID_CONFIG saying what to write instead."""
        value = self._read(text.strip() if self.type is not ConfigType.PASSWORD else text)
        if self.validator is not None:
            problem = self.validator.problem(value)
            if problem is not None:
                raise self._invalid(text, problem)
        return value

    def shown(self, text: str) -> str:
        """`text` as Kafka shows it: without blanks around it, numbers and truth values in their plain spelling.

        What is no value of the type, a slip in a configuration file, is shown as it is.
        """
        from barnabas.kernel.errors import KafkaError  # slow to load

        try:
            value = self._read(text.strip())
        except KafkaError:
            return text
        match value:
            case bool():
                return str(value).lower()
            case float():
                return _spelt_by_java(value)
            case tuple():
                return ",".join(value)
            case _:
                return str(value)

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
        from barnabas.kernel.errors import ErrorCode, KafkaError  # slow to load, and few settings are wrong

        shown = "[hidden]" if self.sensitive else text
        message = f"Invalid value {shown} for configuration {self.name}: {problem}."
        return KafkaError(ErrorCode.invalid_config, message)


def _spelt_by_java(value: float) -> str:
    """Java writes numbers outside 0.001 to ten million with an exponent, such as 1.0E7; Python begins later."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{digits}{'' if '.' in digits else '.0'}E{int(exponent)}"


def split_list(text: str) -> tuple[str, ...]:
    """The entries of a list setting: parted by commas, without the blanks around them."""
    return tuple(entry for entry in (part.strip() for part in text.split(",")) if entry)
