"""One round: a cluster, its clients, the faults of a seed one after another, and the checks."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos_clients import PARTITIONS, JavaClients, LibrdkafkaGroup, LibrdkafkaProducer, Onlookers
from chaos_cluster import NODES, ChaosCluster
from chaos_copies import LibrdkafkaCopiers, ReaderOfCopies
from chaos_faults import Faults
from chaos_history import Judge, Recorder
from chaos_logs import check_copies, check_files
from chaos_plan import CONTROL, Fault
from chaos_processes import wait_for
from chaos_state import ClusterState
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from history import Place

TOPICS: Final = {"of-librdkafka": "readers-librdkafka", "of-java": "readers-java"}
"""And their groups."""
PLACES: Final = [Place(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
COPIES: Final = {"of-librdkafka": "copies-of-librdkafka", "of-java": "copies-of-java"}
"""Where each topic's records are written to in transactions, by a group named so as well."""
COPIED: Final = [Place(topic, partition) for topic in COPIES.values() for partition in range(PARTITIONS)]

SERVES_SECONDS_MAX: Final = 45.0
"""After a fault everything is served again within this: each partition takes records, they are read and committed, and
all replicas are in sync. What it took is in the table. Less than a client stands still before it is replaced
(`copying_worker.AGAIN_SECONDS_MAX`), or nobody would see that it did; more than a worker that hangs is left alone
(`chaos_copies.SILENCE_SECONDS_MAX`)."""

WAIT_SECONDS: Final = 60.0
BETWEEN_FAULTS_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Seen:
    """What a fault came to."""

    fault: Fault
    pauses: Sequence[float]
    """The longest time without an acknowledgement, of each partition."""
    serves_after: float
    """Seconds from its end until everything was served again."""


@dataclass(slots=True)
class Outcome:
    """What a round came to."""

    seed: int
    form: str
    protocol: str
    seen: list[Seen] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    acknowledged: int = 0
    read: int = 0
    latest_offsets: int = 0
    committed_offsets: int = 0
    copied: int = 0
    aborted: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def faults(self) -> list[Seen]:
        """What was seen of each fault: all but the control."""
        return [each for each in self.seen if each.fault.kind != CONTROL]


def run_round(
    seed: int,
    form: str,
    protocol: str,
    faults: Sequence[Fault],
    folder: Path,
    say: Callable[[str], None],
) -> Outcome:
    """Do the faults to a cluster of that form whose groups have that protocol; whatever is wrong is in the outcome's
    violations.
    """
    folder.mkdir(parents=True)
    outcome, judge = Outcome(seed, form, protocol), Judge()
    recorder = Recorder(judge, folder / "history.jsonl")
    cluster = ChaosCluster(folder, form)
    try:
        cluster.start()
        _make_topics(cluster.bootstrap)
        state = ClusterState(cluster.bootstrap, [*TOPICS, *COPIES.values()], len(NODES))
        with _clients(recorder, cluster, state, protocol, folder):
            state.wait_in_sync()
            doing = Faults(cluster, state, (*TOPICS, *COPIES.values()))
            _wait_served(recorder, state, cluster, time.monotonic())
            for number, fault in enumerate(faults, start=1):
                seen = _do(fault, doing, recorder, state, cluster)
                outcome.seen.append(seen)
                took = f"longest pause {max(seen.pauses):.2f} s, served after {seen.serves_after:.2f} s"
                say(f"{number:4} {fault}; {took}")
                if judge.violations:
                    break
                time.sleep(BETWEEN_FAULTS_SECONDS)
        if not judge.violations:
            cluster.stop()
            nodes = {name: disk.files for name, disk in cluster.disks.items()}
            check_files(judge, recorder.history, nodes, PLACES)
            outcome.copied, outcome.aborted = check_copies(judge, recorder.copies, nodes, COPIED)
    except (TimeoutError, AssertionError, ConnectionError, OSError) as error:
        judge.violate(f"{type(error).__name__}: {error}")
    finally:
        if judge.violations:
            _keep_logs(cluster, folder)
        cluster.close()
        recorder.close()
    outcome.violations = judge.violations
    outcome.acknowledged = recorder.history.acks
    outcome.read = sum(map(len, recorder.history.read.values()))
    outcome.latest_offsets = recorder.high_watermarks_seen
    outcome.committed_offsets = recorder.commits_seen
    outcome.errors = dict(recorder.errors)
    return outcome


