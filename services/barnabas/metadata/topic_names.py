"""Which names a topic may have (Kafka's rules)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError

TOPIC_NAME_LENGTH_MAX: Final = 249
"""Characters; longer ones would not fit a directory name together with the partition."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]*\Z")


def check_topic_name(name: str) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION when the name is not legal."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {problem}")


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION when the name differs from another only in '.' and '_'.

    Names of metrics write both the same way.
    """
    if "." not in name and "_" not in name:
        return
    unified = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == unified:
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"Topic '{name}' collides with existing topic: {other} ('.' and '_' count as the same)",
            )


def topic_name_problem(name: str) -> str | None:
    """What is wrong with the name; None when it is legal."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"its length {len(name)} is above the limit of {TOPIC_NAME_LENGTH_MAX}"
    if not _LEGAL.match(name):
        return f"'{name}' has characters other than ASCII letters and digits, '.', '_' and '-'"
    return None
