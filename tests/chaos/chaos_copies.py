"""Records read, processed and written in transactions, by workers of librdkafka: a producers' topic is copied.

Two workers share a group, and each has a transactional id of its own. A reader of committed records is given all
copies.

A worker that says nothing for long is killed, and another one takes its transactional id: `send_offsets_to_transaction`
of librdkafka (2.16) may wait for ever for a group's coordinator that is no longer among the brokers (its issue 5511).
It is also what happens to a worker whose machine dies.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from chaos_clients import HERE, NOT_FAILURES, PARTITIONS, QUICK, Stopped
from chaos_history import Recorder
from confluent_kafka import Consumer, TopicPartition
from history import Place

WORKERS: Final = (1, 2)
SILENCE_SECONDS_MAX: Final = 15.0
"""Longer than any of the calls that come back."""
STOP_SECONDS_MAX: Final = 20.0
RECORDS_MAX: Final = 500


class LibrdkafkaCopiers(Stopped):
    """The workers of one group: owns their processes."""

    def __init__(
        self, recorder: Recorder, bootstrap: str, source: str, target: str, group: str, protocol: str
    ) -> None:
        super().__init__(recorder)
        self._source = source
        for number in WORKERS:
            self.run(self._work, [bootstrap, source, target, group, f"{group}-{number}", protocol])

    def _work(self, arguments: Sequence[str]) -> None:
        """One process after another."""
        while not self.is_stopping:
            with subprocess.Popen(
                [sys.executable, str(HERE / "copying_worker.py"), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as process:
                heard = [time.monotonic()]
                reader = threading.Thread(target=self._read, args=(process, heard), daemon=True)
                reader.start()
                while not self.is_stopping and process.poll() is None:
                    if time.monotonic() - heard[0] > SILENCE_SECONDS_MAX:
                        self.recorder.on_error("copying: a worker hung and was killed")
                        process.kill()
                    time.sleep(0.1)
                self._end(process)
                reader.join()
                if process.returncode not in (0, -signal.SIGKILL):
                    self.recorder.on_failure(f"a worker of librdkafka ended with {process.returncode}")

    def _end(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()

    def _read(self, process: subprocess.Popen[str], heard: list[float]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            heard[0] = time.monotonic()
            kind, _, rest = line.rstrip("\n").partition(" ")
            if kind == "T":
                self.recorder.on_copied(Place(self._source, int(rest)))
            elif kind == "E":
                self.recorder.on_error(" ".join(rest.split(" ")[:2]))
            elif kind == "F":
                self.recorder.on_failure(f"librdkafka's transactional worker: {rest}")


class ReaderOfCopies(Stopped):
    """Is given every record of the topics that was committed."""

    def __init__(self, recorder: Recorder, bootstrap: str, topics: Sequence[str]) -> None:
        super().__init__(recorder)
        self.run(self._read, bootstrap, topics)

    def _read(self, bootstrap: str, topics: Sequence[str]) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "of-copies",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 200,
                **QUICK,
            }
        )
        consumer.assign([TopicPartition(topic, each, 0) for topic in topics for each in range(PARTITIONS)])
        while not self.is_stopping:
            for message in consumer.consume(RECORDS_MAX, 0.2):
                error = message.error()
                if error is None:
                    place = Place(message.topic(), message.partition())
                    self.recorder.on_copy_read(place, message.offset(), message.value())
                elif error.fatal() or error.name() == "_AUTO_OFFSET_RESET":
                    self.recorder.on_failure(f"the copies cannot be read: {error}")
                elif error.code() not in NOT_FAILURES:
                    self.recorder.on_error(f"reader of copies: {error.name()}")
        consumer.close()
