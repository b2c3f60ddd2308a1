"""Whether an append comes from the coordinator that owns the partition, and at the place that it means.

A coordinator says who it is (id and incarnation), under which coordinator epoch it owns the partition, and where it
expects the log to end. The leader holds all of it against its own metadata and log in the same step as the append, so
that neither a coordinator that lives on after its partition went elsewhere, nor a frame of a broken stream that
arrives late, can write.

What this protects from: clients, whatever they send through a gateway; a service with a mistaken address; a process
that was replaced and does not know it. Only those learn an incarnation id who follow the metadata.
What it does not protect from: whoever reaches the controller's port can follow the metadata, a gateway does, and
somebody on the wire between the services can listen. Only mutual TLS between the services keeps those out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.metadata_pb2 import CoordinatorRecord, PartitionRecord
from barnabas.messages.storage_pb2 import CoordinatorIdentity, PartitionAppend


@dataclass(frozen=True, slots=True)
class CoordinatorClaim:
    """What a coordinator says of itself in an append to one partition."""

    coordinator_id: str
    is_known: bool
    """Whether the metadata has this very process under the id."""
    coordinator_epoch: int
    expected_log_end: int | None
    """None when it does not say."""
    marker_transaction_version: int = 0
    """Of a marker: the version of the transaction that it ends."""

    def check_owner(self, partition: PartitionRecord, *, internal: bool) -> None:
        """Raise KafkaError unless the coordinator may write to the partition.

        NOT_COORDINATOR for an older epoch than the partition's, UNKNOWN_LEADER_EPOCH for a newer one (the metadata
        here is behind: to be tried again), CLUSTER_AUTHORIZATION_FAILED for somebody else under the current one. To a
        topic that no coordinator owns, every coordinator may write: that is where the markers of transactions go.
        """
        if internal:
            if self.coordinator_epoch != partition.coordinator_epoch:
                is_stale = self.coordinator_epoch < partition.coordinator_epoch
                raise KafkaError(
                    ErrorCode.not_coordinator if is_stale else ErrorCode.unknown_leader_epoch,
                    f"coordinator epoch {self.coordinator_epoch} was given, "
                    f"{partition.coordinator_epoch} is current",
                )
            if self.coordinator_id != partition.coordinator_id:
                raise self._stranger("does not own the partition")
        if not self.is_known:
            raise self._stranger("is not the process that the metadata knows under that id")

    def check_log_end(self, log_end_offset: int) -> None:
        """Raise KafkaError OFFSET_OUT_OF_RANGE unless the log ends where the coordinator expects."""
        if self.expected_log_end is not None and self.expected_log_end != log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"the log was expected to end at {self.expected_log_end}, it ends at {log_end_offset}",
            )

    def _stranger(self, reason: str) -> KafkaError:
        return KafkaError(
            ErrorCode.cluster_authorization_failed, f"coordinator {self.coordinator_id!r} {reason}"
        )


def claim_of(
    identity: CoordinatorIdentity, item: PartitionAppend, coordinators: Mapping[str, CoordinatorRecord]
) -> CoordinatorClaim:
    """What `identity` claims with `item`, seen with the metadata's `coordinators`."""
    known = coordinators.get(identity.coordinator_id)
    return CoordinatorClaim(
        coordinator_id=identity.coordinator_id,
        is_known=known is not None and known.incarnation_id == identity.incarnation_id,
        coordinator_epoch=item.coordinator_epoch,
        expected_log_end=item.expected_log_end if item.HasField("expected_log_end") else None,
        marker_transaction_version=item.marker_transaction_version,
    )
