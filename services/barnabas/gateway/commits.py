"""Offsets that a request commits: which of them go to the group's coordinator, and the answer for each in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    OffsetCommitPartition,
    OffsetCommitPartitionResult,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResult,
)
from barnabas.metadata.image import MetadataImage, TopicImage

_NOT_KNOWN_HERE: Final = None


class Commits:
    """The partitions of one request, sorted out by one image of the metadata; owns nothing."""

    def __init__(self, image: MetadataImage, topics: Sequence[Any], *, by_id: bool = False) -> None:
        """`topics` are the request's; they are named by their ids if `by_id`."""
        self._topics = topics
        self._by_id = by_id
        self._codes: list[list[ErrorCode | None]] = []
        """For each partition the error known here, or None."""
        self.existing: list[OffsetCommitTopic] = []
        """What the coordinator is to be asked for."""
        for wanted in topics:
            self._sort_out(image, wanted)

    def _sort_out(self, image: MetadataImage, wanted: Any) -> None:
        topic, missing = self._find(image, wanted)
        count = 0 if topic is None else len(topic.partitions)
        codes = [
            _NOT_KNOWN_HERE if 0 <= partition.partition_index < count else missing
            for partition in wanted.partitions
        ]
        self._codes.append(codes)
        known = [
            _partition(partition)
            for partition, code in zip(wanted.partitions, codes, strict=True)
            if code is _NOT_KNOWN_HERE
        ]
        if topic is not None and known:
            self.existing.append(
                OffsetCommitTopic(name=topic.name, partitions=known, topic_id=topic.topic_id)
            )

    def _find(self, image: MetadataImage, wanted: Any) -> tuple[TopicImage | None, ErrorCode]:
        """The topic, and the error of its partitions that do not exist."""
        missing = ErrorCode.unknown_topic_or_partition
        if not self._by_id:
            return image.topics.get(wanted.name), missing
        topic = image.topics_by_id.get(wanted.topic_id.bytes) if wanted.topic_id else None
        return topic, missing if topic is not None else ErrorCode.unknown_topic_id

    def refused(self, code: ErrorCode) -> OffsetCommitResponse:
        """Every partition with `code`: the protocol has no place for an error of the whole."""
        return OffsetCommitResponse(
            topics=[
                OffsetCommitTopicResult(
                    name=topic.name,
                    partitions=[
                        OffsetCommitPartitionResult(partition=partition.partition, error_code=code)
                        for partition in topic.partitions
                    ],
                )
                for topic in self.existing
            ]
        )

    def rows(self, told: Sequence[int]) -> list[dict[str, Any]]:
        """The topics of the answer, from the codes of those partitions that the coordinator was asked for."""
        answered = iter(told)
        return [
            self._row(topic, [next(answered) if code is _NOT_KNOWN_HERE else code for code in codes])
            for topic, codes in zip(self._topics, self._codes, strict=True)
            if codes  # Kafka does not answer for a topic without partitions
        ]

    def _row(self, topic: Any, codes: list[int]) -> dict[str, Any]:
        return {
            "name": "" if self._by_id else topic.name,
            "topic_id": topic.topic_id.bytes if self._by_id and topic.topic_id else b"",
            "partitions": [
                {"partition_index": partition.partition_index, "error_code": code}
                for partition, code in zip(topic.partitions, codes, strict=True)
            ],
        }


def codes_of(response: OffsetCommitResponse) -> list[int]:
    """The codes in the order of the partitions that were asked for."""
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def _partition(partition: Any) -> OffsetCommitPartition:
    return OffsetCommitPartition(
        partition=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=getattr(partition, "committed_leader_epoch", -1),
        metadata=partition.committed_metadata,
    )
