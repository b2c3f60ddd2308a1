"""Clients that work while things fail, librdkafka's and Java's: an idempotent producer and a group that commits."""

from __future__ import annotations

import itertools
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from chaos_history import Recorder
from chaos_plan import PROTOCOLS
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from history import Place
from kafka_tools import JARS, START_QUICKLY
from raw_client import LIST_OFFSETS, RawConnection

PARTITIONS: Final = 3
PAUSE_SECONDS: Final = 0.02
"""Between two records of a producer for each partition."""
COMMIT_SECONDS: Final = 0.3
LOOK_SECONDS: Final = 0.2
LATEST: Final = -1
ANSWER_SECONDS_MAX: Final = 5.0
FLUSH_SECONDS_MAX: Final = 90.0
HERE: Final = Path(__file__).resolve().parent

QUICK: Final[Mapping[str, Any]] = {
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 10_000,
    "log_level": 0,
}
NOT_FAILURES: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT})


class Stopped:
    """Threads that run until they are told to stop; what one of them raises is a failure."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def run(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=self._guard, args=(work, *arguments), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guard(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:
            self.recorder.on_failure(f"{work.__name__} ended: {error!r}")

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class LibrdkafkaProducer(Stopped):
    """An idempotent producer."""

    def __init__(self, recorder: Recorder, bootstrap: str, topic: str) -> None:
        super().__init__(recorder)
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 600_000,
                "error_cb": self._on_error,
                **QUICK,
            }
        )
        self.run(self._produce)

    def _produce(self) -> None:
        number = 0
        while not self.is_stopping:
            for partition in range(PARTITIONS):
                value = f"idempotent-librdkafka-{partition}:{number}:{'x' * 100}"
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
            number += 1
            self._producer.poll(PAUSE_SECONDS)
            until = time.monotonic() + PAUSE_SECONDS / 2
            while (left := until - time.monotonic()) > 0:
                self._producer.poll(left)
        left_over = self._producer.flush(FLUSH_SECONDS_MAX)
        if left_over:
            self.recorder.on_failure(f"{left_over} records were not acknowledged after the last fault")

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is not None:
            self.recorder.on_failure(f"{value[:40]!r} is refused: {error}")
            return
        # Of a batch that was written before, librdkafka does not know where.
        offset = -1 if message.offset() is None else message.offset()
        self.recorder.on_acknowledged(Place(message.topic(), message.partition()), offset, value)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.recorder.on_failure(f"librdkafka's producer: {error}")
        else:
            self.recorder.on_error(f"producer: {error.name()}")


class LibrdkafkaGroup(Stopped):
    """Two members of a group, which commit by hand."""

    def __init__(self, recorder: Recorder, bootstrap: str, topic: str, group: str, protocol: str) -> None:
        super().__init__(recorder)
        settings = {"bootstrap.servers": bootstrap, "group.id": group, **PROTOCOLS[protocol]}
        for number in (1, 2):
            self.run(self._consume, settings, topic, f"member {number}")

    def _consume(self, settings: Mapping[str, Any], topic: str, name: str) -> None:
        consumer = Consumer(
            {
                **settings,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "fetch.wait.max.ms": 200,
                "error_cb": self._on_error,
                **QUICK,
            }
        )
        positions: dict[Place, int] = {}
        consumer.subscribe(
            [topic],
            on_revoke=lambda *_: self._commit(consumer, positions),
            on_lost=lambda *_: positions.clear(),
        )
        commits_at = time.monotonic() + COMMIT_SECONDS
        while not self.is_stopping:
            message = consumer.poll(0.1)
            if message is not None:
                self._take(message, name, positions)
            if time.monotonic() > commits_at:
                self._commit(consumer, positions)
                commits_at = time.monotonic() + COMMIT_SECONDS
        self._commit(consumer, positions)
        consumer.close()

    def _take(self, message: Message, name: str, positions: dict[Place, int]) -> None:
        error = message.error()
        if error is None:
            place = Place(message.topic(), message.partition())
            self.recorder.on_read(place, message.offset(), message.value(), name)
            positions[place] = message.offset() + 1
        elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            self.recorder.on_failure(f"{name} of the group cannot read: {error}")
        else:
            self.recorder.on_error(f"consumer: {error.name()}")

    def _commit(self, consumer: Consumer, positions: dict[Place, int]) -> None:
        if not positions:
            return
        known = {place: self.recorder.committed.get(place, 0) for place in positions}
        offsets = [TopicPartition(*place, offset) for place, offset in positions.items()]
        try:
            done = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self.recorder.on_error(f"commit: {error.args[0].name()}")
        else:
            for each in done:
                if each.error is None:
                    place = Place(each.topic, each.partition)
                    self.recorder.on_committed(place, each.offset, known[place])
        positions.clear()

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.recorder.on_failure(f"librdkafka's consumer: {error}")
        else:
            self.recorder.on_error(f"consumer: {error.name()}")


class Onlookers(Stopped):
    """Ask again and again for the partitions' latest offsets, and for what the groups have committed."""

    def __init__(self, recorder: Recorder, bootstrap: str, groups: Mapping[str, str]) -> None:
        """`groups` by topic."""
        super().__init__(recorder)
        ports = [int(address.rpartition(":")[2]) for address in bootstrap.split(",")]
        for topic, group in groups.items():
            settings = {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                **QUICK,
            }
            self.run(self._look_at_watermarks, ports, topic)
            self.run(self._look_at_commits, settings, topic)

    def _look_at_watermarks(self, ports: Sequence[int], topic: str) -> None:
        """Each gateway in turn. A client of their own tells the leader epoch, which librdkafka keeps to itself."""
        partitions = [
            {"partition_index": partition, "current_leader_epoch": -1, "timestamp": LATEST}
            for partition in range(PARTITIONS)
        ]
        topics = [{"name": topic, "partitions": partitions}]
        body = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        for port in itertools.cycle(ports):
            known = {p: self.recorder.latest_offsets(Place(topic, p)) for p in range(PARTITIONS)}
            try:
                with RawConnection(port, ANSWER_SECONDS_MAX) as connection:
                    answer = connection.ask(LIST_OFFSETS, 6, body)
            except OSError as error:
                self.recorder.on_error(f"latest offset: {type(error).__name__}")
            else:
                for each in answer.topics[0].partitions:
                    place = Place(topic, each.partition_index)
                    if each.error_code:
                        self.recorder.on_error(f"latest offset: {each.error_code.name}")
                    else:
                        self.recorder.on_latest_offset(
                            place, known[place.partition], each.leader_epoch, each.offset
                        )
            if self.is_stopping:
                return
            time.sleep(LOOK_SECONDS)

    def _look_at_commits(self, settings: Mapping[str, Any], topic: str) -> None:
        with _closing(Consumer(dict(settings))) as client:
            while not self.is_stopping:
                known = dict(self.recorder.committed)
                asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
                try:
                    answers = client.committed(asked, timeout=5)
                except KafkaException as error:
                    self.recorder.on_error(f"committed offset: {error.args[0].name()}")
                else:
                    for each in answers:
                        if each.error is None:
                            place = Place(topic, each.partition)
                            self.recorder.on_committed_offset(place, known.get(place, 0), max(0, each.offset))
                time.sleep(LOOK_SECONDS)


