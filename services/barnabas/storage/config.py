"""The settings of a storage node, under Kafka's names where Kafka has the setting."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

from barnabas.kernel.config import (
    HTTP_ADDRESS_HELP,
    LOG_FORMAT_HELP,
    LOG_LEVEL_HELP,
    MOVABLE_CLOCK_FILE_HELP,
    ConfigError,
    check_address,
    check_addresses_of_others,
    other_settings,
    property_name,
    setting,
)
from barnabas.kernel.cordoned import problem_of_cordons


def _names_of_broker_settings() -> Collection[str]:
    from barnabas.metadata.broker_settings import BROKER_SETTINGS  # slow to load

    return BROKER_SETTINGS.keys()


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Settings of one storage node; `node_id` is the setting `node.id`. Checked on construction (ConfigError)."""

    node_id: int = setting(-1, "The broker id that clients see; unique in the cluster and never changed.")
    log_dirs: tuple[str, ...] = setting((), "The directories of this node's partitions, one a disk.")
    listen_address: str = setting(
        "127.0.0.1:19092", "Where the other services reach this node over gRPC: host:port or unix:/path."
    )
    advertised_address: str = setting(
        "", "The gRPC address that the other services are told; empty for the one that is listened at."
    )
    controllers: tuple[str, ...] = setting((), "The gRPC addresses of all controllers.")
    broker_rack: str = setting("", "The zone or rack of this node; empty when there is none.")
    position: int = setting(
        -1,
        "The place this node wishes for among the nodes at its first start, counted from 0: clients of a listener that "
        "advertises by port reach it at the listener's port plus this; -1 for the smallest that is free.",
    )
    http_address: str = setting("127.0.0.1:0", HTTP_ADDRESS_HELP)
    log_level: str = setting("INFO", LOG_LEVEL_HELP)
    log_format: str = setting("text", LOG_FORMAT_HELP)
    movable_clock_file: str = setting("", MOVABLE_CLOCK_FILE_HELP)
    num_recovery_threads_per_data_dir: int = setting(
        2, "Threads for each log directory that recover partitions at start."
    )
    log_retention_check_interval_ms: int = setting(
        300_000, "How often partitions are looked over for segments past their retention.", unit="ms"
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        60_000, "How often recovery points and log start offsets are written down.", unit="ms"
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5_000, "How often high watermarks are written down.", unit="ms"
    )
    producer_id_expiration_ms: int = setting(
        86_400_000, "How long an idle producer's sequence numbers are remembered.", unit="ms"
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600_000, "How often idle producers are forgotten.", unit="ms"
    )
    log_cleaner_enable: bool = setting(True, "Whether compacted topics are compacted at all.")
    fetch_max_bytes: int = setting(
        57_671_680, "The most record bytes that one fetch is answered with.", unit="bytes"
    )
    broker_settings: Mapping[str, str] = other_settings(
        "Any other broker setting of Kafka: what topics fall back to, and what clients are shown of this broker.",
        variables_for=_names_of_broker_settings,
    )

    def __post_init__(self) -> None:
        check_address("listen.address", self.listen_address)
        check_addresses_of_others(self)
        if self.node_id < 0:
            raise ConfigError(f"node.id={self.node_id}: give this node an id of 0 or more")
        if not self.log_dirs:
            raise ConfigError("log.dirs is empty: name at least one directory")
        if len(set(self.log_dirs)) < len(self.log_dirs):
            raise ConfigError("log.dirs names a directory twice")
        if not self.controllers:
            raise ConfigError("controllers is empty: give the address of at least one controller")
        if not self.advertised_address and self.listen_address.startswith(("0.0.0.0:", "[::]:", ":")):
            raise ConfigError(
                f"listen.address={self.listen_address} names no host: set advertised.address to what others can reach"
            )
        for name in (
            "num_recovery_threads_per_data_dir",
            "log_retention_check_interval_ms",
            "log_flush_offset_checkpoint_interval_ms",
            "replica_high_watermark_checkpoint_interval_ms",
            "producer_id_expiration_ms",
            "producer_id_expiration_check_interval_ms",
            "fetch_max_bytes",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name.replace('_', '.')}={getattr(self, name)}: must be at least 1")
        if self.broker_settings:
            self._check_broker_settings()
            self._check_cordons()

    def _check_broker_settings(self) -> None:
        from barnabas.metadata.broker_rules import check_static_settings  # `barnabas up` can do without

        try:
            check_static_settings(self.broker_settings)
        except Exception as error:
            from barnabas.kernel.errors import KafkaError  # slow to load

            if isinstance(error, KafkaError):
                raise ConfigError(error.message) from error
            raise

    def _check_cordons(self) -> None:
        named = self.broker_settings.get("cordoned.log.dirs", "").split(",")
        problem = problem_of_cordons(self.log_dirs, [entry.strip() for entry in named if entry.strip()])
        if problem:
            raise ConfigError(problem)

    @property
    def static_settings(self) -> dict[str, str]:
        """What this node shows of its settings, under Kafka's names: those that are not as Kafka has them anyway, or
        that it was given."""
        from barnabas.metadata.broker_settings import BROKER_SETTINGS
        from barnabas.metadata.settings.other_defaults import OTHER_DEFAULTS

        static = dict(OTHER_DEFAULTS)
        for field in fields(self):
            name, value = property_name(field.name), getattr(self, field.name)
            definition = BROKER_SETTINGS.get(name)
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            if definition is None or (not text and definition.default is None):
                continue
            if definition.default is None or definition.parse(text) != definition.default_value():
                static[name] = text.lower() if isinstance(value, bool) else text
        return {**static, **self.broker_settings}
