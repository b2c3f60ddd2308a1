"""One cluster that a command talks to: where it is, the properties of its clients, and clients made of them.

Importing this module imports librdkafka (some 90 ms): commands do so when they run.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from barnabas.cli.kafka import errors
from barnabas.cli.kafka.properties import for_librdkafka, parse_pairs, read_properties
from barnabas.cli.refusal import Refused, usage

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_PORT: Final = 9092
REACH_SECONDS_MAX: Final = 5.0
"""How long one address may take to accept a connection before it counts as unreachable."""

ANSWER_SECONDS_MAX: Final = 30.0
"""How long a request may take, as in Kafka's tools."""

_ADDRESS_ERRORS = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
)


@dataclass(frozen=True)
class Connection:
    """Where a cluster is and how to talk to it; `properties` are librdkafka's and may hold secrets."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def settings(self, **more: Any) -> dict[str, Any]:
        """librdkafka's configuration; `more` has underscores for dots and gives way to the user's properties."""
        defaults = {name.replace("_", "."): value for name, value in more.items()}
        return {
            "client.id": "barnabas",
            **defaults,
            **self.properties,
            "bootstrap.servers": self.bootstrap,
            "logger": silent_logger(),
        }

    def admin(self) -> AdminClient:
        """An admin client of a cluster that answers; raises Refused when it does not."""
        check_reachable(self.bootstrap)
        client: AdminClient = _made(AdminClient, self.settings())
        return client

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """A producer; `settings` are librdkafka's names, complete but for the connection."""
        check_reachable(self.bootstrap)
        client: Producer = _made(Producer, {**self.settings(), **settings})
        return client

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        check_reachable(self.bootstrap)
        client: Consumer = _made(Consumer, {**self.settings(), **settings})
        return client

    def cluster(self, client: Any, topic: str | None = None) -> Any:
        """The cluster's metadata, through any client; Refused when no broker answers."""
        try:
            arguments = {} if topic is None else {"topic": topic}
            return client.list_topics(timeout=ANSWER_SECONDS_MAX, **arguments)
        except KafkaException as error:
            if errors.is_code(error, *_ADDRESS_ERRORS):
                raise Refused(
                    f"{self.bootstrap} takes connections but did not answer within {ANSWER_SECONDS_MAX:g} s: is it "
                    "a Kafka broker, and does --command-config say its security.protocol?"
                ) from error
            raise

    def described(self) -> Any:
        """DescribeCluster's answer: id, controller, nodes. Raises Refused when no broker answers."""
        admin = self.admin()
        self.cluster(admin)
        return admin.describe_cluster().result(ANSWER_SECONDS_MAX)


def connect(
    bootstrap: str, command_config: Path | None = None, pairs: Sequence[str] | None = None
) -> Connection:
    """The connection that the flags describe: --bootstrap-server, else the file's, else localhost:9092."""
    properties = read_properties(command_config) if command_config else {}
    properties.update(for_librdkafka(parse_pairs(pairs or (), "-X/--command-property")))
    named = properties.pop("bootstrap.servers", "") or properties.pop("metadata.broker.list", "")
    return Connection(bootstrap or named or DEFAULT_BOOTSTRAP, properties)


def addresses_of(bootstrap: str) -> list[tuple[str, int]]:
    """(host, port) of each `HOST[:PORT]`, with `[::1]:9092` for IPv6 and an optional `PROTOCOL://` in front."""
    found = []
    for word in bootstrap.split(","):
        word = word.strip().rpartition("://")[2]
        if not word:
            continue
        host, separator, port = word.rpartition(":")
        if not separator or (host.count(":") and not host.startswith("[")):
            host, port = word, str(DEFAULT_PORT)
        if not port.isdigit() or not 0 < int(port) < 65_536:
            raise usage(f"--bootstrap-server {word} has no port: write it as HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise usage("--bootstrap-server is empty: write it as HOST:PORT")
    return found


def check_reachable(bootstrap: str) -> None:
    """Raise Refused, at once and with the reason, when nobody listens at any of the addresses.

    librdkafka would try again, silently, until its time is up.
    """
    reason = ""
    for host, port in addresses_of(bootstrap):
        try:
            with contextlib.closing(socket.create_connection((host, port), REACH_SECONDS_MAX)):
                return
        except socket.gaierror:
            reason = f"{host} is no known host name"
        except TimeoutError:
            reason = f"no answer within {REACH_SECONDS_MAX:g} s"
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
    way_out = (
        "is it running? `barnabas up` starts one" if _is_local(bootstrap) else "check --bootstrap-server"
    )
    raise Refused(f"cannot reach {bootstrap} ({reason}): {way_out}")


def silent_logger() -> logging.Logger:
    """Where librdkafka's log lines go: nowhere. What matters in them reaches us as errors."""
    logger = logging.getLogger("barnabas.cli.librdkafka")
    logger.disabled = True
    return logger


def _made(kind: Any, settings: dict[str, Any]) -> Any:
    try:
        return kind(settings)
    except KafkaException as error:
        raise usage(
            f"{errors.describe(error)}: change it in --command-config or the properties given"
        ) from error


def _is_local(bootstrap: str) -> bool:
    return any(host in ("localhost", "127.0.0.1", "::1") for host, _ in addresses_of(bootstrap))
