"""What `barnabas up` was asked to do, and the limits of what may be asked."""

from __future__ import annotations

import enum
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NODES_MAX: Final = 64
GATEWAYS_MAX: Final = 64
COORDINATORS_MAX: Final = 64
"""More processes than this on one machine is a slip of the keyboard."""

PORT_MAX: Final = 65_535

WILDCARD_HOSTS: Final = ("0.0.0.0", "::")
"""Addresses that listen everywhere; a client uses localhost or the machine's own name."""


_DECIDED_BY_FLAGS: Final = {
    "broker.id": "--nodes",
    "node.id": "--nodes",
    "log.dir": "--data-dir",
    "log.dirs": "--data-dir",
    "listeners": "--host and --port",
}
"""Settings that `--override` cannot have, and the flags that they follow from."""

ETCD_PACKAGE: Final = "aetcd"
"""What `--etcd` needs beyond what every cluster does: the extra `etcd`."""


class UpRefused(Exception):
    """The cluster cannot start until the user changes something; the message is one line that says what.

    The status is that of a service which says the same (`kernel.service.EXIT_USER_ERROR`; its module is not imported
    here, since it brings asyncio with it and every command would wait for that).
    """

    def __init__(self, message: str, status: int = os.EX_CONFIG) -> None:
        super().__init__(message)
        self.status = status


class Advertise(enum.StrEnum):
    """How clients see the storage nodes: each at a port of its own, or all as one broker."""

    port = "port"
    one = "one"


class LogLevel(enum.StrEnum):
    """The levels of the services' logs."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


@dataclass(frozen=True)
class UpOptions:
    """The flags of `barnabas up`, in their order."""

    host: str
    port: int
    data_dir: Path
    nodes: int = 1
    gateways: int = 1
    coordinators: int = 1
    http_port: int = 8080
    advertise: Advertise = Advertise.port
    etcd: str = ""
    log_level: LogLevel = LogLevel.warning
    fault_injection: bool = False
    ephemeral: bool = False
    separate: bool = False
    overrides: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()

    def rack_of(self, number: int) -> str:
        """The rack of the node, or gateway, of this number: they are dealt out in turn; empty without --racks."""
        return self.racks[(number - 1) % len(self.racks)] if self.racks else ""

    @property
    def kafka_ports(self) -> range:
        """The ports that the gateways serve: one a node, or a single one."""
        return range(self.port, self.port + (self.nodes if self.advertise is Advertise.port else 1))

    @property
    def display_host(self) -> str:
        """How a person writes the address: what loops back is localhost."""
        if self.host in ("127.0.0.1", "::1", *WILDCARD_HOSTS):
            return "localhost"
        return bracketed(self.host)

    @property
    def etcd_endpoints(self) -> tuple[str, ...]:
        """`host:port` of each etcd in `--etcd http://HOST:PORT[,...]`; empty without it."""
        urls = (url.strip().removeprefix("http://").rstrip("/") for url in self.etcd.split(","))
        return tuple(url for url in urls if url)

    @property
    def broker_settings(self) -> dict[str, str]:
        """What `--override` sets by name; of two for one name the last counts. Raises UpRefused."""
        settings = {}
        for text in self.overrides:
            name, separator, value = text.partition("=")
            if not separator or not name.strip() or not text.isprintable():
                raise UpRefused(f"--override {text!r}: expected name=value, such as num.partitions=3", 2)
            settings[name.strip()] = value.strip()
        return settings

    def check(self) -> None:
        """Raise UpRefused, with the status of a usage error, for flags that do not fit each other."""
        last = self.kafka_ports[-1]
        if last > PORT_MAX:
            highest = PORT_MAX - len(self.kafka_ports) + 1
            raise UpRefused(
                f"--port {self.port} with --nodes {self.nodes} needs ports up to {last}, and {PORT_MAX} is "
                f"the last: choose --port {highest} or lower, or --advertise one",
                2,
            )
        if self.http_port in self.kafka_ports:
            raise UpRefused(
                f"--http-port {self.http_port} is also a port of the nodes "
                f"({describe_ports(self.kafka_ports)}): choose another --http-port",
                2,
            )
        if self.etcd and not self.etcd_endpoints:
            raise UpRefused(f"--etcd {self.etcd} names no address: give http://HOST:PORT", 2)
        if self.etcd and importlib.util.find_spec(ETCD_PACKAGE) is None:
            raise UpRefused(f"--etcd needs the package {ETCD_PACKAGE}: pip install 'barnabas[etcd]'")
        if "," in str(self.data_dir) or not str(self.data_dir).isprintable():
            raise UpRefused("--data-dir has a comma or a control character in it: choose another path", 2)
        for name in self.broker_settings:
            if name in _DECIDED_BY_FLAGS:
                raise UpRefused(f"--override {name}: it follows from {_DECIDED_BY_FLAGS[name]}", 2)
        if self.overrides:
            self._check_broker_settings()
        self._check_racks()
        if not self.host:
            raise UpRefused("--host is empty: give an address of this machine, such as 127.0.0.1", 2)

    def _check_racks(self) -> None:
        text = ",".join(self.racks)
        if not all(rack and rack.isprintable() for rack in self.racks):
            raise UpRefused(f"--racks {text!r}: expected names with commas, such as a,b,c", 2)
        if len(self.racks) > self.nodes:
            raise UpRefused(
                f"--racks {text} names {len(self.racks)} racks, and there are {self.nodes} nodes to be in them: "
                f"add --nodes {len(self.racks)}",
                2,
            )
        if self.racks and "broker.rack" in self.broker_settings:
            raise UpRefused("--racks and --override broker.rack say two things: leave one of them out", 2)

    def _check_broker_settings(self) -> None:
        from barnabas.metadata.broker_rules import check_static_settings  # seldom needed

        try:
            check_static_settings(self.broker_settings)
        except Exception as error:
            from barnabas.kernel.errors import KafkaError  # slow to load

            if not isinstance(error, KafkaError):
                raise
            raise UpRefused(f"--override: {error.message}", 2) from error


def bracketed(host: str) -> str:
    """`host` as it stands before `:port`: an IPv6 address goes in brackets."""
    return f"[{host}]" if ":" in host else host


def describe_ports(ports: range) -> str:
    """`port 9092` or `ports 9092-9094`."""
    return f"port {ports[0]}" if len(ports) == 1 else f"ports {ports[0]}-{ports[-1]}"
