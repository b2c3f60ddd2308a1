"""How a row of these tables is written, and short names for what stands in it."""

from __future__ import annotations

from typing import Final

from barnabas.kernel.kafka_values import INT_MAX, LONG_MAX
from barnabas.metadata.config_def import ConfigType, Importance, UpdateMode
from barnabas.metadata.validators import Between, Validator

Row = tuple[str, ConfigType, str | None, Validator | None, Importance, UpdateMode, str]
"""Name, type, default as it would be written in a file (None: there is none), valid values (None: all of the type),
importance, whether it can change while a broker runs, and what it means."""

BOOLEAN: Final = ConfigType.BOOLEAN
STRING: Final = ConfigType.STRING
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD

HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW

FIXED: Final = UpdateMode.READ_ONLY
PER_BROKER: Final = UpdateMode.PER_BROKER
CLUSTER: Final = UpdateMode.CLUSTER_WIDE

NOT_NEGATIVE: Final = Between(0)
POSITIVE: Final = Between(1)

INT_MAX_TEXT: Final = str(INT_MAX)
LONG_MAX_TEXT: Final = str(LONG_MAX)
