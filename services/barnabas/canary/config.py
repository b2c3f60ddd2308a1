"""The canary's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.kernel.config import (
    HTTP_ADDRESS_HELP,
    LOG_FORMAT_HELP,
    LOG_LEVEL_HELP,
    PORT_MAX,
    ConfigError,
    other_settings,
    setting,
)


@dataclass(frozen=True, slots=True)
class CanaryConfig:
    """Filled by `barnabas.kernel.config.load_config`; raises ConfigError where settings contradict each other."""

    bootstrap_servers: tuple[str, ...] = setting(
        ("127.0.0.1:9092",),
        "The gateways, host:port, separated by commas. Each address that a name leads to is one gateway. It must be of "
        "a listener whose clients stay with the gateway that they came to: one at 0.0.0.0 that advertised.listeners "
        "does not name, or one whose name no other gateway has.",
    )
    topic: str = setting("barnabas-canary", "The topic that the canary makes, writes to and reads from.")
    num_partitions: int = setting(
        0,
        "Partitions of the topic when it is made; 0 for one for every storage node, also for those that join.",
        unit="partitions",
    )
    replication_factor: int = setting(
        -1, "Replicas of the topic when it is made; -1 for the cluster's default."
    )
    retention_ms: int = setting(
        3_600_000, "How long the topic keeps records; given to it when it is made.", unit="ms"
    )
    interval_ms: int = setting(1_000, "Pause between two records through the same gateway.", unit="ms")
    timeout_ms: int = setting(
        5_000,
        "A record that is not acknowledged by then is a failed produce; one that is acknowledged and not read through "
        "a gateway by then is a failed fetch of that gateway.",
        unit="ms",
    )
    loss_ms: int = setting(
        60_000,
        "An acknowledged record that is still not readable by then is lost, if its partition answers.",
        unit="ms",
    )
    resolve_interval_ms: int = setting(
        15_000,
        "How often names are looked up again, for gateways that came or went, and the topic is looked at, for "
        "storage nodes that joined.",
        unit="ms",
    )
    http_address: str = setting("127.0.0.1:0", HTTP_ADDRESS_HELP)
    log_level: str = setting("INFO", LOG_LEVEL_HELP)
    log_format: str = setting("text", LOG_FORMAT_HELP)
    client_settings: Mapping[str, str] = other_settings(
        "What else the file sets goes to the client library as it stands, such as security.protocol."
    )

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise ConfigError("bootstrap.servers is empty: give the address of at least one gateway")
        for address in self.bootstrap_servers:
            host, _, port = address.rpartition(":")
            if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= PORT_MAX:
                raise ConfigError(f"bootstrap.servers={address}: expected host:port")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"{name.replace('_', '.')}={value}: must be at least {least}")
        if self.loss_ms < self.timeout_ms:
            raise ConfigError(
                f"loss.ms={self.loss_ms} is below timeout.ms={self.timeout_ms}: raise one or lower the other"
            )


_LEAST = {
    "num_partitions": 0,
    "retention_ms": 60_000,
    "interval_ms": 10,
    "timeout_ms": 100,
    "resolve_interval_ms": 100,
}
