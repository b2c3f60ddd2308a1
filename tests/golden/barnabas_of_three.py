"""Three brokers of Barnabas, each a process with settings of its own, such as a rack and log directories."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from real_kafka import DIES_WITH_US
from running_services import POLL_SECONDS, WAIT_SECONDS, LooseCluster, ServiceProcess, free_ports

from barnabas.cli.plan import settings_of_up
from barnabas.testing.process import wait_until_stopped

BROKERS: Final = (1, 2, 3)
CONTROLLERS: Final = (
    "auto.leader.rebalance.enable",
    "broker.session.timeout.ms",
    "default.replication.factor",
    "offsets.topic.num.partitions",
    "transaction.state.log.num.partitions",
)
"""What of the settings is the controller's to know."""

COORDINATORS: Final = ("transaction.abort.timed.out.transaction.cleanup.interval.ms",)
"""What of them is the coordinator's."""


class BarnabasOfThree:
    """Owns a controller, a coordinator and the brokers 1, 2 and 3, from `start` to `close`.

    `settings` are all brokers', added to those of `barnabas up --nodes 3`.
    """

    def __init__(
        self, *, settings: Mapping[str, str], log_dirs: tuple[str, ...], racks: Mapping[int, str]
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="barnabas-of-three-"))
        self._cluster = LooseCluster(self._folder)
        everybody = {**settings_of_up(len(BROKERS)), **settings}
        first = free_ports(3 * len(BROKERS))
        self.ports = {broker: first + broker - 1 for broker in BROKERS}
        self.port = first
        for service, names in (("controller", CONTROLLERS), ("coordinator", COORDINATORS)):
            self._cluster.settings[service] |= {name: everybody[name] for name in names if name in everybody}
        self._settings = {
            broker: {
                **self._cluster.settings["storage"],
                **everybody,
                "node.id": str(broker),
                "position": str(broker - 1),
                "own.position.only": str(broker - 1),
                "gateway.id": f"broker-{broker}",
                "broker.rack": racks[broker],
                "log.dirs": ",".join(str(self._folder / f"node-{broker}" / name) for name in log_dirs),
                "listeners": f"PLAINTEXT://127.0.0.1:{first}",
                "ports.per.listener": str(len(BROKERS)),
                "listen.address": f"127.0.0.1:{first + 2 + broker}",
                "http.address": f"127.0.0.1:{first + 5 + broker}",
            }
            for broker in BROKERS
        }

    def __enter__(self) -> Self:
        try:
            self._cluster.start("controller", "coordinator", wrapper=DIES_WITH_US)
            for broker in BROKERS:
                self._launch(broker)
            self._cluster.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop(self, broker: int, *, kill: bool = False) -> None:
        """End one broker, in order or with SIGKILL."""
        if kill:
            self._service(broker).kill()
        else:
            self._service(broker).stop()

    def start(self, broker: int) -> None:
        """Start one that was stopped, and return when it can be connected to."""
        process = self._launch(broker).process
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.ports[broker]), timeout=1).close()
                return
            except OSError:
                assert process.poll() is None, self.log()
                assert time.monotonic() < deadline, self.log()
                time.sleep(POLL_SECONDS)

    @contextlib.contextmanager
    def paused(self, broker: int) -> Iterator[None]:
        """One broker is frozen while the context is open."""
        process = self._service(broker).process
        process.send_signal(signal.SIGSTOP)
        try:
            wait_until_stopped(process.pid)
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def log(self) -> str:
        """What all of them logged."""
        return self._cluster.log()

    def close(self) -> None:
        """End all and remove their folder."""
        self._cluster.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _service(self, broker: int) -> ServiceProcess:
        return self._cluster.services[f"broker-{broker}"]

    def _launch(self, broker: int) -> ServiceProcess:
        name = f"broker-{broker}"
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        service = ServiceProcess("host", folder, self._settings[broker], wrapper=DIES_WITH_US)
        self._cluster.services[name] = service
        return service
