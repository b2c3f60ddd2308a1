"""The settings of a controller, under Kafka's names where Kafka has the setting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.kernel.config import (
    HTTP_ADDRESS_HELP,
    LOG_FORMAT_HELP,
    LOG_LEVEL_HELP,
    MOVABLE_CLOCK_FILE_HELP,
    ConfigError,
    check_address,
    check_addresses_of_others,
    setting,
)

if TYPE_CHECKING:
    from barnabas.controller.core.decision import ClusterDefaults

SEGMENT_BYTES_MIN: Final = 1_048_576
"""The least segment.bytes of a topic. Of internal topics Kafka takes less, and then cannot create them."""


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Settings of one controller. Checked on construction (ConfigError)."""

    listen_address: str = setting(
        "127.0.0.1:19090",
        "Where the other services reach this controller over gRPC: host:port or unix:/path.",
    )
    advertised_address: str = setting(
        "", "The gRPC address that the other services are told; empty for the one that is listened at."
    )
    controller_id: int = setting(
        -1,
        "The id under which DescribeQuorum shows this controller, unlike that of any other controller or broker; "
        "-1 for the lowest from 3000 on that no other controller has.",
    )
    data_dir: str = setting("", "The directory of the embedded metadata store; not used with etcd.")
    etcd_endpoints: tuple[str, ...] = setting(
        (), "etcd's client addresses, host:port each; empty for the embedded store in data.dir."
    )
    etcd_namespace: str = setting(
        "barnabas/", "The prefix of all keys in etcd, so that clusters can share one."
    )
    cluster_id: str = setting(
        "", "The id that a new cluster gets (22 characters of URL-safe base64); empty for a random one."
    )
    num_partitions: int = setting(1, "Partitions of a topic that is created without a number.")
    default_replication_factor: int = setting(1, "Replicas of a topic that is created without a number.")
    delete_topic_enable: bool = setting(True, "Whether topics can be deleted.")
    offsets_topic_num_partitions: int = setting(50, "Partitions of __consumer_offsets when it is created.")
    offsets_topic_replication_factor: int = setting(
        -1,
        "Replicas of __consumer_offsets when it is created, which waits until so many storage nodes are there; -1 for "
        "3, or one on each storage node where there are fewer, and one more for each that joins until there are 3.",
    )
    offsets_topic_segment_bytes: int = setting(
        104_857_600, "Segment size of __consumer_offsets when it is created.", unit="bytes"
    )
    transaction_state_log_num_partitions: int = setting(
        50, "Partitions of __transaction_state when it is created."
    )
    transaction_state_log_replication_factor: int = setting(
        -1,
        "Replicas of __transaction_state when it is created, which waits until so many storage nodes are there; -1 for "
        "3, or one on each storage node where there are fewer, and one more for each that joins until there are 3.",
    )
    transaction_state_log_min_isr: int = setting(
        2,
        "min.insync.replicas of __transaction_state when it is created: never more than the replicas that it has.",
    )
    transaction_state_log_segment_bytes: int = setting(
        104_857_600, "Segment size of __transaction_state when it is created.", unit="bytes"
    )
    broker_session_timeout_ms: int = setting(
        2_000,
        "How long after its stream broke or its heartbeats stayed away (3 s at least) a storage node is fenced.",
        unit="ms",
    )
    gateway_session_timeout_ms: int = setting(
        300,
        "How long after its stream broke or its heartbeats stayed away (3 s at least) a gateway is forgotten.",
        unit="ms",
    )
    coordinator_session_timeout_ms: int = setting(
        1_000,
        "How long after its stream broke or its heartbeats stayed away (3 s at least) a coordinator loses its "
        "partitions. To others it loses them at once when it is stopped, or its address refuses connections.",
        unit="ms",
    )
    auto_leader_rebalance_enable: bool = setting(
        True, "Whether leadership moves back to preferred leaders by itself."
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300, "How often leadership that should move back is looked for.", unit="s"
    )
    unclean_leader_election_interval_ms: int = setting(
        300_000,
        "How often partitions are looked for that only an unclean election can bring back.",
        unit="ms",
    )
    election_lease_ms: int = setting(
        3_000, "How long after it was last heard of the active controller can be succeeded.", unit="ms"
    )
    http_address: str = setting("127.0.0.1:0", HTTP_ADDRESS_HELP)
    log_level: str = setting("INFO", LOG_LEVEL_HELP)
    log_format: str = setting("text", LOG_FORMAT_HELP)
    movable_clock_file: str = setting("", MOVABLE_CLOCK_FILE_HELP)

    def __post_init__(self) -> None:
        check_address("listen.address", self.listen_address)
        check_addresses_of_others(self)
        if not self.data_dir and not self.etcd_endpoints:
            raise ConfigError(
                "data.dir and etcd.endpoints are both empty: name a directory, or etcd's addresses"
            )
        for endpoint in self.etcd_endpoints:
            if endpoint.startswith("https://"):
                raise ConfigError(
                    f"etcd.endpoints has {endpoint}: TLS to etcd is not supported, use host:port"
                )
            check_address("etcd.endpoints", endpoint.removeprefix("http://").rstrip("/"))
        if self.etcd_endpoints and not self.etcd_namespace:
            raise ConfigError("etcd.namespace is empty: give a prefix such as barnabas/")
        for name in (
            "num_partitions",
            "default_replication_factor",
            "offsets_topic_num_partitions",
            "transaction_state_log_num_partitions",
            "transaction_state_log_min_isr",
            "broker_session_timeout_ms",
            "gateway_session_timeout_ms",
            "coordinator_session_timeout_ms",
            "leader_imbalance_check_interval_seconds",
            "unclean_leader_election_interval_ms",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name.replace('_', '.')}={getattr(self, name)}: must be at least 1")
        for name in ("offsets_topic_segment_bytes", "transaction_state_log_segment_bytes"):
            if getattr(self, name) < SEGMENT_BYTES_MIN:
                raise ConfigError(
                    f"{name.replace('_', '.')}={getattr(self, name)}: must be at least {SEGMENT_BYTES_MIN}, as "
                    "segment.bytes of any topic"
                )
        for name in ("offsets_topic_replication_factor", "transaction_state_log_replication_factor"):
            factor = getattr(self, name)
            if factor < 1 and factor != -1:
                raise ConfigError(f"{name.replace('_', '.')}={factor}: must be at least 1, or -1")
        if self.controller_id < -1:
            raise ConfigError(f"controller.id={self.controller_id}: must be -1 or more")
        if self.election_lease_ms < 1_000:
            raise ConfigError(f"election.lease.ms={self.election_lease_ms}: must be at least 1000")

    @property
    def metadata_file(self) -> Path:
        """The file of the embedded store."""
        return Path(self.data_dir) / "metadata.db"

    @property
    def defaults(self) -> ClusterDefaults:
        """What requests that leave something open get."""
        from barnabas.controller.core.decision import (
            ClusterDefaults,  # loads protobuf, which `up` can do without
        )

        return ClusterDefaults(
            num_partitions=self.num_partitions,
            default_replication_factor=self.default_replication_factor,
            offsets_topic_num_partitions=self.offsets_topic_num_partitions,
            offsets_topic_replication_factor=self.offsets_topic_replication_factor,
            offsets_topic_segment_bytes=self.offsets_topic_segment_bytes,
            transaction_state_log_num_partitions=self.transaction_state_log_num_partitions,
            transaction_state_log_replication_factor=self.transaction_state_log_replication_factor,
            transaction_state_log_min_isr=self.transaction_state_log_min_isr,
            transaction_state_log_segment_bytes=self.transaction_state_log_segment_bytes,
            delete_topic_enable=self.delete_topic_enable,
        )
