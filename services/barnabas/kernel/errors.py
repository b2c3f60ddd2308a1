"""The one error type that crosses layers, and Kafka's error table.

`ErrorCode` (from `kio`) is Kafka's own table: code, name, whether a client may retry, meaning. A part that
refuses something raises `KafkaError` with a code from that table and a message that says what to change; each
border (the gateway's dispatch, a service's servicer or handler) translates it once.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError"]


class KafkaError(Exception):
    """A refusal that a client is to see: Kafka's error code and one line of advice.

    `message` may be empty where Kafka sends none. Never raised for a broken rule of ours: those assert.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name.upper()}: {message}" if message else code.name.upper())
        self.code = code
        self.message = message
