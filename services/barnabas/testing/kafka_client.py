"""What the helpers do through librdkafka: topics, records in, records out, groups.

Clients of this module carry the id CLIENT_ID, by which injected faults leave them alone: a test's faults are for the
code under test, not for the test's own view of the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from barnabas.testing.failures import ClusterFailed, TimedOut
from barnabas.testing.record import Record

CLIENT_ID: Final = "barnabas-testing"
REQUEST_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.02
FETCH_COUNT_MAX: Final = 1_000
RECORDS_SHOWN: Final = 5

OffsetSpec: Any = _OffsetSpec  # without types of its own

Text = str | bytes | None
Sendable = Text | tuple[Text, Text]
"""A value, or (key, value)."""
Where = Callable[[Record], bool]
Lag = dict[tuple[str, int], int]
"""How many records a group still has to read, by (topic, partition)."""


class KafkaClient:
    """Owns one admin client and one producer, made when they are first needed; reading takes a consumer each time."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._config: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": CLIENT_ID,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,  # a cluster that a test kills is no news
        }
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._config)
        return self._admin

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer({**self._config, "enable.idempotence": True, "linger.ms": 0})
        return self._producer

    def close(self) -> None:
        """Let go of the connections; what was not sent yet is lost."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(0)
        self._admin = self._producer = None

    # --- topics

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Raises ClusterFailed for a refusal, such as one of a topic that is there already."""
        topic = NewTopic(name, partitions, 1, config=dict(config))
        # Most tests will need it, and librdkafka asks for its producer id only every 500 ms.
        _ = self.producer
        try:
            self.admin.create_topics([topic], request_timeout=REQUEST_SECONDS)[name].result(REQUEST_SECONDS)
        except KafkaException as error:
            raise ClusterFailed(f"cannot create topic {name}: {error.args[0].str()}") from error

    def delete_topic(self, name: str) -> None:
        """A topic that is not there is deleted already."""
        try:
            self.admin.delete_topics([name], request_timeout=REQUEST_SECONDS)[name].result(REQUEST_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise ClusterFailed(f"cannot delete topic {name}: {error.args[0].str()}") from error

    # --- records

    def produce(
        self,
        topic: str,
        values: Iterable[Sendable],
        *,
        partition: int,
        headers: list[tuple[str, Text]],
        timestamp_ms: int,
        timeout: float,
    ) -> list[Record]:
        """Send and wait for every acknowledgement; raises TimedOut or ClusterFailed."""
        producer = self.producer
        sent: list[Record] = []
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent.append(_record(message))
            else:
                errors.append(error)

        count = 0
        for item in values:
            key, value = item if isinstance(item, tuple) else (None, item)
            self._send(
                topic, value, key, partition, on_delivery=on_delivery, timestamp=timestamp_ms, headers=headers
            )
            count += 1
        waiting = producer.flush(timeout)
        if waiting:
            producer.purge()
            producer.flush(1)
            raise TimedOut(f"{waiting} of {count} records to {topic} were not acknowledged in {timeout:g} s")
        if errors:
            raise ClusterFailed(f"{len(errors)} of {count} records to {topic} failed: {errors[0].str()}")
        return sorted(sent, key=_place)

    def _send(self, *arguments: Any, **options: Any) -> None:
        while True:
            try:
                self.producer.produce(*arguments, **options)
            except BufferError:  # as full as it may be: wait for acknowledgements
                self.producer.poll(POLL_SECONDS)
            else:
                return

    def read(self, topic: str, count: int, *, timeout: float, where: Where | None) -> list[Record]:
        """All records from the first to the last of now or, if `count` fit by then, of that moment.

        Raises TimedOut when fewer than `count` fit `where` in `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        consumer = Consumer(
            {
                **self._config,
                "group.id": CLIENT_ID,  # librdkafka wants one; it never joins and never commits
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "fetch.error.backoff.ms": 20,
                "topic.metadata.refresh.fast.interval.ms": 20,
            }
        )
        try:
            partitions = _wait_for_partitions(consumer, topic, deadline)
            consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
            return _read(consumer, topic, partitions, count, deadline, timeout, where)
        finally:
            consumer.close()

    # --- groups

    def group_lag(self, group: str, topic: str | None) -> Lag:
        """The lag in each partition of `topic`, or in each that the group has committed an offset for."""
        committed = self._committed(group)
        wanted = [place for place in committed if topic is None or place[0] == topic]
        if topic is not None:
            description = self.admin.list_topics(topic, REQUEST_SECONDS).topics[topic]
            wanted = [(topic, index) for index in description.partitions]
        ends = self._offsets(wanted, OffsetSpec.latest())
        new = [place for place in wanted if place not in committed]
        starts = self._offsets(new, OffsetSpec.earliest()) if new else {}
        return {place: ends[place] - committed.get(place, starts.get(place, 0)) for place in sorted(wanted)}

    def group_members(self, group: str) -> int:
        """How many members the group has; 0 where there is no such group."""
        described = self.admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS)[group]
        try:
            return len(described.result(REQUEST_SECONDS).members)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.INVALID_GROUP_ID):
                return 0
            raise

    def _committed(self, group: str) -> dict[tuple[str, int], int]:
        asked = self.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_SECONDS
        )
        places = asked[group].result(REQUEST_SECONDS).topic_partitions
        return {(place.topic, place.partition): place.offset for place in places if place.offset >= 0}

    def _offsets(self, places: list[tuple[str, int]], spec: Any) -> dict[tuple[str, int], int]:
        if not places:
            return {}
        asked = self.admin.list_offsets(
            {TopicPartition(*place): spec for place in places}, request_timeout=REQUEST_SECONDS
        )
        return {
            (place.topic, place.partition): future.result(REQUEST_SECONDS).offset
            for place, future in asked.items()
        }


def _wait_for_partitions(consumer: Consumer, topic: str, deadline: float) -> list[int]:
    """The partitions of a topic that is perhaps only about to be made."""
    reason: object = "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            found = consumer.list_topics(topic, min(left, REQUEST_SECONDS)).topics[topic]
        except KafkaException as error:
            reason = error.args[0].str()
        else:
            if found.error is None and found.partitions:
                return sorted(found.partitions)
            reason = found.error.str() if found.error else "it has no partitions"
        time.sleep(POLL_SECONDS)
    raise TimedOut(f"topic {topic} was not there in time: {reason}")


def _read(
    consumer: Consumer,
    topic: str,
    partitions: list[int],
    count: int,
    deadline: float,
    timeout: float,
    where: Where | None,
) -> list[Record]:
    fitting: list[Record] = []
    others: list[Record] = []
    at_end, next_offsets = dict.fromkeys(partitions, False), dict.fromkeys(partitions, -1)
    ends: dict[int, int] | None = None
    while True:
        if ends is None and len(fitting) >= count and (count or all(at_end.values())):
            # Read on to what is the end now: a record too many is to be seen.
            ends = {index: _end(consumer, topic, index, deadline) for index in partitions}
        if ends is not None and all(
            at_end[index] or next_offsets[index] >= end for index, end in ends.items()
        ):
            return sorted(fitting, key=_place)
        if time.monotonic() > deadline:
            raise TimedOut(_what_was_there(topic, count, timeout, fitting, others))
        for message in consumer.consume(FETCH_COUNT_MAX, POLL_SECONDS):
            error = message.error()
            if error is None:
                record = _record(message)
                at_end[record.partition], next_offsets[record.partition] = False, record.offset + 1
                (fitting if where is None or where(record) else others).append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end[message.partition() or 0] = True


def _end(consumer: Consumer, topic: str, partition: int, deadline: float) -> int:
    left = max(POLL_SECONDS, deadline - time.monotonic())
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), left)[1])
    except KafkaException as error:
        raise TimedOut(f"the end of {topic}-{partition} is not known: {error.args[0].str()}") from error


def _what_was_there(
    topic: str, count: int, timeout: float, fitting: list[Record], others: list[Record]
) -> str:
    text = f"{len(fitting)} of {count} records came in topic {topic} within {timeout:g} s"
    if others:
        text += f", and {len(others)} that do not fit"
    return text + "".join(_lines("fits", fitting)) + "".join(_lines("does not fit", others))


def _lines(title: str, records: list[Record]) -> Iterator[str]:
    for record in records[:RECORDS_SHOWN]:
        yield f"\n  {title}: {record.partition}:{record.offset} key={record.key!r} value={record.value!r}"
    if len(records) > RECORDS_SHOWN:
        yield f"\n  ... and {len(records) - RECORDS_SHOWN} more"


def _place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset


def _record(message: Message) -> Record:
    kind, timestamp_ms = message.timestamp()
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        _as_bytes(message.key()),
        _as_bytes(message.value()),
        _headers(message),
        timestamp_ms if kind else -1,
    )


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    headers: list[tuple[str, Text]] = list(message.headers() or ())  # type: ignore[arg-type]
    return tuple((name, _as_bytes(value)) for name, value in headers)


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
