"""Where `barnabas consume` begins and ends in each partition, by what the cluster says of its offsets."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from barnabas.cli.kafka import positions
from barnabas.cli.kafka.consuming import Ending, _seek
from barnabas.cli.kafka.positions import Span

ENDS: Final = {0: (0, 5_774), 1: (7, 7), 2: (100, 120)}
"""Of each partition its first offset and the one after its last."""


class FakeConsumer:
    """Says where logs begin and end, or fails to."""

    def __init__(self) -> None:
        self.fails_at: int | None = None
        self.asked: list[int] = []
        self.error_of_last: KafkaError | None = None

    def offsets_for_times(self, asked: Sequence[TopicPartition], timeout: float) -> list[Any]:
        assert timeout > 0
        (what,) = {part.offset for part in asked}
        self.asked.append(what)
        if what == self.fails_at:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        which = (OFFSET_BEGINNING, OFFSET_END).index(what)
        found: list[Any] = [
            TopicPartition(part.topic, part.partition, ENDS[part.partition][which]) for part in asked
        ]
        if self.error_of_last is not None:
            found[-1] = SimpleNamespace(topic="events", partition=2, offset=-1, error=self.error_of_last)
        return found

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        """What librdkafka makes of it when the log's beginning is not told, and then its end is."""
        return 5_774, 5_774


def sought(consumer: FakeConsumer, span: Span) -> tuple[list[int], Ending]:
    wanted = [TopicPartition("events", partition) for partition in ENDS]
    ending = Ending(exits_at_end=True)
    ending.open = {(part.topic, part.partition) for part in wanted}
    _seek(cast(Consumer, consumer), wanted, span, ending)
    return [part.offset for part in wanted], ending


def test_all_partitions_are_sought_with_one_question_for_each_end() -> None:
    consumer = FakeConsumer()
    assert sought(consumer, Span(positions.BEGINNING))[0] == [0, 7, 100]
    assert sorted(consumer.asked) == sorted((OFFSET_BEGINNING, OFFSET_END))
    assert sought(consumer, Span(positions.END))[0] == [5_774, 7, 120]
    assert sought(consumer, Span(positions.TAIL, 10))[0] == [5_764, 7, 110]


@pytest.mark.parametrize("end", [OFFSET_BEGINNING, OFFSET_END])
def test_an_end_that_is_not_told_is_no_empty_log(end: int) -> None:
    consumer = FakeConsumer()
    consumer.fails_at = end
    with pytest.raises(KafkaException):
        sought(consumer, Span(positions.BEGINNING))


def test_an_end_that_one_partition_does_not_tell_is_no_empty_log_either() -> None:
    consumer = FakeConsumer()
    consumer.error_of_last = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(KafkaException):
        sought(consumer, Span(positions.BEGINNING))
