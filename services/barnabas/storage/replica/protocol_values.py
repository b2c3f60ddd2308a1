"""Values of Kafka's protocol that replicas go by."""

from __future__ import annotations

from typing import Final

from barnabas.kernel.errors import ErrorCode

NO_EPOCH: Final = -1
"""A leader epoch that is not known, or not said."""

ALL_REPLICAS: Final = -1
"""acks=all."""

NOT_LEADER: Final = int(ErrorCode.not_leader_or_follower)
FENCED_EPOCH: Final = int(ErrorCode.fenced_leader_epoch)
UNKNOWN_EPOCH: Final = int(ErrorCode.unknown_leader_epoch)
STORAGE_ERROR: Final = int(ErrorCode.kafka_storage_error)
REMOVED: Final = int(ErrorCode.unknown_topic_or_partition)
