"""Kafka Streams 4.3: one application that copies lines and counts words, as it is and with exactly-once turned on.

Its instances keep their counts in RocksDB, share the work by the classic protocol, and pass records on to one another
in a repartition topic. With exactly-once, what an instance reads and writes is one transaction after the other.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from committed_records import Committed, CommittedReader
from confluent_kafka import Producer
from confluent_kafka_client import WAIT_SECONDS, make_topic
from java_program import JavaProgram, compiled, jars_of

pytestmark = pytest.mark.integration

PARTITIONS: Final = 3
WORDS: Final = ["let", "there", "be", "light", "and", "there", "was", "light"]
SECONDS_MAX: Final = 90.0
"""Far above what any step takes on a busy machine."""

LINES: Final = 400
SERVICES: Final = ["gateway-1", "storage-1", "coordinator-1", "controller"]
STOPPED_BY_SIGTERM: Final = 128 + signal.SIGTERM

SOON_MISSED: Final = {
    "main.consumer.session.timeout.ms": "6000",
    "main.consumer.heartbeat.interval.ms": "1000",
}
"""Who is away is missed after six seconds, the least that brokers allow: Streams does not leave its group in order."""
EXACTLY_ONCE: Final = {
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": "100",
    "producer.transaction.timeout.ms": "6000",
}


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    jars = (jars_of("kafka-streams"), jars_of("kafka-tools"))
    return compiled("StreamsJob.java", tmp_path_factory.mktemp("streams"), *jars)


def line_of(number: int) -> str:
    """A number that no other line has, and two words that many have."""
    return f"{number} {WORDS[number % len(WORDS)]} {WORDS[number % 5]}"


class Application:
    """The topics of an application in one cluster, its input, and instances of it."""

    def __init__(self, cluster: Any, name: str, folder: Path, class_path: str, **settings: str) -> None:
        self._cluster, self.topic, self._folder, self._class_path = cluster, name, folder, class_path
        self._settings = {
            "bootstrap.servers": cluster.bootstrap,
            "application.id": name,
            **SOON_MISSED,
            **settings,
        }
        self.copies = f"{name}-copies"
        self.counts = f"{name}-counts"
        for topic in (self.topic, self.copies, self.counts):
            make_topic(cluster, topic, PARTITIONS)
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
            }
        )
        self._errors: list[Any] = []
        self.sent = 0

    def instance(self, name: str) -> JavaProgram:
        """One instance; the next one of the same name finds what this one kept on disk."""
        settings = {**self._settings, "state.dir": str(self._folder / name), "client.id": name}
        arguments = [f"{setting}={value}" for setting, value in settings.items()]
        log = self._folder / f"{name}.log"
        return JavaProgram(self._class_path, "StreamsJob", self.topic, *arguments, log=log)

    def send(self, count: int) -> None:
        """So many lines more, all acknowledged when this returns."""
        for number in range(self.sent, self.sent + count):
            self._producer.produce(
                self.topic,
                line_of(number),
                key=str(number),
                on_delivery=lambda error, _: self._errors.append(error),
            )
            self._producer.poll(0)
        assert self._producer.flush(WAIT_SECONDS) == 0
        self.sent += count
        assert self._errors == [None] * self.sent

    def wait_for_counts(self, instance: JavaProgram) -> None:
        """Return once as many updates are committed as there were words."""
        with CommittedReader(self._cluster, self.counts, PARTITIONS) as counts:
            instance.wait_for(lambda: counts.has(self.expected_counts().total()), SECONDS_MAX)

    def read(self, topic: str) -> list[Committed]:
        """All that is committed, partition by partition."""
        with CommittedReader(self._cluster, topic, PARTITIONS) as reader:
            return sorted(reader.read_to_end(), key=lambda record: record.partition)

    def expected_copies(self) -> list[Committed]:
        """The lines in capitals; a key has its partition in every topic."""
        return [Committed(line.partition, line.key, line.value.upper()) for line in self.read(self.topic)]

    def expected_counts(self) -> Counter[str]:
        return Counter(word for number in range(self.sent) for word in line_of(number).split())


def test_word_count_goes_on_after_a_restart(cluster: Any, class_path: str, tmp_path: Path) -> None:
    application = Application(cluster, "streams-words", tmp_path, class_path)
    for lines in (600, 300):
        application.send(lines)
        with application.instance("only") as instance:
            application.wait_for_counts(instance)
            assert instance.stop() == STOPPED_BY_SIGTERM, instance.log()
    counts = application.read(application.counts)
    # The last one of each word is there for whoever keeps a table; and what stopped in order did nothing again.
    assert {record.key: int(record.value) for record in counts} == application.expected_counts()
    assert len(counts) == application.expected_counts().total()
    assert application.read(application.copies) == application.expected_copies()


def test_each_line_counts_once_whatever_is_killed(
    make_cluster: Callable[..., Any], class_path: str, tmp_path: Path
) -> None:
    """Lines are under way whenever a service is killed, an instance that comes back, and one that does not."""
    cluster = make_cluster(flags=("--separate",))
    application = Application(cluster, "streams-once", tmp_path, class_path, **EXACTLY_ONCE)
    application.send(LINES)
    with ExitStack() as running:

        def start(name: str) -> JavaProgram:
            return running.enter_context(application.instance(name))

        copies = running.enter_context(CommittedReader(cluster, application.copies, PARTITIONS))
        first, second = start("first"), start("second")
        for service in SERVICES:
            copied = len(copies.records)
            second.wait_for(lambda copied=copied: copies.has(copied + 50), SECONDS_MAX)
            application.send(LINES)
            cluster.kill_and_wait(service)
        first.kill()
        first = start("first")  # its transactional id is on its disk: it fences the one before
        copied = len(copies.records)
        first.wait_for(lambda: copies.has(copied + LINES), SECONDS_MAX)
        application.send(LINES)
        second.kill()  # what it had under way is aborted when its time is over
        application.wait_for_counts(first)
    assert_exactly_once(application)


def assert_exactly_once(application: Application) -> None:
    """Each line is copied once and in order, and each count of each word was passed on once and in order."""
    assert application.read(application.copies) == application.expected_copies()
    updates: dict[str | None, list[int]] = {}
    for record in application.read(application.counts):
        updates.setdefault(record.key, []).append(int(record.value))
    expected = application.expected_counts()
    assert {word: len(counts) for word, counts in updates.items()} == expected
    assert all(counts == list(range(1, len(counts) + 1)) for counts in updates.values())
