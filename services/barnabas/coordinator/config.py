"""The coordinator's settings, under Kafka's names where Kafka has the setting."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """Filled by `barnabas.kernel.config.load_config`; raises ConfigError where settings contradict each other."""

    coordinator_id: str = setting("coordinator-0", "Names this coordinator; unique in the cluster.")
    listen_address: str = setting(
        "127.0.0.1:19094", "Where gateways reach this coordinator over gRPC: host:port or unix:/path."
    )
    advertised_address: str = setting(
        "", "The gRPC address that gateways are told; empty for the one that is listened at."
    )
    controllers: tuple[str, ...] = setting((), "The controllers' gRPC addresses, separated by commas.")
    http_address: str = setting("127.0.0.1:0", HTTP_ADDRESS_HELP)
    log_level: str = setting("INFO", LOG_LEVEL_HELP)
    log_format: str = setting("text", LOG_FORMAT_HELP)
    movable_clock_file: str = setting("", MOVABLE_CLOCK_FILE_HELP)
    group_initial_rebalance_delay_ms: int = setting(
        3000,
        "How long a new group waits for more members before its first rebalance. 3000, as in Kafka, spares a "
        "deployment of many consumers a rebalance for each; on a laptop 0 lets a lone consumer start at once.",
        unit="ms",
    )
    group_min_session_timeout_ms: int = setting(
        6_000, "The shortest session timeout that a member may ask for.", unit="ms"
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, "The longest session timeout that a member may ask for.", unit="ms"
    )
    group_max_size: int = setting(2**31 - 1, "The most members that one group may have.", unit="members")
    group_new_member_join_timeout_ms: int = setting(
        300_000,
        "How long a new member may wait in its first JoinGroup before it is taken for gone: without a member id it "
        "cannot send heartbeats.",
        unit="ms",
    )
    offset_metadata_max_bytes: int = setting(
        4096, "The longest metadata that may be committed with an offset.", unit="UTF-16 code units"
    )
    offsets_retention_minutes: int = setting(
        10_080,
        "How long offsets are kept after a group lost its last member, or, for consumers without a group "
        "membership and topics no longer subscribed to, after the last commit.",
        unit="minutes",
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, "How often to look for expired offsets.", unit="ms"
    )
    offsets_commit_timeout_ms: int = setting(
        5_000, "How long a write to __consumer_offsets may take to reach the in-sync replicas.", unit="ms"
    )
    coordinator_load_wait_ms: int = setting(
        1_000,
        "How long a request waits for a partition that is being loaded for the first time, before it is answered "
        "COORDINATOR_LOAD_IN_PROGRESS: not every client asks again.",
        unit="ms",
    )
    offsets_load_buffer_size: int = setting(
        5 * 1024 * 1024, "How much to read at once while a partition is being loaded.", unit="bytes"
    )

    transaction_max_timeout_ms: int = setting(
        900_000, "The longest timeout that a transactional producer may ask for.", unit="ms"
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000, "How long a transactional id is kept after its last use.", unit="ms"
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        10_000, "How often to look for transactions that took longer than their timeout.", unit="ms"
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000, "How often to look for expired transactional ids.", unit="ms"
    )
    transaction_state_log_load_buffer_size: int = setting(
        5 * 1024 * 1024,
        "How much to read at once while a partition of __transaction_state is being loaded.",
        unit="bytes",
    )
    transaction_two_phase_commit_enable: bool = setting(
        False,
        "Whether producers may have transactions that another system decides (KIP-939): they never time out.",
    )

    def __post_init__(self) -> None:
        check_address("listen.address", self.listen_address)
        check_addresses_of_others(self)
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms={self.group_min_session_timeout_ms} is above "
                f"group.max.session.timeout.ms={self.group_max_session_timeout_ms}: lower one or raise the other"
            )
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"{name.replace('_', '.')}={value}: must be at least {least}")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


_LEAST = {
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1,
    "group_max_size": 1,
    "group_new_member_join_timeout_ms": 1,
    "offset_metadata_max_bytes": 0,
    "offsets_retention_minutes": 1,
    "offsets_retention_check_interval_ms": 1,
    "offsets_commit_timeout_ms": 1,
    "offsets_load_buffer_size": 1024,
    "transaction_max_timeout_ms": 1,
    "transactional_id_expiration_ms": 1,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 1,
    "transaction_remove_expired_transaction_cleanup_interval_ms": 1,
    "transaction_state_log_load_buffer_size": 1024,
}
