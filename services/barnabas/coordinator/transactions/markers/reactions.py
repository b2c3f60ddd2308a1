"""What follows from the code that a partition's leader or owner answers to a marker with."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from barnabas.kernel.errors import ErrorCode


class Reaction(enum.Enum):
    """What the coordinator does next about the partition."""

    TOLD = "told"
    """It has the marker, or will never need one."""
    AGAIN = "again"
    """It is told again, soon: it moves, opens, lacks replicas, or is slow."""
    OVERTAKEN = "overtaken"
    """It has heard of a newer epoch of the producer, from a newer coordinator or an administrator. Nothing is open
    there that this marker could ever end, so it counts as told. Should this coordinator be none any more, it cannot
    write that the transaction is complete. (Kafka gives up, and one marker of an administrator's leaves the id stuck.)
    """
    GIVE_UP = "give up"
    """A newer coordinator has spoken for this transactional id: this one may be none any more, and tells nobody of the
    transaction for a while."""


REACTIONS: Final[Mapping[ErrorCode, Reaction]] = {
    ErrorCode.none: Reaction.TOLD,
    ErrorCode.unsupported_for_message_format: Reaction.TOLD,
    ErrorCode.unsupported_version: Reaction.TOLD,
    ErrorCode.invalid_producer_epoch: Reaction.OVERTAKEN,
    ErrorCode.transaction_coordinator_fenced: Reaction.GIVE_UP,
    ErrorCode.unknown_topic_or_partition: Reaction.AGAIN,
    ErrorCode.unknown_topic_id: Reaction.AGAIN,
    ErrorCode.not_leader_or_follower: Reaction.AGAIN,
    ErrorCode.leader_not_available: Reaction.AGAIN,
    ErrorCode.fenced_leader_epoch: Reaction.AGAIN,
    ErrorCode.unknown_leader_epoch: Reaction.AGAIN,
    ErrorCode.not_enough_replicas: Reaction.AGAIN,
    ErrorCode.not_enough_replicas_after_append: Reaction.AGAIN,
    ErrorCode.request_timed_out: Reaction.AGAIN,
    ErrorCode.network_exception: Reaction.AGAIN,
    ErrorCode.kafka_storage_error: Reaction.AGAIN,
    ErrorCode.not_coordinator: Reaction.AGAIN,
    ErrorCode.coordinator_not_available: Reaction.AGAIN,
    ErrorCode.coordinator_load_in_progress: Reaction.AGAIN,
    # The node has not heard of this process yet; or not of another one under its id, which will be told itself.
    ErrorCode.cluster_authorization_failed: Reaction.AGAIN,
}
"""Kafka's, but for its fatal errors, which are not in this table: those are tried again, too, and told in the log."""
