"""The coordinator's settings, under Kafka's names where Kafka has the setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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

ASSIGNOR_NAMES: Final = frozenset(("uniform", "range"))
MIGRATION_POLICIES: Final = frozenset(("upgrade", "downgrade", "bidirectional", "disabled"))


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
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer", "streams"),
        "The protocols of groups that are served: consumer is the one of KIP-848; classic always is, streams is not "
        "yet.",
    )
    group_consumer_session_timeout_ms: int = setting(
        45_000, "How long a member of a consumer group (KIP-848) may be silent.", unit="ms"
    )
    group_consumer_min_session_timeout_ms: int = setting(
        45_000, "The least that one consumer group's consumer.session.timeout.ms counts as.", unit="ms"
    )
    group_consumer_max_session_timeout_ms: int = setting(
        60_000, "The most that one consumer group's consumer.session.timeout.ms counts as.", unit="ms"
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5_000, "How often members of consumer groups are asked to send a heartbeat.", unit="ms"
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        5_000, "The least that one consumer group's consumer.heartbeat.interval.ms counts as.", unit="ms"
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        15_000, "The most that one consumer group's consumer.heartbeat.interval.ms counts as.", unit="ms"
    )
    group_consumer_assignment_interval_ms: int = setting(
        1_000,
        "How long after a new assignment of a consumer group the next one may be made: members that come together "
        "share one.",
        unit="ms",
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        0, "The least that one consumer group's consumer.assignment.interval.ms counts as.", unit="ms"
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        15_000, "The most that one consumer group's consumer.assignment.interval.ms counts as.", unit="ms"
    )
    group_consumer_max_size: int = setting(
        2**31 - 1, "The most members that one consumer group may have.", unit="members"
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        "Assignors that members of consumer groups may ask for; the first is the default.",
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        "Whether a group with members may change its protocol when one of the other joins or the last of one leaves: "
        "upgrade, downgrade, bidirectional or disabled.",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000,
        "How often the topics that match consumer groups' regular expressions are looked for, if none is created.",
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
        self._check_consumer_groups()
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"{name.replace('_', '.')}={value}: must be at least {least}")

    def _check_consumer_groups(self) -> None:
        for name in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms"):
            value, least, most = (
                getattr(self, f"group_consumer_{part}{name}") for part in ("", "min_", "max_")
            )
            shown = name.replace("_", ".")
            if not least <= value <= most:
                raise ConfigError(
                    f"group.consumer.{shown}={value}: must be from group.consumer.min.{shown}={least} to "
                    f"group.consumer.max.{shown}={most}"
                )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms={self.group_consumer_heartbeat_interval_ms}: must be less than "
                f"group.consumer.session.timeout.ms={self.group_consumer_session_timeout_ms}"
            )
        if not self.group_consumer_assignors or not set(self.group_consumer_assignors) <= ASSIGNOR_NAMES:
            raise ConfigError(
                f"group.consumer.assignors={','.join(self.group_consumer_assignors)}: give one or more of "
                f"{', '.join(sorted(ASSIGNOR_NAMES))}"
            )
        if self.group_consumer_migration_policy.lower() not in MIGRATION_POLICIES:
            raise ConfigError(
                f"group.consumer.migration.policy={self.group_consumer_migration_policy}: give one of "
                f"{', '.join(sorted(MIGRATION_POLICIES))}"
            )

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members may become one of the newer protocol."""
        return self.group_consumer_migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Whether one of the newer protocol whose members all speak the classic one may become classic."""
        return self.group_consumer_migration_policy.lower() in ("downgrade", "bidirectional")

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


_LEAST = {
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1,
    "group_max_size": 1,
    "group_consumer_min_session_timeout_ms": 1,
    "group_consumer_min_heartbeat_interval_ms": 1,
    "group_consumer_min_assignment_interval_ms": 0,
    "group_consumer_max_size": 1,
    "group_consumer_regex_refresh_interval_ms": 10_000,
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
