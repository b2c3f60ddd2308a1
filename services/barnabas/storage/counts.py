"""What a node counts of its topics and of itself: plain numbers that handlers add to, shown by `metrics`.

They belong to the topic and not to its partitions, so that a partition that moves away takes nothing out of a counter,
which must never go back; they go with the last partition of the topic.
"""

from __future__ import annotations

from collections import Counter

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.histograms import SECONDS_BUCKETS, Histogram
from barnabas.links.stream_counts import StorageStreamCounts
from barnabas.log.flush_times import FlushTimes

NODE_FAULTS = frozenset(
    {
        int(ErrorCode.kafka_storage_error),
        int(ErrorCode.not_enough_replicas),
        int(ErrorCode.unknown_server_error),
    }
)
"""Codes of appends and reads that failed through no fault of the client's."""


class NodeCounts:
    """Owner of a node's counts and of those of its topics."""

    __slots__ = (
        "append_times",
        "flush_times",
        "isr_expands",
        "isr_shrinks",
        "read_times",
        "reassigned_bytes_in",
        "reassigned_bytes_out",
        "refused_appends",
        "replicated_bytes_in",
        "replicated_bytes_out",
        "streams",
        "topics",
    )

    def __init__(self, flush_times: FlushTimes) -> None:
        self.flush_times = flush_times
        self.streams = StorageStreamCounts()
        self.topics: dict[str, TopicCounts] = {}
        self.append_times = Histogram(SECONDS_BUCKETS)
        self.read_times = Histogram(SECONDS_BUCKETS)
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.replicated_bytes_in = self.replicated_bytes_out = 0
        self.reassigned_bytes_in = self.reassigned_bytes_out = 0
        """Of these, what was copied to replicas that a reassignment adds."""
        self.refused_appends: Counter[int] = Counter()
        """By Kafka's error code."""

    def add_partition(self, topic: str) -> TopicCounts:
        """The counts that one more partition of `topic` adds to."""
        counts = self.topics.setdefault(topic, TopicCounts(self))
        counts.partitions += 1
        return counts

    def remove_partition(self, topic: str) -> None:
        """A partition is no longer here."""
        counts = self.topics[topic]
        counts.partitions -= 1
        if not counts.partitions:
            del self.topics[topic]


class TopicCounts:
    """What was done for one topic since the process started, or since the topic came to this node."""

    __slots__ = (
        "appends",
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_appends",
        "failed_reads",
        "messages_in",
        "node",
        "partitions",
        "reads",
    )

    def __init__(self, node: NodeCounts) -> None:
        self.node = node
        self.partitions = 0
        self.messages_in = self.bytes_in = self.bytes_out = self.bytes_rejected = 0
        self.appends = self.failed_appends = self.reads = self.failed_reads = 0

    def on_refused_append(self, error_code: int, size_bytes: int) -> None:
        """An append was refused, with one of Kafka's error codes."""
        self.bytes_rejected += size_bytes
        self.failed_appends += error_code in NODE_FAULTS
        self.node.refused_appends[error_code] += 1

    def on_isr_change(self, before: int, after: int) -> None:
        """A partition led from here has `after` in-sync replicas, where it had `before`."""
        self.node.isr_shrinks += after < before
        self.node.isr_expands += after > before
