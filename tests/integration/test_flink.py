"""Flink 1.20 with its Kafka sink in EXACTLY_ONCE (kafka-clients 3.4): a job in one JVM that copies lines.

The sink commits a transaction for each checkpoint, after it; a job that begins anew commits those that its checkpoint
names, by their producers' ids and epochs, and aborts what came after them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from committed_records import CommittedReader
from confluent_kafka_client import WAIT_SECONDS, make_topic, producer_of
from java_program import JavaProgram, compiled, jars_of

pytestmark = pytest.mark.integration

PARTITIONS: Final = 2
LINES: Final = 1500
SECONDS_MAX: Final = 90.0
"""Far above what any step takes on a busy machine."""

SETTINGS: Final = {
    "execution.checkpointing.interval": "1 s",
    # What a checkpoint needs stays when its job is gone.
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled("FlinkJob.java", tmp_path_factory.mktemp("flink"), jars_of("flink-kafka"))


class Job:
    """The topics of a job, with all of its input, and the folder with its checkpoints."""

    def __init__(self, cluster: Any, topic: str, folder: Path, class_path: str, *, fails_at: str) -> None:
        self._cluster, self._topic, self._class_path, self._fails_at = cluster, topic, class_path, fails_at
        self._folder = folder
        self.failed = folder / "failed"
        make_topic(cluster, topic, PARTITIONS)
        make_topic(cluster, f"{topic}-copies", PARTITIONS)
        producer = producer_of(cluster)
        for number in range(LINES):
            producer.produce(topic, f"line {number}", partition=number % PARTITIONS)
        assert producer.flush(WAIT_SECONDS) == 0

    def run(self, **settings: str) -> JavaProgram:
        """The job in a JVM of its own, which it does not end by itself."""
        everything = {"execution.checkpointing.dir": self._folder.as_uri(), **SETTINGS}
        return JavaProgram(
            self._class_path,
            "FlinkJob",
            self._cluster.bootstrap,
            self._topic,
            self._fails_at,
            str(self.failed),
            *(f"{name}={value}" for name, value in {**everything, **settings}.items()),
            log=self._folder / "log",
        )

    def copies(self, **settings: Any) -> CommittedReader:
        return CommittedReader(self._cluster, f"{self._topic}-copies", PARTITIONS, **settings)

    def newest_checkpoint(self) -> str:
        """The address of the newest one that is whole, which its metadata say that it is."""
        found = [path.parent for path in self._folder.glob("*/chk-*/_metadata")]
        return max(found, key=lambda path: int(path.name.removeprefix("chk-"))).as_uri()


def test_each_line_is_copied_once_by_a_job_that_fails_and_is_killed(
    make_cluster: Callable[..., Any], class_path: str, tmp_path: Path
) -> None:
    """An exception on the way, then SIGKILL; it goes on from its newest checkpoint, and the broker is killed."""
    cluster = make_cluster()
    job = Job(cluster, "flink-once", tmp_path, class_path, fails_at=f"line {LINES // 4}")
    with job.copies() as copies:
        with job.run() as running:
            running.wait_for(job.failed.exists, SECONDS_MAX)
            running.wait_for(lambda: copies.has(LINES // 3), SECONDS_MAX)
        with job.run(**{"execution.state-recovery.path": job.newest_checkpoint()}) as running:
            running.wait_for(lambda: copies.has(LINES // 2), SECONDS_MAX)
            cluster.kill_and_wait("broker-1")
            running.wait_for(lambda: copies.has(LINES), SECONDS_MAX)
    with job.copies() as copies:
        found = sorted(record.value for record in copies.read_to_end())
    assert found == sorted(f"LINE {number}" for number in range(LINES))
