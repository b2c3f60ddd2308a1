"""What the storage node's error codes mean to the owner of a partition, and what its clients are told."""

from __future__ import annotations

from typing import Final

from barnabas.coordinator.runtime.kind import UnreadableRecord
from barnabas.kernel.errors import ErrorCode, KafkaError

NOT_OPENED_YET: Final = frozenset({ErrorCode.unknown_topic_id, ErrorCode.not_leader_or_follower})
"""What a storage node says of a log that it is about to open: nothing to worry about while loading."""

NOT_TAKEN: Final = frozenset({ErrorCode.kafka_storage_error, ErrorCode.not_enough_replicas})
"""The leader would take the append, were it not for its disk or its followers: nothing is gained by waiting for it."""

PASSING: Final = NOT_TAKEN | {
    ErrorCode.coordinator_not_available,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.leader_not_available,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.not_leader_or_follower,
    ErrorCode.request_timed_out,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.unknown_topic_id,
    ErrorCode.unknown_topic_or_partition,
}
"""What passes: the disk, the followers or the leader come back, or the metadata does, here or there."""

LOG_MOVED: Final = frozenset({ErrorCode.offset_out_of_range})
"""The log does not end where our last write does: an earlier one that was given up has landed."""

_FOR_CLIENTS: Final = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_not_available: ErrorCode.coordinator_not_available,
    ErrorCode.unknown_leader_epoch: ErrorCode.coordinator_not_available,
    ErrorCode.offset_out_of_range: ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.not_coordinator: ErrorCode.not_coordinator,
    ErrorCode.fenced_leader_epoch: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    # Of a producer that the log's leader knows better: once the partition is loaded anew, that is known here, too.
    ErrorCode.invalid_producer_epoch: ErrorCode.coordinator_load_in_progress,
    ErrorCode.invalid_txn_state: ErrorCode.coordinator_load_in_progress,
    ErrorCode.transaction_coordinator_fenced: ErrorCode.coordinator_load_in_progress,
}
"""What a client is told when a partition is dropped, by the storage node's code; else UNKNOWN_SERVER_ERROR."""


def for_client(error: KafkaError | UnreadableRecord) -> KafkaError:
    """The error that a client understands when `error` came from the log."""
    if isinstance(error, UnreadableRecord):
        return KafkaError(ErrorCode.coordinator_not_available)
    return KafkaError(_FOR_CLIENTS.get(error.code, ErrorCode.unknown_server_error), error.message)
