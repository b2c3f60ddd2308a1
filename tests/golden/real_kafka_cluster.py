"""Real Kafka brokers: the first is the controller as well and is never stopped, or the controller is apart."""

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
from real_kafka import (
    BROKER,
    BROKER_AND_CONTROLLER,
    CONTROLLER,
    NODE_ID,
    READY_SECONDS_MAX,
    START_QUICKLY,
    RealKafka,
)

SMALL: Final = (*START_QUICKLY[:-1], "-Xmx256m")

REPLICATED_INSIDE: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
"""What a broker that is alone must not have: Kafka's own defaults again."""


class RealKafkaCluster:
    """Owns the brokers from 1 to `nodes`, from `start` to `close`; `settings` are all brokers'.

    `host` names the loopback address to clients; `first_port` is the first broker's, and the others' follow it; so do
    those of `first_advertised_port`, which clients are told where proxies stand before the brokers.
    `log_dirs` are the directories of each, `racks` where they stand. With `controller_apart` any can be stopped.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        jvm_flags: tuple[str, ...] = SMALL,
        nodes: int = 3,
        host: str = "127.0.0.1",
        first_port: int | None = None,
        log_dirs: tuple[str, ...] = ("",),
        racks: Mapping[int, str] | None = None,
        first_advertised_port: int | None = None,
        controller_apart: bool = False,
    ) -> None:
        self._host, self._first_port = host, first_port
        self._first_advertised_port = first_advertised_port
        self._log_dirs, self._racks = log_dirs, racks or {}
        self._folder = Path(tempfile.mkdtemp(prefix="real-kafka-cluster-"))
        self._controller = (
            RealKafka(roles=(CONTROLLER,), node_id=NODE_ID + nodes, jvm_flags=SMALL, folder=self._folder)
            if controller_apart
            else None
        )
        voter = None if self._controller is None else self._controller.voter
        self._brokers: dict[int, RealKafka] = {}
        for broker in range(NODE_ID, NODE_ID + nodes):
            self._brokers[broker] = self._broker(broker, voter, settings or {}, jvm_flags)
            voter = self._brokers[broker].voter
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
        assert broker != NODE_ID or self._controller is not None, "the controller is in this one"
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
        """The end of what each process wrote to its output."""
        return "\n".join(
            f"--- {' and '.join(kafka.roles)} {kafka.node_id}\n{kafka.log()}" for kafka in self._processes()
        )

    def close(self) -> None:
        """End all and remove their folders."""
        for kafka in self._processes():
            kafka.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _broker(
        self,
        broker: int,
        voter: str | None,
        settings: Mapping[str, str],
        jvm_flags: tuple[str, ...],
    ) -> RealKafka:
        rack = {"broker.rack": self._racks[broker]} if broker in self._racks else {}
        return RealKafka(
            settings={**REPLICATED_INSIDE, **rack, **settings},
            jvm_flags=jvm_flags,
            folder=self._folder,
            node_id=broker,
            roles=BROKER_AND_CONTROLLER if voter is None else (BROKER,),
            voter=voter,
            host=self._host,
            port=None if self._first_port is None else self._first_port + broker - NODE_ID,
            log_dirs=self._log_dirs,
            advertised_port=None
            if self._first_advertised_port is None
            else self._first_advertised_port + broker - NODE_ID,
        )

    def _processes(self) -> list[RealKafka]:
        return [*([] if self._controller is None else [self._controller]), *self._brokers.values()]

    def _start_all(self) -> Self:
        processes = self._processes()
        with ThreadPoolExecutor(len(processes), "formatter") as formatters:
            for formatted in [formatters.submit(kafka.format) for kafka in processes]:
                formatted.result()
        for kafka in processes:
            kafka.launch()
        for kafka in processes:
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
