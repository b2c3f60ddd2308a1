"""Three real Kafka brokers: the first is the controller as well, and is never stopped."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from raw_client import METADATA, RawConnection
from real_kafka import NODE_ID, READY_SECONDS_MAX, START_QUICKLY, RealKafka

SMALL: Final = (*START_QUICKLY[:-1], "-Xmx256m")
BROKERS: Final = (1, 2, 3)

REPLICATED_INSIDE: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
"""What a broker that is alone must not have: Kafka's own defaults again."""


class RealKafkaCluster:
    """Owns the brokers 1, 2 and 3, from `start` to `close`; `settings` are all brokers'.

    `host` names the loopback address to clients; `first_port` is the first broker's, and the others' follow it.
    `log_dirs` are the directories of each, `racks` where they stand.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        jvm_flags: tuple[str, ...] = SMALL,
        host: str = "127.0.0.1",
        first_port: int | None = None,
        log_dirs: tuple[str, ...] = ("",),
        racks: Mapping[int, str] | None = None,
    ) -> None:
        self._host, self._first_port = host, first_port
        self._log_dirs, self._racks = log_dirs, racks or {}
        self._folder = Path(tempfile.mkdtemp(prefix="real-kafka-cluster-"))
        first = self._broker(NODE_ID, None, settings, jvm_flags)
        self._brokers = {NODE_ID: first} | {
            broker: self._broker(broker, first.controller_port, settings, jvm_flags)
            for broker in BROKERS
            if broker != NODE_ID
        }
        self.version = self._brokers[NODE_ID].version
        self.ports = {broker: kafka.port for broker, kafka in self._brokers.items()}
        self.port = self.ports[NODE_ID]
        self.bootstrap = ",".join(kafka.bootstrap for kafka in self._brokers.values())

    def __enter__(self) -> Self:
        try:
            return self._start_all()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop(self, broker: int, *, kill: bool = False) -> None:
        """End one broker, in order or with SIGKILL."""
        assert broker != NODE_ID, "the controller is in this one"
        if kill:
            self._brokers[broker].kill()
        else:
            self._brokers[broker].stop()

    def start(self, broker: int) -> None:
        """Start one that was stopped, and return when clients are told of it."""
        self._brokers[broker].start()
        self._wait_joined({broker})

    @contextlib.contextmanager
    def paused(self, broker: int) -> Iterator[None]:
        """One broker is frozen while the context is open."""
        self._brokers[broker].pause()
        try:
            yield
        finally:
            self._brokers[broker].resume()

    def log(self) -> str:
        """The end of what each broker wrote to its output."""
        return "\n".join(f"--- broker {broker}\n{kafka.log()}" for broker, kafka in self._brokers.items())

    def close(self) -> None:
        """End all and remove their folders."""
        for kafka in self._brokers.values():
            kafka.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _broker(
        self,
        broker: int,
        controller_port: int | None,
        settings: Mapping[str, str] | None,
        jvm_flags: tuple[str, ...],
    ) -> RealKafka:
        rack = {"broker.rack": self._racks[broker]} if broker in self._racks else {}
        return RealKafka(
            settings={**REPLICATED_INSIDE, **rack, **(settings or {})},
            jvm_flags=jvm_flags,
            folder=self._folder,
            node_id=broker,
            controller_port=controller_port,
            host=self._host,
            port=None if self._first_port is None else self._first_port + broker - NODE_ID,
            log_dirs=self._log_dirs,
        )

    def _start_all(self) -> Self:
        with ThreadPoolExecutor(len(self._brokers), "formatter") as formatters:
            for formatted in [formatters.submit(kafka.format) for kafka in self._brokers.values()]:
                formatted.result()
        for kafka in self._brokers.values():
            kafka.launch()
        for kafka in self._brokers.values():
            kafka.wait_ready()
        self._wait_joined(set(self._brokers))
        return self

    def _wait_joined(self, brokers: set[int]) -> None:
        """A broker opens its listener before the controller has unfenced it: wait until the first names them."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not brokers <= (named := self._named()):
            assert time.monotonic() < deadline, f"there are {named}, not {brokers}:\n{self.log()}"
            time.sleep(0.05)

    def _named(self) -> set[int]:
        """The brokers that the first one tells clients of; none while it does not answer."""
        try:
            with RawConnection(self.port) as connection:
                return {row.node_id for row in connection.ask(METADATA, 9, {"topics": []}).brokers}
        except OSError:
            return set()
