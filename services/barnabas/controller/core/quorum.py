"""Who keeps the metadata and how far each copy is, in KRaft's terms (KIP-595, KIP-836).

The metadata store is the log, its revision the offset. Every controller reads the one store when it takes over, so a
voter is never behind it; storage nodes follow the active controller's stream and are observers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.kernel.kafka_values import INT_MAX
from barnabas.messages.controller_pb2 import DescribeQuorumResponse, QuorumReplica

UNKNOWN_TIMESTAMP: Final = -1


class Progress(NamedTuple):
    """How far one stream of metadata is. `caught_up_at_ms` is -1 while it never had all there was."""

    sent_revision: int
    sent_at_ms: int
    caught_up_at_ms: int


def describe_quorum(
    *,
    leader_id: int,
    elected_at_revision: int,
    revision: int,
    voters: Mapping[int, str],
    observers: Iterable[tuple[int, Progress]],
    now_ms: int,
) -> DescribeQuorumResponse:
    """The answer as of now. `voters` are the controllers by id, with the address that other services reach them at.

    The leader epoch is the store's revision at the election: it rises with every election, in steps of any size.
    """
    return DescribeQuorumResponse(
        leader_id=leader_id,
        leader_epoch=min(elected_at_revision, INT_MAX),
        high_watermark=revision,
        voters=[
            QuorumReplica(
                replica_id=controller_id,
                log_end_offset=revision,
                last_fetch_timestamp_ms=now_ms,
                last_caught_up_timestamp_ms=now_ms,
                address=address,
            )
            for controller_id, address in sorted(voters.items())
        ],
        observers=[_observer(node_id, progress, revision, now_ms) for node_id, progress in sorted(observers)],
    )


def _observer(node_id: int, progress: Progress, revision: int, now_ms: int) -> QuorumReplica:
    """A node whose stream has nothing left to send asks for more at every moment, and has all there is."""
    is_current = progress.sent_revision >= revision
    return QuorumReplica(
        replica_id=node_id,
        log_end_offset=progress.sent_revision,
        last_fetch_timestamp_ms=now_ms if is_current else progress.sent_at_ms,
        last_caught_up_timestamp_ms=now_ms if is_current else progress.caught_up_at_ms,
    )