def _make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + WAIT_SECONDS
    made = admin.create_topics(
        [
            NewTopic(topic, PARTITIONS, len(NODES), config={"min.insync.replicas": "2"})
            for topic in (*TOPICS, *COPIES.values())
        ]
    )
    for future in made.values():
        future.result(WAIT_SECONDS)
    for topic, group in (*TOPICS.items(), *COPIES.items()):
        # Groups begin at a committed offset: from then on a consumer that finds none has lost something.
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        beginning = [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        while True:
            try:
                consumer.commit(offsets=beginning, asynchronous=False)
                break
            except KafkaException:  # __consumer_offsets is being made
                assert time.monotonic() < deadline
                time.sleep(0.2)
        consumer.close()


@contextmanager
def _clients(
    recorder: Recorder, cluster: ChaosCluster, state: ClusterState, protocol: str, folder: Path
) -> Iterator[None]:
    """All clients at work; at the end everything that was acknowledged has been read and copied."""
    (first, group), (second, second_group) = TOPICS.items()
    bootstrap, copies = cluster.bootstrap, COPIES[second]
    java = JavaClients(recorder, bootstrap, second, second_group, copies, protocol, folder / "java.log")
    producer = LibrdkafkaProducer(recorder, cluster.bootstrap, first)
    consumers = LibrdkafkaGroup(recorder, cluster.bootstrap, first, group, protocol)
    copiers = LibrdkafkaCopiers(recorder, cluster.bootstrap, first, COPIES[first], COPIES[first], protocol)
    reader = ReaderOfCopies(recorder, cluster.bootstrap, list(COPIES.values()))
    onlookers = Onlookers(recorder, cluster.bootstrap, TOPICS)
    try:
        yield
        producer.stop()
        java.stop_producing()
        wait_for(lambda: not recorder.unread(), "all is read", WAIT_SECONDS, lambda: recorder.unread())
        wait_for(lambda: not recorder.uncopied(), "all is copied", WAIT_SECONDS, lambda: recorder.uncopied())
        wait_for(
            lambda: not state.open_transactions(),
            "no transaction is open",
            WAIT_SECONDS,
            state.open_transactions,
        )
        java.stop()
    finally:
        for each in (producer, consumers, copiers, reader, onlookers):
            each.stop()
        java.close()


def _do(fault: Fault, doing: Faults, recorder: Recorder, state: ClusterState, cluster: ChaosCluster) -> Seen:
    began = time.monotonic()
    recorder.note(f"begins: {fault}")
    try:
        doing.do(fault)
    except TimeoutError as error:
        recorder.judge.violate(f"{fault}: {error}")
    ended = time.monotonic()
    recorder.note(f"ends: {fault}")
    serves_after = _wait_served(recorder, state, cluster, ended, str(fault))
    recorder.note(f"served: {fault}")
    return Seen(
        fault, [_longest_pause(recorder.acknowledged_at[place], began) for place in PLACES], serves_after
    )


def _longest_pause(times: Sequence[float], began: float) -> float:
    """From the last acknowledgement before `began` on."""
    first = next((index for index in range(len(times) - 1, -1, -1) if times[index] < began), 0)
    return max((after - before for before, after in itertools.pairwise(times[first:])), default=0.0)


def _wait_served(
    recorder: Recorder, state: ClusterState, cluster: ChaosCluster, since: float, what: str = "the start"
) -> float:
    """Until all that clients do has been done again since then; a TimeoutError says what was not."""

    def missing() -> list[str]:
        late = [f"{name} ended by itself:\n{cluster.programs[name].tail()}" for name in cluster.dead()]
        for place in PLACES:
            if not recorder.acknowledged_at[place] or recorder.acknowledged_at[place][-1] < since:
                late.append(f"nothing is acknowledged in {place}")
            if recorder.read_at.get(place, 0.0) < since:
                late.append(f"nothing is read from {place}")
            if recorder.committed_at.get(place, 0.0) < since:
                late.append(f"nothing is committed for {place}")
            if recorder.copied_at.get(place, 0.0) < since:
                late.append(f"nothing is copied from {place}")
        return late

    def is_served() -> bool:
        return bool(recorder.judge.violations) or (not missing() and state.is_in_sync())

    return wait_for(
        is_served,
        f"everything is served after {what}",
        SERVES_SECONDS_MAX,
        lambda: "\n".join([*missing(), *state.describe()]),
    )


def _keep_logs(cluster: ChaosCluster, folder: Path) -> None:
    """The nodes' files, which would go with their disks."""
    for name, disk in cluster.disks.items():
        if disk.files.exists():
            os.system(f"cp -a '{disk.files}' '{folder / f'files-{name}'}'")
