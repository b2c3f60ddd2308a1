"""Which error codes an answer holds, and which of them are the cluster's fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas.kernel.errors import ErrorCode

CLUSTER_FAULTS: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.unknown_server_error,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.broker_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.not_controller,
        ErrorCode.kafka_storage_error,
        ErrorCode.offset_not_available,
    )
)
"""Codes that a client hears although it did nothing wrong: the cluster could not do what it is there for.

A gateway routes by its own metadata, so here NOT_LEADER_OR_FOLLOWER is not, as in Kafka, a client's way to learn of a
new leader: there is none, or it is away. LEADER_NOT_AVAILABLE is not in the list: in Metadata it is the right answer.
"""


def error_codes(body: Mapping[str, Any]) -> Iterator[int]:
    """Every error code in an answer, at any depth; 0 is left out."""
    for name, value in body.items():
        if name in ("error_code", "partition_error_code"):
            if value:
                yield int(value)
        elif type(value) is list or type(value) is tuple:
            for item in value:
                if isinstance(item, dict):
                    yield from error_codes(item)
