"""What the controller counts for as long as its process lives, over all terms in which it was active."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.kernel.histograms import MILLISECONDS_BUCKETS, Histogram
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.image import NO_LEADER, MetadataImage


class ControllerCounts:
    """Plain numbers; times are in ms."""

    __slots__ = (
        "elected_partitions",
        "election_times",
        "processing_times",
        "queue_times",
        "timed_out_nodes",
        "unclean_elections",
    )

    def __init__(self) -> None:
        self.queue_times = Histogram(MILLISECONDS_BUCKETS)
        self.processing_times = Histogram(MILLISECONDS_BUCKETS)
        self.election_times = Histogram(MILLISECONDS_BUCKETS)
        self.elected_partitions = 0
        self.unclean_elections = 0
        self.timed_out_nodes = 0

    def on_stored(
        self, before: MetadataImage, records: Iterable[MetadataRecord], elapsed_ms: float
    ) -> Sequence[PartitionRecord]:
        """`records` were stored over the image `before`: count the leaders that changed.

        Returns the partitions whose new leaders may lack committed records.
        """
        elected = 0
        unclean = []
        for record in records:
            if record.WhichOneof("value") != "partition":
                continue
            after = record.partition
            known = before.partition(after.topic_id, after.partition)
            if known is None or after.leader in (known.leader, NO_LEADER):
                continue
            elected += 1
            if _is_unclean(known, after):
                unclean.append(after)
        if elected:
            self.elected_partitions += elected
            self.election_times.observe(elapsed_ms)
        self.unclean_elections += len(unclean)
        return unclean


def _is_unclean(before: PartitionRecord, after: PartitionRecord) -> bool:
    """Whether the leader may lack committed records: others may have them, and it was not known to have them all. Who a
    reassignment added came into the ISR as that ended.
    """
    was_added = after.leader in before.adding_replicas and after.leader not in after.adding_replicas
    had_everything = after.leader in before.isr or after.leader in before.eligible_leader_replicas
    return not had_everything and not was_added and len(after.replicas) > 1
