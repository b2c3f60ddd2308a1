"""The error codes that replicas answer with, as the numbers that answers carry."""

from __future__ import annotations

from typing import Final

from barnabas.kernel.errors import ErrorCode

NOT_LEADER: Final = int(ErrorCode.not_leader_or_follower)
FENCED_EPOCH: Final = int(ErrorCode.fenced_leader_epoch)
UNKNOWN_EPOCH: Final = int(ErrorCode.unknown_leader_epoch)
STORAGE_ERROR: Final = int(ErrorCode.kafka_storage_error)
REMOVED: Final = int(ErrorCode.unknown_topic_or_partition)