@contextmanager
def _closing(client: Consumer) -> Iterator[Consumer]:
    try:
        yield client
    finally:
        client.close()


class JavaClients:
    """Owns the JVM of ChaosClient.java and a thread that reads what it tells."""

    def __init__(
        self,
        recorder: Recorder,
        bootstrap: str,
        topic: str,
        group: str,
        copies: str,
        protocol: str,
        log: Path,
    ) -> None:
        """`copies` is the topic that records are copied to, and the group of those who do."""
        assert any(JARS.glob("kafka-clients-*.jar")), f"{JARS} is empty: `make jars` fetches Kafka's client"
        self._recorder = recorder
        self._topic = topic
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        pause_ms = str(round(PAUSE_SECONDS * 1000))
        arguments = [bootstrap, topic, str(PARTITIONS), group, copies, pause_ms, protocol]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                ["java", *START_QUICKLY, "-cp", f"{JARS}/*", str(HERE / "ChaosClient.java"), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, rest = line.rstrip("\n").partition(" ")
            if kind == "T":
                self._recorder.on_copied(Place(self._topic, int(rest)))
            elif kind in ("A", "R", "C"):
                self._take(kind, rest.split(" "))
            elif kind == "E":
                self._recorder.on_error(f"java {rest}")
            elif kind == "F":
                self._recorder.on_failure(f"java: {rest}")
            elif kind == "D":
                self._done.put(rest)
            else:  # a line of the library's log
                self._recorder.on_error(f"java's log: {line.rpartition(']')[2].strip()}")
        self._done.put("ended")

    def _take(self, kind: str, words: Sequence[str]) -> None:
        place, offset = Place(self._topic, int(words[0])), int(words[1])
        if kind == "A":
            self._recorder.on_acknowledged(place, offset, words[2].encode())
        elif kind == "R":
            self._recorder.on_read(place, offset, words[2].encode(), "java's member")
        else:
            self._recorder.on_committed(place, offset, self._recorder.committed.get(place, 0))

    def stop_producing(self) -> None:
        self._end("produced")

    def stop(self) -> None:
        self._end("consumed")
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _end(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        try:
            told = self._done.get(timeout=FLUSH_SECONDS_MAX)
        except queue.Empty:
            told = "nothing"
        if told != what:
            self._recorder.on_failure(f"java's clients should say {what!r}, and say {told!r}")
