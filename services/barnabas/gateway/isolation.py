"""The isolation levels of those who read."""

from __future__ import annotations

from enum import IntEnum

from barnabas.gateway.request import Request
from barnabas.kernel import kafka_values
from barnabas.kernel.errors import ErrorCode, KafkaError


class IsolationLevel(IntEnum):
    """What a reader sees of transactions (KIP-98)."""

    READ_UNCOMMITTED = kafka_values.READ_UNCOMMITTED
    READ_COMMITTED = kafka_values.READ_COMMITTED


def known_isolation_level(request: Request) -> IsolationLevel:
    """The isolation level of a Fetch or ListOffsets request; versions without one read all.

    Raises KafkaError INVALID_REQUEST for any other number.
    """
    level: int = request.get("isolation_level", IsolationLevel.READ_UNCOMMITTED)
    try:
        return IsolationLevel(level)
    except ValueError:
        message = f"Unknown isolation level {level}: use 0 (read uncommitted) or 1 (read committed)."
        raise KafkaError(ErrorCode.invalid_request, message) from None
