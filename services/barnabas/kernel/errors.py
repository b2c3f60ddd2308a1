"""The one error type that crosses layers, and Kafka's error table.

`ErrorCode` (from `kio`) is Kafka's own table: code, name, whether a client may retry, meaning. A part that
refuses something raises `KafkaError` with a code from that table and a message that says what to change; each
border (the gateway's dispatch, a service's servicer or handler) translates it once.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

__all__ = ["SENT_AGAIN", "ErrorCode", "KafkaError"]

SENT_AGAIN: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.kafka_storage_error,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""A batch that is refused with one of these is sent again by its client, under the same sequences. Gateway and log add
two each, by where they stand.
"""


class KafkaError(Exception):
    """A refusal that a client is to see: Kafka's error code and one line of advice.

    `message` may be empty where Kafka sends none. Never raised for a broken rule of ours: those assert.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name.upper()}: {message}" if message else code.name.upper())
        self.code = code
        self.message = message
